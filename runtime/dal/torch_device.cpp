#include "runtime/dal/torch_device.h"

#include <cstdio>
#include <exception>

#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/probes/probes.h"

namespace flagos::dal {
namespace {

Fact missing(std::string why) { return {{}, {}, std::move(why)}; }

// KFD's number is major * 10000 + minor * 100 + stepping; the compiler's word has minor and stepping in hex.
std::string gfxName(uint32_t version) {
  char buf[24];
  std::snprintf(buf, sizeof buf, "gfx%u%x%x", version / 10000, version / 100 % 100, version % 100);
  return buf;
}

Fact architectureOf(const Device& dev, const Card* c, const OpenClFacts* cl) {
  if (cl && cl->nv_major) return {"sm_" + std::to_string(cl->nv_major * 10 + cl->nv_minor), "opencl", {}};
  if (c && c->gfx_target) return {gfxName(c->gfx_target), "sysfs", {}};
  // AMD's drivers give it as the device's name: "gfx90a:sramecc+:xnack-".
  if (cl && cl->name.rfind("gfx", 0) == 0) return {cl->name.substr(0, cl->name.find(':')), "opencl", {}};
  if (dev.fingerprint.result == "exact" && dev.parent.empty())
    if (const Model* m = database().byName(dev.fingerprint.model); m && !m->arch.empty()) return {m->arch, "table", {}};
  return missing(dev.kind == Kind::cpu ? "a processor's driver tells none"
                                       : "neither the driver nor the table tells it");
}

Metric count(uint64_t value, const char* unit, const char* source, const std::string& why) {
  return value ? Metric::of(static_cast<double>(value), unit, source, std::nullopt) : Metric::missing(unit, why);
}

Json pairOrNull(const std::optional<std::pair<int, int>>& p) {
  return p ? Json{p->first, p->second} : Json(nullptr);
}

}  // namespace

void fillTorch(Device& dev, const Card* c, const OpenClFacts* cl, const char* name_source) {
  TorchDevice& t = dev.torch;
  t.name = {dev.name, dev.fingerprint.result == "exact" ? "table" : name_source, {}};
  t.stable_id = {dev.stable_id,
                 c && c->in_sysfs        ? "sysfs"
                 : c                     ? "driver"
                 : dev.kind == Kind::cpu ? "sysfs"
                                         : "opencl",
                 {}};
  t.architecture = architectureOf(dev, c, cl);
  if (const int v = cl ? openClVersion(*cl) : 0) t.capability = {v / 1000, v % 1000};
  else
    t.why_no_capability = cl ? "the driver's version text is no OpenCL version" : "no OpenCL driver lists the device";
  t.supported_dtypes = dev.dtypes;
  const std::string why = c && c->asleep ? "the card is asleep and was not woken" : "no driver tells it";
  t.compute_units = cl && cl->compute_units ? count(cl->compute_units, "count", "opencl", why)
                                            : count(c ? c->compute_units : 0, "count", "sysfs", why);
  const uint64_t cl_hz = cl ? cl->clock_mhz * 1000000ull : 0;
  t.clock = cl_hz ? count(cl_hz, "Hz", "opencl", why) : count(c ? c->clock_mhz * 1000000ull : 0, "Hz", "sysfs", why);
  t.max_allocation = count(cl ? cl->max_alloc_bytes.value_or(0) : 0, "B", "opencl", why);
  t.local_memory = count(cl ? cl->local_bytes.value_or(0) : 0, "B", "opencl", why);
  t.shared_memory = dev.description.shared_memory;
}

MemoryInfo memoryAtEnumeration(const Device& d) {
  const bool of_the_host = d.kind == Kind::integrated || d.kind == Kind::cpu;
  return {of_the_host ? d.memory_shared : d.memory_dedicated, d.memory_used, d.memory_free};
}

MemoryInfo memoryInfo(const Device& dev) {
  // Only out of memory throws here; the caller is a training process.
  try {
    const Root root("/");
    Facts facts;
    if (!dev.pci.empty())
      if (auto card = readPciCard(root, dev.pci)) {
        facts.cards.push_back(std::move(*card));
        (void)probeDrm(root, facts);
        (void)probeAccel(root, facts);
      }
    Card* card = facts.cards.empty() ? nullptr : &facts.cards.front();
    const auto fromTable = [](const Metric& m, const char* source) {
      return m.value && m.source == source ? std::optional<uint64_t>(static_cast<uint64_t>(*m.value)) : std::nullopt;
    };
    if (card && !card->vram_total && !card->asleep) card->vram_total = fromTable(dev.memory_dedicated, "sysfs");
    const bool by_driver = dev.memory_dedicated.source == "driver" || dev.memory_used.source == "driver";
    if (by_driver && !(card && card->asleep)) (void)probeNvml(root, facts);
    card = facts.cards.empty() ? nullptr : &facts.cards.front();   // a probe may have added cards
    NvmlFacts of_slice;
    const NvmlFacts* nv = nullptr;
    for (const NvmlFacts& n : facts.nvml) {
      if (n.pci == dev.pci && dev.stable_id != n.uuid) nv = &n;
      for (const NvmlSlice& s : n.slices)
        if (s.uuid == dev.stable_id) {
          of_slice.memory = s.memory;
          nv = &of_slice;
        }
      if (nv) break;
    }
    OpenClFacts cl;
    cl.global_bytes = fromTable(dev.memory_shared, "opencl");
    if (!cl.global_bytes) cl.global_bytes = fromTable(dev.memory_dedicated, "opencl");
    if (dev.memory_free.source == "opencl" && dev.opencl) {
      (void)askOpenClLoader(facts.opencl);
      for (const OpenClFacts& d : facts.opencl)
        if (d.place.platform == dev.opencl->platform && d.place.device == dev.opencl->device)
          cl.free_bytes = d.free_bytes;
    }
    Device now = dev;
    fillMemory(now, root, card, &cl, nv);
    return memoryAtEnumeration(now);
  } catch (const std::exception&) {
    return memoryAtEnumeration(dev);
  }
}

Json toJson(const Fact& f) {
  return Json{{"value", f.value.empty() ? Json(nullptr) : Json(f.value)},
              {"source", f.source.empty() ? Json(nullptr) : Json(f.source)},
              {"why_missing", f.why_missing.empty() ? Json(nullptr) : Json(f.why_missing)}};
}

Json toJson(const TorchDevice& t) {
  return Json{{"name", toJson(t.name)},
              {"stable_id", toJson(t.stable_id)},
              {"architecture", toJson(t.architecture)},
              {"capability",
               {{"value", pairOrNull(t.capability)},
                {"meaning", "OpenCL version of the chosen driver"},
                {"source", t.capability ? Json("opencl") : Json(nullptr)},
                {"why_missing", t.capability ? Json(nullptr) : Json(t.why_no_capability)}}},
              {"supported_dtypes",
               {{"value", t.supported_dtypes},
                {"source", t.supported_dtypes.empty() ? Json(nullptr) : Json("opencl")},
                {"why_missing", t.supported_dtypes.empty() ? Json("the device cannot be used") : Json(nullptr)}}},
              {"compute_units", flagos::toJson(t.compute_units)},
              {"clock", flagos::toJson(t.clock)},
              {"max_allocation", flagos::toJson(t.max_allocation)},
              {"local_memory", flagos::toJson(t.local_memory)},
              {"shared_memory", {{"value", t.shared_memory}, {"source", "opencl"}}}};
}

}  // namespace flagos::dal
