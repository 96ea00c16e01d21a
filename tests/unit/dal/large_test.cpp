// Enumeration of a big machine: how much is read, that nothing is written, and that no sleeping card is touched. The
// time is a figure of tests/bench (devices.enumerate64); here the work is counted.
#include <sys/stat.h>

#include <cstdlib>
#include <map>

#include "runtime/dal/merge.h"
#include "runtime/dal/topology.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/large_tree.h"

using namespace flagos;

namespace {

struct Folder {
  std::string dir;
  Folder() {
    char name[] = "/tmp/flagos-large-XXXXXX";
    dir = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(dir); }
};

// Path -> inode, size, modification and change time of everything below.
std::map<std::string, std::string> state(const std::string& dir) {
  std::map<std::string, std::string> out;
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir)) {
    struct stat s;
    if (::lstat(e.path().c_str(), &s) != 0) continue;
    out[e.path().string()] = std::to_string(s.st_ino) + " " + std::to_string(s.st_size) + " " +
                             std::to_string(s.st_mtim.tv_sec) + "." + std::to_string(s.st_mtim.tv_nsec) + " " +
                             std::to_string(s.st_ctim.tv_sec) + "." + std::to_string(s.st_ctim.tv_nsec);
  }
  return out;
}

}  // namespace

TEST_CASE("64 cards behind switches: each file is read once, nothing is written, no sleeping card is touched") {
  const Folder f;
  REQUIRE(large_tree::write(f.dir) == 64);
  const auto before = state(f.dir);
  std::map<std::string, int> reads;
  dal::Root root(f.dir);
  root.on_read = [&](const std::string& p) { ++reads[p]; };
  const dal::Inventory inventory = dal::enumerateAt(root, {f.dir, std::nullopt, false});
  REQUIRE(inventory.devices.size() == 64);
  int asleep = 0;
  for (const dal::Device& d : inventory.devices) {
    CHECK(d.usable);
    asleep += d.memory_used.why_missing.find("asleep") != std::string::npos;
  }
  CHECK(asleep == 16);
  // Reads per card stay a small number, whatever the size of the machine: 64 cards and 80 bridges.
  size_t total = 0;
  for (const auto& [path, n] : reads) {
    total += static_cast<size_t>(n);
    INFO(path << " was read " << n << " times");
    CHECK(n == 1);
  }
  CHECK(total <= 64 * 24 + 80 * 3 + 32);
  const dal::Topology t = dal::readTopology(root, inventory);
  CHECK(t.edges.size() == 64 * 63 / 2);
  // 2,016 pairs share their bridges: topology reads each link once as well.
  size_t links = 0;
  for (const auto& [path, n] : reads)
    if (path.find("_link_") != std::string::npos) {
      links += static_cast<size_t>(n);
      CHECK(n == 1);
    }
  CHECK(links > 0);
  for (const auto& [path, n] : reads) {
    const bool sensor = path.find("mem_info") != std::string::npos || path.find("/config") != std::string::npos ||
                        path.find("_link_") != std::string::npos || path.find("gpu_") != std::string::npos ||
                        path.find("vbios") != std::string::npos;
    if (!sensor) continue;
    const std::string card = path.substr(0, path.find('/', std::string("/sys/bus/pci/devices/").size()));
    INFO(path);
    CHECK(root.text(card + "/power/runtime_status").value_or("") == "active");
  }
  CHECK(state(f.dir) == before);
}
