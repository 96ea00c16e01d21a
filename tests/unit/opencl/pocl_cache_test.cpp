// Each process compiles into a PoCL cache of its own; one after the other they share it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/opencl/pocl_cache.h"
#include "tests/unit/catch.h"

using namespace flagos::ocl;

namespace {

// What a fresh process chooses while `hold` is open elsewhere; run in a child, whose environment dies with it.
std::string chosenBy(const std::string& cache, const char* own, int hold_open, int* running) {
  int result[2], stay[2];
  REQUIRE(::pipe(result) == 0);
  REQUIRE(::pipe(stay) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setenv("FLAGOS_CACHE_DIR", cache.c_str(), 1);
    ::unsetenv("FLAGOS_POCL_CACHE_OF");
    if (own) ::setenv("POCL_CACHE_DIR", own, 1);
    else ::unsetenv("POCL_CACHE_DIR");
    privatePoclCache();
    const char* dir = std::getenv("POCL_CACHE_DIR");
    const std::string text = dir ? dir : "";
    if (::write(result[1], text.data(), text.size()) < 0) ::_exit(1);
    ::close(result[1]);
    ::close(stay[1]);
    char c;
    if (hold_open && ::read(stay[0], &c, 1) < 0) ::_exit(1);
    ::_exit(0);
  }
  ::close(result[1]);
  ::close(stay[0]);
  char buffer[4096];
  std::string text;
  for (ssize_t n; (n = ::read(result[0], buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  ::close(result[0]);
  if (hold_open) {
    *running = stay[1];
  } else {
    ::close(stay[1]);
    ::waitpid(pid, nullptr, 0);
  }
  return text;
}

}  // namespace

TEST_CASE("processes that run together get different kernel caches, those that follow each other the same") {
  char tmpl[] = "/tmp/flagos-pocl-XXXXXX";
  const std::string cache = ::mkdtemp(tmpl);
  CHECK(chosenBy(cache, nullptr, 0, nullptr) == cache + "/pocl/0");
  CHECK(chosenBy(cache, nullptr, 0, nullptr) == cache + "/pocl/0");
  int first = -1;
  CHECK(chosenBy(cache, nullptr, 1, &first) == cache + "/pocl/0");
  CHECK(chosenBy(cache, nullptr, 0, nullptr) == cache + "/pocl/1");
  ::close(first);
  ::wait(nullptr);
  CHECK(chosenBy(cache, nullptr, 0, nullptr) == cache + "/pocl/0");
}

TEST_CASE("a cache folder that the user chose is left alone, one that cannot be made is replaced by a temporary one") {
  CHECK(chosenBy("/tmp", "/somewhere/else", 0, nullptr) == "/somewhere/else");
  char tmpl[] = "/tmp/flagos-pocl-XXXXXX";
  const std::string temporary = ::mkdtemp(tmpl), ours = temporary + "/flagos-" + std::to_string(::getuid()) + "-pocl";
  ::setenv("TMPDIR", temporary.c_str(), 1);
  CHECK(chosenBy("/proc/no/such", nullptr, 0, nullptr) == ours + "/0");
  std::filesystem::permissions(ours, std::filesystem::perms::all);   // anybody could put files there: they would be run
  CHECK(chosenBy("/proc/no/such", nullptr, 0, nullptr).empty());
  ::unsetenv("TMPDIR");
  std::filesystem::remove_all(temporary);
}

TEST_CASE("kernel files that were cut short are removed before the driver sees them, whole ones stay") {
  namespace fs = std::filesystem;
  char tmpl[] = "/tmp/flagos-pocl-XXXXXX";
  const std::string cache = ::mkdtemp(tmpl);
  const fs::path folder = fs::path(cache) / "pocl" / "0" / "AB" / "kernel";
  fs::create_directories(folder);
  for (const char* name : {"whole.so", "short.so", "head.so"}) fs::copy_file("/proc/self/exe", folder / name);
  fs::resize_file(folder / "short.so", fs::file_size(folder / "short.so") - 1);
  fs::resize_file(folder / "head.so", 40);
  std::ofstream(folder / "empty.so").close();
  std::ofstream(folder / "noise.so") << std::string(300, '\xa7');
  const auto word = [](uint32_t v) { return std::string(reinterpret_cast<const char*>(&v), 4); };
  const std::string bitcode = "BC\xc0\xde" + word(1 | 13 << 2) + word(2) + std::string(8, 'x') + word(1 | 8 << 2) + word(1) + std::string(4, 'y');
  std::ofstream(folder / "program.bc", std::ios::binary) << bitcode;
  std::ofstream(folder / "cut.bc", std::ios::binary) << bitcode.substr(0, bitcode.size() - 1);
  std::ofstream(folder / "half.bc", std::ios::binary) << bitcode.substr(0, 20);   // up to the next block
  std::ofstream(folder / "longer.bc", std::ios::binary) << bitcode + "xyzw";
  std::ofstream(folder / "magic.bc") << "BC";
  std::ofstream(folder / "empty.bc").close();
  CHECK(chosenBy(cache, nullptr, 0, nullptr) == cache + "/pocl/0");
  std::vector<std::string> left;
  for (const auto& e : fs::directory_iterator(folder)) left.push_back(e.path().filename().string());
  std::sort(left.begin(), left.end());
  // A file that ends where a block ends cannot be told from a whole one.
  CHECK(left == std::vector<std::string>{"half.bc", "program.bc", "whole.so"});
  fs::remove_all(cache);
}
