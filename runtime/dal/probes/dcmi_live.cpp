// Ascend's management library (DCMI), live. Its units: memory in MiB, the AI cores' load in percent. Its answers are
// kept in NVML's words, so that records, merging and tests know one form.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/probes/vendor_library.h"

namespace flagos::dal {
namespace {

constexpr int kOk = 0, kAiCore = 2;
constexpr int kMaxCards = 64, kMaxChips = 8;

struct Answer {
  alignas(16) unsigned char bytes[4096] = {};
  template <class T>
  T at(size_t offset) const {
    T v;
    std::memcpy(&v, bytes + offset, sizeof v);
    return v;
  }
};
using Ask = int (*)(int card, int chip, void* out);

template <class F>
F symbol(void* lib, const char* name) { return reinterpret_cast<F>(::dlsym(lib, name)); }

// {memory_size u64, ... } of the HBM or DDR call; used and free in MiB.
std::optional<NvmlMemory> memoryOf(uint64_t total_mib, uint64_t used_mib) {
  if (total_mib > (1u << 24) || used_mib > total_mib) return std::nullopt;
  const uint64_t total = total_mib << 20, used = used_mib << 20;
  if (!saneMemory(total, used, total - used)) return std::nullopt;
  return NvmlMemory{total, used, total - used};
}

}  // namespace

const std::vector<std::string>& dcmiFiles() {
  static const std::vector<std::string> files = {"libdcmi.so", "/usr/local/dcmi/libdcmi.so"};
  return files;
}

std::string askDcmi(const std::vector<std::string>& files, Facts& facts) {
  void* lib = nullptr;
  for (const std::string& f : files)
    if (!lib) lib = ::dlopen(f.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!lib) return files.back() + " was looked for and is not there";
  const auto init = symbol<int (*)()>(lib, "dcmi_init");
  const auto cards = symbol<int (*)(int*, int*, int)>(lib, "dcmi_get_card_list");
  const auto chips = symbol<int (*)(int, int*)>(lib, "dcmi_get_device_num_in_card");
  const auto pcie = symbol<Ask>(lib, "dcmi_get_device_pcie_info_v2");
  if (!init || !cards || !chips || !pcie) return files.back() + " lacks dcmi_init or dcmi_get_device_pcie_info_v2";
  const auto chip_info = symbol<Ask>(lib, "dcmi_get_device_chip_info"),
             hbm = symbol<Ask>(lib, "dcmi_get_device_hbm_info"),
             ddr = symbol<Ask>(lib, "dcmi_get_device_memory_info_v3");
  const auto load = symbol<int (*)(int, int, int, unsigned*)>(lib, "dcmi_get_device_utilization_rate");
  if (const int e = init(); e != kOk) return "DCMI: error " + std::to_string(e) + " from dcmi_init";
  int count = 0, list[kMaxCards * 4] = {};
  if (const int e = cards(&count, list, kMaxCards); e != kOk)
    return "DCMI: error " + std::to_string(e) + " from the card list";
  int added = 0, dropped = 0;
  for (int i = 0; i < std::min(count, kMaxCards); ++i) {
    int n = 0;
    if (chips(list[i], &n) != kOk) continue;
    for (int chip = 0; chip < std::min(n, kMaxChips); ++chip) {
      Answer p;
      if (pcie(list[i], chip, p.bytes) != kOk) continue;
      // vendor, subsystem vendor, device, subsystem device, domain, bus, device, function
      const PciAddress at{p.at<uint32_t>(16), p.at<uint32_t>(20), p.at<uint32_t>(24), p.at<uint32_t>(28)};
      NvmlFacts f;
      f.vendor = "19e5";
      f.pci = at.bus <= 0xff && at.device < 32 && at.function < 8 ? at.text() : "";
      const Card* card = facts.find(f.pci);
      if (p.at<uint32_t>(0) != 0x19e5 || !card || card->vendor != "19e5") { ++dropped; continue; }
      // type[32], name[32], version[32]
      if (Answer info; chip_info && chip_info(list[i], chip, info.bytes) == kOk) {
        info.bytes[32 + 31] = 0;
        const std::string name = reinterpret_cast<const char*>(info.bytes + 32);
        const bool readable = std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c < 127; });
        if (readable && !name.empty()) f.name = name.rfind("Ascend", 0) == 0 ? name : "Ascend " + name;
      }
      std::optional<NvmlMemory> memory;
      // size, frequency, use (each on eight bytes)
      if (Answer m; hbm && hbm(list[i], chip, m.bytes) == kOk) memory = memoryOf(m.at<uint64_t>(0), m.at<uint64_t>(16));
      // size, what is free
      if (Answer m; !memory && ddr && ddr(list[i], chip, m.bytes) == kOk && m.at<uint64_t>(8) <= m.at<uint64_t>(0))
        memory = memoryOf(m.at<uint64_t>(0), m.at<uint64_t>(0) - m.at<uint64_t>(8));
      if (memory) f.memory = *memory;
      else f.why_no_memory = "DCMI tells no memory that makes sense";
      unsigned percent = 0;
      const int e = load ? load(list[i], chip, kAiCore, &percent) : -1;
      if (e == kOk && percent <= 100) f.busy_percent = percent;
      else f.why_no_busy = "DCMI: utilisation is not reported";
      facts.nvml.push_back(std::move(f));
      ++added;
    }
  }
  if (added) return "";
  return dropped ? "DCMI answers, but not with the address of a card that is here: its answers were dropped"
                 : "DCMI answers, but lists no device";
}

}  // namespace flagos::dal
