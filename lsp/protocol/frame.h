// Content-Length framing. Fed with any pieces (one byte at a time too), gives whole message bodies.
//
// What is not a header is skipped up to the next "Content-Length:", so that one bad frame does not end a session. A body
// above the cap is read past without being kept, and reported.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace flagos::lsp {

inline constexpr size_t kMaxBodyBytes = 64u << 20;
inline constexpr size_t kMaxHeaderBytes = 4096;

class FrameReader {
 public:
  struct Frame { std::string body; std::string problem; };   // problem: why there is no body
  void feed(std::string_view bytes);
  std::optional<Frame> next();

 private:
  std::string buffer_;
  size_t at_ = 0;          // consumed part of buffer_
  size_t skip_ = 0;        // bytes of an oversized body still to come
};

std::string frame(std::string_view body);

}  // namespace flagos::lsp
