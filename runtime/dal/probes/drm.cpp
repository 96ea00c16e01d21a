// DRM: device nodes of display-class cards, and what amdgpu tells in sysfs.
#include <algorithm>

#include "runtime/dal/pci_address.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {
namespace {

// Percentages come as text and, on some APUs, scaled by 100: what is no percentage is no answer.
std::optional<double> percent(const Root& root, const std::string& path) {
  const auto n = root.number(path);
  return n && *n <= 100 ? std::optional<double>(static_cast<double>(*n)) : std::nullopt;
}

// Not called for a sleeping card: on older kernels each of these reads wakes it.
void readAmdgpu(const Root& root, const std::string& dir, Card& c) {
  c.vram_total = root.number(dir + "/mem_info_vram_total");
  c.vram_used = root.number(dir + "/mem_info_vram_used");
  c.gtt_total = root.number(dir + "/mem_info_gtt_total");
  c.gtt_used = root.number(dir + "/mem_info_gtt_used");
  c.busy_percent = percent(root, dir + "/gpu_busy_percent");
  c.vbios = root.text(dir + "/vbios_version").value_or("");
  c.product_name = root.text(dir + "/product_name").value_or("");
  makePrintable(c.vbios);
  makePrintable(c.product_name);
  // Header: u16 size, u8 format, u8 content. Format 1 is a card, 2 and 3 are APUs; the ASIC's name would be a guess.
  if (const auto m = root.bytes(dir + "/gpu_metrics", 4096); m && m->size() >= 4) {
    const auto format = static_cast<unsigned char>((*m)[2]);
    if (format >= 1 && format <= 3) c.apu = format != 1;
  }
}

}  // namespace

ProbeReport probeDrm(const Root& root, Facts& facts) {
  ProbeReport report{"drm", 0, {}};
  for (Card& c : facts.cards) {
    if (!c.in_sysfs) continue;
    const std::string dir = "/sys/bus/pci/devices/" + c.pci;
    std::string render, display;
    for (const std::string& n : root.list(dir + "/drm")) {
      if (n.rfind("renderD", 0) == 0) render = "/dev/dri/" + n;
      else if (n.rfind("card", 0) == 0 && n.find('-') == std::string::npos) display = "/dev/dri/" + n;
    }
    // Recorded folders may hold the class entries only.
    if (render.empty() && display.empty())
      for (const std::string& n : root.list("/sys/class/drm")) {
        const bool is_render = n.rfind("renderD", 0) == 0;
        if (!is_render && (n.rfind("card", 0) != 0 || n.find('-') != std::string::npos)) continue;
        const auto device = root.linkName("/sys/class/drm/" + n + "/device");
        if (device && normalPciAddress(*device) == c.pci) (is_render ? render : display) = "/dev/dri/" + n;
      }
    const std::string node = render.empty() ? display : render;
    if (!node.empty()) {
      c.nodes.push_back({node, root.node(node)});
      ++report.found;
    }
    if (!c.asleep && !c.dead && c.vendor == "1002") readAmdgpu(root, dir, c);
  }
  if (report.found == 0)
    report.why_nothing = root.exists("/sys/class/drm")
                             ? "no accelerator has an entry in /sys/class/drm: no DRM driver is bound to one"
                             : "/sys/class/drm does not exist: no DRM driver is loaded";
  return report;
}

}  // namespace flagos::dal
