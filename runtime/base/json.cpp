#include "runtime/base/json.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace flagos {
namespace {

constexpr int kPipeWaitMs = 5000;

// The parser quotes what it last read: a binary file must not put raw bytes into a warning (Python would refuse the
// whole call over them) or escape sequences on a terminal.
std::string printable(const std::string& s) {
  std::string out;
  for (const char c : s) out += c >= ' ' && c < 0x7f ? c : '?';
  return out;
}

// A SAX pass that finds the first error and stops at the depth cap, before any tree is built.
struct Checker : nlohmann::json_sax<Json> {
  int depth = 0, max_depth = 64;
  size_t at = 0;
  std::string why;
  bool enter() {
    if (++depth <= max_depth) return true;
    why = "nested deeper than " + std::to_string(max_depth) + " levels";
    return false;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { --depth; return true; }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { --depth; return true; }
  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& e) override {
    at = position ? position - 1 : 0;
    why = e.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...": keep the reason only.
    // "[json.exception.out_of_range.406] number overflow parsing '1e999'" has no place.
    if (const auto p = why.find(": "); p != std::string::npos) why.erase(0, p + 2);
    else if (const auto end = why.find("] "); why.starts_with("[json.exception.") && end != std::string::npos) why.erase(0, end + 2);
    why = printable(why);
    (void)token;
    return false;
  }
};

Error errnoError(const std::string& path, const char* verb) {
  Error e = fail(std::string("cannot ") + verb + ": " + std::strerror(errno));
  e.where = path;
  e.exit = Exit::broken_input;
  return e;
}

}  // namespace

LineColumn lineColumn(std::string_view text, size_t offset) {
  LineColumn lc{1, 1};
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] == '\n') { ++lc.line; lc.column = 1; } else { ++lc.column; }
  }
  return lc;
}

Result<Json> parseJson(std::string_view text, std::string_view name, JsonLimits limits) {
  Error e;
  e.exit = Exit::broken_input;
  e.where = std::string(name);
  if (text.size() > limits.max_bytes) {
    e.what = "larger than " + std::to_string(limits.max_bytes) + " bytes";
    return e;
  }
  Checker check;
  check.max_depth = limits.max_depth;
  if (!Json::sax_parse(text, &check)) {
    const auto lc = lineColumn(text, check.at);
    e.where += ":" + std::to_string(lc.line) + ":" + std::to_string(lc.column);
    e.what = check.why.empty() ? "not valid JSON" : check.why;
    return e;
  }
  return Json::parse(text, nullptr, false);
}

Result<std::string> readFile(const std::string& path, size_t max_bytes) {
  // Without O_NONBLOCK, opening a pipe that nobody writes to would hang for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errnoError(path, "open");
  struct stat st{};
  const bool may_wait = ::fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
  std::string out;
  char buf[65536];
  for (;;) {
    if (may_wait) {
      pollfd ready{fd, POLLIN, 0};
      const int r = ::poll(&ready, 1, kPipeWaitMs);
      if (r < 0 && errno == EINTR) continue;
      if (r == 0) {
        ::close(fd);
        Error e =
            fail("nothing was written to it for " + std::to_string(kPipeWaitMs / 1000) + " s", {}, Exit::broken_input);
        e.where = path;
        return e;
      }
    }
    const ssize_t n = ::read(fd, buf, sizeof buf);
    if (n == 0) break;
    if (n < 0) {
      if (errno == EINTR || (may_wait && errno == EAGAIN)) continue;
      Error e = errnoError(path, "read");
      ::close(fd);
      return e;
    }
    out.append(buf, static_cast<size_t>(n));
    if (out.size() > max_bytes) {
      ::close(fd);
      Error e = fail("larger than " + std::to_string(max_bytes) + " bytes", {}, Exit::broken_input);
      e.where = path;
      return e;
    }
  }
  ::close(fd);
  return out;
}

Result<Json> readJsonFile(const std::string& path, JsonLimits limits) {
  auto text = readFile(path, limits.max_bytes);
  if (!text) return text.error();
  return parseJson(*text, path, limits);
}

Result<void> writeFileAtomic(const std::string& path, std::string_view bytes, unsigned mode) {
  const std::string tmp = path + "." + std::to_string(::getpid()) + ".tmp";
  const int fd = ::open(tmp.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (fd < 0) return errnoError(tmp, "create");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      Error e = errnoError(tmp, "write");
      ::close(fd);
      ::unlink(tmp.c_str());
      return e;
    }
    done += static_cast<size_t>(n);
  }
  if (::close(fd) != 0 || ::rename(tmp.c_str(), path.c_str()) != 0) {
    Error e = errnoError(path, "replace");
    ::unlink(tmp.c_str());
    return e;
  }
  return {};
}

std::string dump(const Json& j, int indent) {
  return j.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace flagos
