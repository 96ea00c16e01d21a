// Kind, memory, dtypes and description of one device, each number with its source (order of trust: devices.md section
// 3).
#include <algorithm>

#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/vendors.h"

namespace flagos::dal {
namespace {

bool hasWord(const std::string& list, std::string_view word) {
  for (size_t p = list.find(word); p != std::string::npos; p = list.find(word, p + 1)) {
    const bool begins = p == 0 || list[p - 1] == ' ';
    const bool ends = p + word.size() == list.size() || list[p + word.size()] == ' ';
    if (begins && ends) return true;
  }
  return false;
}
bool hasFp16(const OpenClFacts& d) { return d.fp16_config != 0 || hasWord(d.extensions, "cl_khr_fp16"); }
bool hasFp64(const OpenClFacts& d) { return d.fp64_config != 0 || hasWord(d.extensions, "cl_khr_fp64"); }

// "MemAvailable:  123 kB" of /proc/meminfo, in bytes.
std::optional<double> memInfo(const Root& root, std::string_view key) {
  const auto text = root.bytes("/proc/meminfo", 16384);
  if (!text) return std::nullopt;
  const auto p = text->find(std::string(key) + ":");
  if (p == std::string::npos || (p != 0 && (*text)[p - 1] != '\n')) return std::nullopt;
  char* end = nullptr;
  const double kib = std::strtod(text->c_str() + p + key.size() + 1, &end);
  return end != text->c_str() + p + key.size() + 1 && kib > 0 ? std::optional<double>(kib * 1024) : std::nullopt;
}

Metric bytes(std::optional<uint64_t> v, const char* source, const std::string& why, std::optional<double> age = 0.0) {
  return v ? Metric::of(static_cast<double>(*v), "B", source, age) : Metric::missing("B", why);
}

}  // namespace

Kind kindOf(const Card& c, const OpenClFacts* chosen, const Fingerprint& f) {
  const Vendor* v = findVendor(c.vendor);
  const std::string base = c.class_code.substr(0, 2);
  if (v && v->makes == Makes::display) return Kind::other;
  // Huawei's displays are those of its management controllers; its accelerators are of class 12.
  if (c.vendor == "19e5" && base == "03") return Kind::other;
  // What the table knows for certain: all models that fit agree.
  std::optional<Kind> listed;
  bool agree = true;
  for (const Candidate& candidate : f.candidates)
    for (const Model* m : database().find(c.vendor, c.device))
      if (m->name == candidate.model) {
        if (listed && *listed != m->kind) agree = false;
        listed = m->kind;
      }
  if (listed && agree && *listed == Kind::npu) return Kind::npu;
  // Then the device's own answers, which beat the table.
  if (c.apu) return *c.apu ? Kind::integrated : Kind::discrete;
  if (chosen && chosen->type == "GPU" && chosen->unified) return *chosen->unified ? Kind::integrated : Kind::discrete;
  if (listed && agree) return *listed;
  if (chosen && chosen->type == "ACCELERATOR") return Kind::npu;
  if (base == "03")
    return c.vendor == "8086" && c.pci.find(":00:") != std::string::npos ? Kind::integrated : Kind::discrete;
  if (v && v->makes == Makes::npu) return Kind::npu;
  if (v && v->makes == Makes::gpu) return Kind::discrete;
  if (base == "12") return Kind::npu;
  return Kind::other;
}

std::vector<std::string> dtypesOf(const OpenClFacts& d) {
  std::vector<std::string> out{"float32"};
  if (hasFp64(d)) out.push_back("float64");
  if (hasFp16(d)) out.push_back("float16");
  for (const char* t : {"int8", "int16", "int32", "int64", "uint8", "bool"}) out.push_back(t);
  return out;
}

void fillMemory(Device& dev, const Root& root, const Card* c, const OpenClFacts* cl, const NvmlFacts* nv) {
  const std::string asleep = "the card is asleep and was not woken";
  const std::string silent = c && c->asleep ? asleep : "neither the driver nor sysfs reports it";
  dev.memory_dedicated = dev.memory_shared = dev.memory_used = dev.memory_free = Metric::missing("B", silent);
  dev.utilisation = Metric::missing("%", silent);
  std::optional<uint64_t> cl_total;
  if (cl) cl_total = cl->global_bytes;

  if (dev.kind == Kind::cpu) {
    dev.memory_dedicated = Metric::missing("B", "a processor has no memory of its own");
    dev.memory_shared = bytes(cl_total, "opencl", silent, std::nullopt);
    // Every process uses the same memory: what is used of the device's share cannot be told, what is left can.
    dev.memory_used = Metric::missing("B", "the memory is the host's and shared with every process");
    if (const auto free = memInfo(root, "MemAvailable"))
      dev.memory_free = Metric::of(cl_total ? std::min(*free, static_cast<double>(*cl_total)) : *free, "B", "sysfs");
    else dev.memory_free = Metric::missing("B", "/proc/meminfo has no MemAvailable");
    dev.utilisation = Metric::missing("%", "the load of a processor is not the load of this device");
    return;
  }

  if (dev.kind == Kind::integrated) {
    // Carve-out and shared memory are two numbers: their sum is no memory that anyone can allocate.
    dev.memory_dedicated =
        bytes(c ? c->vram_total : std::nullopt, "sysfs",
              c && c->asleep ? asleep : "no carve-out is reported; the device uses the host's memory", std::nullopt);
    if (cl_total) dev.memory_shared = bytes(cl_total, "opencl", silent, std::nullopt);
    else if (nv && nv->memory.total) dev.memory_shared = bytes(nv->memory.total, "driver", silent, std::nullopt);
    else if (c && c->gtt_total) dev.memory_shared = bytes(c->gtt_total, "sysfs", silent, std::nullopt);
    else if (const auto total = memInfo(root, "MemTotal"))
      dev.memory_shared = Metric::of(*total, "B", "sysfs", std::nullopt);
  } else {
    if (dev.kind == Kind::discrete) dev.memory_shared = Metric::missing("B", "the device has memory of its own");
    if (nv && nv->memory.total) dev.memory_dedicated = bytes(nv->memory.total, "driver", silent, std::nullopt);
    else if (cl_total) dev.memory_dedicated = bytes(cl_total, "opencl", silent, std::nullopt);
    else if (c && c->vram_total) dev.memory_dedicated = bytes(c->vram_total, "sysfs", silent, std::nullopt);
    else if (dev.fingerprint.result == "exact" && dev.parent.empty()) {   // a slice or function has only a share of it
      const Model* m = database().byName(dev.fingerprint.model);
      if (m && m->memory_gib.size() == 1 && m->memory_confidence != 'U')
        dev.memory_dedicated = Metric::of(m->memory_gib.front() * 1073741824.0, "B", "table", std::nullopt);
    }
  }

  if (nv && (nv->memory.used || nv->memory.free)) {
    dev.memory_used = bytes(nv->memory.used, "driver", "the vendor's library does not report it");
    dev.memory_free = bytes(nv->memory.free, "driver", "the vendor's library does not report it");
  } else if (c && c->vram_used) {
    dev.memory_used = bytes(c->vram_used, "sysfs", silent);
    if (c->vram_total && *c->vram_total >= *c->vram_used)
      dev.memory_free = bytes(*c->vram_total - *c->vram_used, "sysfs", silent);
  } else if (cl && cl->free_bytes) {
    dev.memory_free = bytes(cl->free_bytes, "opencl", silent);
  } else if (dev.kind == Kind::integrated && !(c && c->asleep)) {
    // It allocates from the host's memory: what is free there is free for it, up to its share.
    if (const auto free = memInfo(root, "MemAvailable"))
      dev.memory_free =
          Metric::of(dev.memory_shared.value ? std::min(*free, *dev.memory_shared.value) : *free, "B", "sysfs");
    dev.memory_used = Metric::missing("B", "the memory is the host's and shared with every process");
  }
  if (nv && nv->busy_percent) dev.utilisation = Metric::of(*nv->busy_percent, "%", "driver");
  else if (nv && !nv->why_no_busy.empty()) dev.utilisation = Metric::missing("%", nv->why_no_busy);
  else if (c && c->busy_percent) dev.utilisation = Metric::of(*c->busy_percent, "%", "sysfs");
}

void fillDescription(Device& dev, const Card* c, const OpenClFacts* cl) {
  DeviceDescription& d = dev.description;
  d.name = dev.name;
  d.vendor = dev.vendor;
  d.kind = dev.kind;
  if (c) {
    d.firmware = c->firmware.empty() ? c->vbios : c->firmware;
    d.compute_units = c->compute_units;
    d.clock_mhz = c->clock_mhz;
    if (c->vram_total) d.memory_bytes = *c->vram_total;
  }
  d.shared_memory = dev.kind == Kind::cpu || dev.kind == Kind::integrated;
  if (cl) {
    d.fp16 = hasFp16(*cl);
    d.fp64 = hasFp64(*cl);
    if (cl->compute_units) d.compute_units = cl->compute_units;
    if (cl->clock_mhz) d.clock_mhz = cl->clock_mhz;
    if (cl->global_bytes) d.memory_bytes = *cl->global_bytes;
    d.max_alloc_bytes = cl->max_alloc_bytes.value_or(0);
    d.local_bytes = cl->local_bytes.value_or(0);
    if (cl->unified) d.shared_memory = *cl->unified;
  }
  if (dev.kind == Kind::cpu && cl && d.compute_units && d.clock_mhz && cl->vector_width_float) {
    // One fused multiply-add per lane and cycle: what every core sustains; wider cores are corrected by measurement.
    d.flops_f32 = 2.0 * d.compute_units * d.clock_mhz * 1e6 * cl->vector_width_float;
    d.rates_source = "driver";
  }
  if (dev.fingerprint.result != "exact" || !dev.parent.empty()) return;   // a slice or function has only a share
  const Model* m = database().byName(dev.fingerprint.model);
  // Rated U = unknown or conflicting: no basis for a prediction.
  if (m && m->memory_confidence != 'U' && m->bandwidth_gbps > 0) {
    d.bandwidth_bps = m->bandwidth_gbps * 1e9;
    d.rates_source = "table";
  }
}

}  // namespace flagos::dal
