// LSP frames: the same bytes in one piece and byte by byte give the same bodies.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lsp/protocol/frame.h"

namespace {
std::vector<std::string> bodies(flagos::lsp::FrameReader& reader) {
  std::vector<std::string> all;
  while (auto f = reader.next()) all.push_back(f->problem.empty() ? f->body : "!");
  return all;
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  flagos::lsp::FrameReader whole, bytes;
  whole.feed(text);
  const auto expected = bodies(whole);
  std::vector<std::string> got;
  for (const char c : text) {
    bytes.feed({&c, 1});
    for (auto& b : bodies(bytes)) got.push_back(std::move(b));
  }
  if (got != expected) std::abort();
  return 0;
}
