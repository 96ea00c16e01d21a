// Every file that enumeration or topology reads, on every recorded machine, is cut, garbled and replaced by odd things.
// Which kinds of file there are is not listed here but watched: the list below only says what must be among them.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "runtime/dal/merge.h"
#include "runtime/dal/topology.h"
#include "tests/unit/catch.h"
#include "tests/unit/dal/fuzz.h"
#include "tests/unit/dal/machines.h"

using namespace flagos;
namespace fs = std::filesystem;

namespace {

// "/sys/bus/pci/devices/0000:03:00.0/vendor" and "/sys/class/.../nodes/7/properties" without what differs between
// cards.
std::string kindOf(const std::string& path) {
  std::string out;
  for (const std::string& part : machines::split(path, '/')) {
    if (part.empty()) continue;
    std::string p = part;
    if (p.find(':') != std::string::npos) p = "BDF";
    else
      while (!p.empty() && std::isdigit(static_cast<unsigned char>(p.back()))) p.pop_back();
    out += "/" + p;
  }
  return out;
}

class Copy {
 public:
  explicit Copy(const std::string& machine) {
    char name[] = "/tmp/flagos-fuzz-XXXXXX";
    root = ::mkdtemp(name);
    fs::copy(machines::kFolder + "/" + machine, root,
             fs::copy_options::recursive | fs::copy_options::copy_symlinks | fs::copy_options::overwrite_existing);
    options = machines::expected(machine).options;
    options.root = root;
    // What no recorded machine has of its own.
    put("/usr/share/misc/pci.ids", "1002  Advanced Micro Devices\n\t744c  Navi 31\n9999  MetaX\nabcd  Somebody\n");
    put("/rates.json", R"({"version":1,"devices":{"x":{"bandwidth_bps":1e11,"measured_bytes":1e9}}})");
    put("/sys/devices/system/node/node0/distance", "10 21");
    put("/sys/devices/system/node/node1/distance", "21 10");
    for (const auto& [file, text] : {std::pair{"class", "0x038000"}, {"vendor", "0xabcd"}, {"device", "0x0001"}})
      put(std::string("/sys/bus/pci/devices/0000:7f:00.0/") + file, text);   // a vendor that only pci.ids knows
    // Reads follow from reads: a driver with no name asks pci.ids, a config space of 4096 bytes has capabilities.
    std::string config(4096, '\0');
    config[0x100] = 0x0d;
    config[0x102] = 1;
    for (const auto& e : fs::recursive_directory_iterator(root))
      if (e.path().filename() == "class" && e.is_regular_file())
        for (const auto& [file, text] :
             {std::pair<const char*, std::string>{"/config", config}, {"/npu_memory_utilization", "1048576"}})
          if (!fs::exists(e.path().parent_path().string() + file))
            put(e.path().parent_path().string().substr(root.size()) + file, text);
  }
  ~Copy() { fs::remove_all(root); }
  void put(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(root + path).parent_path());
    (void)writeFileAtomic(root + path, text, 0644);
  }
  void enumerate(const dal::Root& r) const {
    const dal::Inventory inventory = dal::enumerateAt(r, options);
    fuzz::promises(inventory);
    const dal::Topology t = dal::readTopology(r, inventory);
    const size_t n = inventory.devices.size();
    if (t.edges.size() != n * (n - (n > 0)) / 2) FAIL("a pair without an edge");
    for (const auto& e : t.edges)
      if (e.paths.empty() || e.why.empty()) FAIL("a pair without a path or a reason");
    if (dump(dal::toJson(t)).empty() || dal::topologyText(t).empty()) FAIL("no text");
  }
  // One file of each kind that is read, by kind; the file itself, not a link to it.
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> out;
    dal::Root watch(root);
    watch.on_read = [&](const std::string& p) {
      std::error_code none;
      const fs::path real = fs::canonical(root + p, none);
      if (!none && fs::is_regular_file(real) && real.string().rfind(root + "/", 0) == 0)
        out.emplace(kindOf(p), real.string());
    };
    enumerate(watch);
    return out;
  }
  std::string root;
  dal::EnumerateOptions options;
};

}  // namespace

TEST_CASE("fuzz: every kind of file of every machine") {
  std::mt19937 rng(3);
  std::map<std::string, int> mutated;
  for (const std::string& name : machines::names()) {
    const Copy copy(name);
    for (const auto& [kind, file] : copy.files()) {
      const auto before = readFile(file);
      REQUIRE(before);
      INFO(name << " " << file);
      for (int i = 0; i < 2; ++i) {
        REQUIRE(writeFileAtomic(file, fuzz::mutate(*before, rng)));
        copy.enumerate(dal::Root(copy.root));
        ++mutated[kind];
      }
      REQUIRE(writeFileAtomic(file, *before));
    }
  }
  const std::string pci = "/sys/bus/pci/devices/BDF/", kfd = "/sys/class/kfd/kfd/topology/nodes//";
  for (const std::string& kind : {pci + "class",
                                  pci + "vendor",
                                  pci + "device",
                                  pci + "subsystem_vendor",
                                  pci + "subsystem_device",
                                  pci + "revision",
                                  pci + "config",
                                  pci + "power/runtime_status",
                                  pci + "numa_node",
                                  pci + "current_link_speed",
                                  pci + "current_link_width",
                                  pci + "max_link_speed",
                                  pci + "max_link_width",
                                  pci + "mem_info_vram_total",
                                  pci + "mem_info_vram_used",
                                  pci + "mem_info_gtt_total",
                                  pci + "gpu_busy_percent",
                                  pci + "gpu_metrics",
                                  pci + "vbios_version",
                                  pci + "npu_memory_utilization",
                                  kfd + "properties",
                                  kfd + "mem_banks//properties",
                                  kfd + "io_links//properties",
                                  std::string("/proc/driver/nvidia/gpus/BDF/information"),
                                  std::string("/proc/meminfo"),
                                  std::string("/proc/cpuinfo"),
                                  std::string("/proc/self/status"),
                                  std::string("/nodes.tsv"),
                                  std::string("/opencl.json"),
                                  std::string("/nvml.json"),
                                  std::string("/rates.json"),
                                  std::string("/usr/share/misc/pci.ids"),
                                  std::string("/sys/devices/system/node/node/distance")}) {
    INFO("never mutated: " << kind);
    CHECK(mutated[kind] > 0);
  }
}

TEST_CASE("odd things in the place of files: nothing blocks, nothing leaves the folder, nothing throws") {
  const std::string secret = "/tmp/flagos-secret-" + std::to_string(::getpid());
  REQUIRE(writeFileAtomic(secret, "very secret text"));
  for (const char* name :
       {"amd-mi300x-fabric", "apu-strix-halo", "intel-npu-igpu", "nvidia-4090-rebuilt", "topology-ladder"}) {
    const Copy copy(name);
    for (const auto& [kind, file] : copy.files()) {
      const auto before = readFile(file);
      REQUIRE(before);
      INFO(name << " " << file);
      for (int odd = 0; odd < 8; ++odd) {
        fs::remove_all(file);
        switch (odd) {
          case 0: break;                                                         // gone
          case 1: REQUIRE(writeFileAtomic(file, "")); break;
          case 2: fs::create_directories(file + "/x"); break;                    // a folder
          case 3: REQUIRE(::mkfifo(file.c_str(), 0600) == 0); break;             // would block for ever
          case 4: fs::create_symlink(fs::path(file).filename(), file); break;    // a loop
          case 5: fs::create_symlink("/dev/zero", file); break;                  // without end
          case 6: fs::create_symlink(secret, file); break;                       // out of the folder
          default: REQUIRE(writeFileAtomic(file, std::string(1u << 20, '\xff'))); break;
        }
        const dal::Root root(copy.root);
        const dal::Inventory inventory = dal::enumerateAt(root, copy.options);
        fuzz::promises(inventory);
        CHECK(dump(dal::toJson(inventory)).find("very secret text") == std::string::npos);
        (void)dal::readTopology(root, inventory);
      }
      fs::remove_all(file);
      REQUIRE(writeFileAtomic(file, *before));
    }
  }
  ::unlink(secret.c_str());
}
