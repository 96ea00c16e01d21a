#include "lsp/protocol/frame.h"

#include <algorithm>
#include <cctype>

namespace flagos::lsp {
namespace {

bool sameWord(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

// Bytes of the body that these header lines announce; nullopt if they do not.
std::optional<size_t> contentLength(std::string_view header) {
  std::optional<size_t> length;
  while (!header.empty()) {
    auto line = header.substr(0, header.find('\n'));
    header.remove_prefix(std::min(header.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    if (!sameWord(line.substr(0, colon), "content-length")) continue;
    auto digits = line.substr(colon + 1);
    while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
    while (!digits.empty() && digits.back() == ' ') digits.remove_suffix(1);
    if (digits.empty() || digits.size() > 15) return std::nullopt;
    size_t n = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return std::nullopt;
      n = n * 10 + static_cast<size_t>(c - '0');
    }
    length = n;
  }
  return length;
}

}  // namespace

void FrameReader::feed(std::string_view bytes) {
  if (skip_ > 0) {
    const size_t n = std::min(skip_, bytes.size());
    skip_ -= n;
    bytes.remove_prefix(n);
  }
  if (at_ > 0 && (at_ == buffer_.size() || at_ > (1u << 20))) {
    buffer_.erase(0, at_);
    at_ = 0;
  }
  buffer_.append(bytes);
}

std::optional<FrameReader::Frame> FrameReader::next() {
  while (true) {
    const std::string_view rest = std::string_view(buffer_).substr(at_);
    if (rest.empty()) return std::nullopt;
    // What is decided depends on these bytes only, never on how much has arrived behind them.
    const std::string_view head = rest.substr(0, kMaxHeaderBytes);
    size_t end = head.find("\r\n\r\n"), gap = 4;
    if (const auto bare = head.find("\n\n"); bare < end) { end = bare; gap = 2; }
    if (end == std::string_view::npos) {
      if (rest.size() < kMaxHeaderBytes) return std::nullopt;
      at_ += kMaxHeaderBytes - 32;  // no header is this long; keep what may be the start of one
      return Frame{{}, "more than 4 KiB without a header"};
    }
    if (const auto length = contentLength(rest.substr(0, end)); length) {
      const size_t start = end + gap;
      if (*length > kMaxBodyBytes) {
        const size_t here = std::min(*length, rest.size() - start);
        skip_ = *length - here;
        at_ += start + here;
        return Frame{{}, "a message of " + std::to_string(*length) + " bytes; the limit is 64 MiB"};
      }
      if (rest.size() - start < *length) return std::nullopt;
      Frame f{std::string(rest.substr(start, *length)), {}};
      at_ += start + *length;
      return f;
    }
    // Not a header: go on at the next thing that looks like one.
    size_t again = std::string_view::npos;
    constexpr std::string_view word = "content-length";
    for (size_t i = 1; i + word.size() <= end; ++i)
      if (sameWord(rest.substr(i, word.size()), word)) { again = i; break; }
    at_ += again == std::string_view::npos ? end + gap : again;
    return Frame{{}, "a frame without Content-Length"};
  }
}

std::string frame(std::string_view body) {
  return "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace flagos::lsp
