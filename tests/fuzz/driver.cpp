// Runs a fuzz target without libFuzzer: the seeds, then mutations of them, the same ones every time. For `./dev test`
// under g++'s sanitizers; `./dev fuzz` uses libFuzzer where clang is installed.
//
// usage: TARGET [-runs=N] [-seconds=N] [-seed=N] [FILE or FOLDER of seeds]...
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::string;
namespace fs = std::filesystem;

std::vector<Bytes> read(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const auto& p : paths) {
    std::error_code ec;
    if (!fs::is_directory(p, ec)) { files.push_back(p); continue; }
    for (const auto& e : fs::recursive_directory_iterator(p, ec)) if (e.is_regular_file(ec)) files.push_back(e.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> out = {""};
  for (const auto& f : files) {
    std::ifstream in(f, std::ios::binary);
    out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return out;
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}
  size_t below(size_t n) { return n ? random_() % n : 0; }

  Bytes mutate(const std::vector<Bytes>& seeds) {
    Bytes b = seeds[below(seeds.size())];
    if (b.size() > 20000) b = b.substr(below(b.size() - 20000), 20000);
    for (size_t steps = 1 + below(6); steps > 0; --steps) step(b, seeds);
    return b;
  }

 private:
  std::mt19937_64 random_;

  void step(Bytes& b, const std::vector<Bytes>& seeds) {
    static const std::vector<Bytes> words = {"(", ")", "[", "]", "{", "}", "\"\"\"", "'", "\\", "\n", "\r", "\r\n", "    ", "\t", ":", "def f(", "class A:", "lambda ", "f\"{", "async ",
        "match x:", "# ", "\xf0\x9f\x98\x80", "\xff", "\xc3", "\xed\xa0\x80", ".to('npu:0')", "torch", "%time ", "!", "?", "0", "-1", "99999999999", "null", "\\ud800", "Content-Length: 5\r\n\r\n", "\0\0"};
    const size_t at = below(b.size() + 1), length = std::min(b.size() - at, below(8) == 0 ? below(b.size() + 1) : below(12));
    switch (below(7)) {
      case 0: b.insert(at, words[below(words.size())]); break;
      case 1: b.erase(at, length); break;
      case 2: if (at < b.size()) b[at] = static_cast<char>(random_()); break;
      case 3: b.insert(below(b.size() + 1), b.substr(at, length)); break;
      case 4: for (size_t n = 1 + below(400), i = 0; i < n; ++i) b.insert(at, words[below(12)]); break;
      case 5: { const Bytes& other = seeds[below(seeds.size())]; const size_t from = below(other.size() + 1); b.insert(at, other.substr(from, below(200))); break; }
      default: if (at < b.size()) b[at] = static_cast<char>(b[at] ^ (1 << below(8))); break;
    }
    if (b.size() > 60000) b.resize(60000);
  }
};

}  // namespace

int main(int argc, char** argv) {
  size_t runs = 2000;
  double seconds = 1e9;
  uint64_t seed = 1;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.starts_with("-runs=")) runs = std::strtoull(a.c_str() + 6, nullptr, 10);
    else if (a.starts_with("-seconds=")) seconds = std::strtod(a.c_str() + 9, nullptr);
    else if (a.starts_with("-seed=")) seed = std::strtoull(a.c_str() + 6, nullptr, 10);
    else if (a.starts_with("-")) { std::fprintf(stderr, "%s: there is no option %s\n", argv[0], a.c_str()); return 2; }
    else paths.push_back(a);
  }
  const auto seeds = read(paths);
  // The input in use, so that a crash or an abort leaves it behind.
  const char* keep = std::getenv("FUZZ_LAST_INPUT");
  const auto run = [&](const Bytes& b) {
    if (keep) std::ofstream(keep, std::ios::binary).write(b.data(), static_cast<std::streamsize>(b.size()));
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(b.data()), b.size());
  };
  for (const auto& s : seeds) run(s);
  Mutator mutator(seed);
  const auto start = std::chrono::steady_clock::now();
  size_t done = 0;
  for (; done < runs; ++done) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
    run(mutator.mutate(seeds));
  }
  std::printf("%zu seeds and %zu mutations\n", seeds.size(), done);
  return 0;
}
