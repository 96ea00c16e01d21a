#include "runtime/torch/decision.h"

#include <array>
#include <atomic>

#include <ATen/Context.h>

#include "runtime/telemetry/recorder.h"
#include "runtime/torch/measure.h"
#include "runtime/torch/ops/registry.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

// What a candidate id means to us, worked out once per id from its name.
enum class Known : uint8_t { unknown, wide, tiled, host, fallback };
std::array<std::atomic<Known>, 4096> known{};

Known classify(kde::CandidateId id) {
  const std::string_view name = kde::candidateName(id);
  if (name == "host.aten") return Known::host;
  if (name.substr(0, 7) == "opencl.") return name.ends_with(".tiled") ? Known::tiled : Known::wide;
  return Known::fallback;
}

void defineRoute(const kde::Route& r) noexcept {
  telemetry::defineRoute(r.id, r.op, r.kernel, r.reason, r.predicted_s, r.bound, r.signature.device);
}

kde::Layout layoutOf(const at::Tensor& t) {
  if (t.is_contiguous()) return kde::Layout::contiguous;
  if (t.dim() == 4 && t.is_contiguous(at::MemoryFormat::ChannelsLast)) return kde::Layout::channels_last;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.stride(d) == 0 && t.size(d) > 1) return kde::Layout::overlapping;
  return kde::Layout::strided;
}

Decision choose(const kde::Signature& s, ocl::Device& device, const Trial* trial) {
  followDeterminism();
  const kde::Route* route = &router(static_cast<int>(device.index())).choose(s);
  if (route->open && trial) [[unlikely]] route = &settled(s, *route, device, *trial);
  auto& tag = ocl::currentTag();
  tag.route = route->id;
  telemetry::countCall(tag.site, route->id);
  return meaningOf(route->chosen, *route);
}

}  // namespace

void followDeterminism() {
  static std::atomic<bool> known{false};
  const bool now = at::globalContext().deterministicAlgorithms();
  if (now == known.load(std::memory_order_relaxed)) [[likely]] return;
  known.store(now, std::memory_order_relaxed);
  for (int i = 0; i < openedLimit(); ++i)
    if (isOpen(i)) router(i).setDeterministic(now);
}

Decision meaningOf(kde::CandidateId chosen, const kde::Route& route) {
  Decision d;
  d.route = &route;
  if (chosen == kde::kNoCandidate || chosen >= known.size()) {
    d.place = Place::refused;
    return d;
  }
  Known k = known[chosen].load(std::memory_order_relaxed);
  if (k == Known::unknown) [[unlikely]] known[chosen].store(k = classify(chosen), std::memory_order_relaxed);
  d.place = k == Known::host ? Place::host : k == Known::fallback ? Place::fallback : Place::opencl;
  d.variant = k == Known::tiled ? ocl::Variant::tiled : ocl::Variant::wide;
  return d;
}

void installDecisions() { kde::onRoute(&defineRoute); }

NameId opName(const c10::FunctionSchema& schema) {
  const auto& name = schema.operator_name();
  return internName(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
}

void addTensor(kde::Signature& s, const at::Tensor& t) {
  if (!t.defined() || s.nargs >= kde::kMaxArgs || t.layout() != at::kStrided) return;
  kde::ArgSig& a = s.args[s.nargs++];
  a.dtype = toDType(t.scalar_type());
  a.layout = layoutOf(t);
  a.rank = static_cast<uint8_t>(std::min<int64_t>(t.dim(), 255));
  a.on_device = t.device().type() == kNpu;
  const auto sizes = t.sizes();
  for (size_t i = 0; i < sizes.size() && i < kde::kMaxRank; ++i) a.sizes[i] = sizes[i];
}

kde::Signature signatureOf(NameId op, const c10::FunctionSchema& schema, const c10::IValue* args, ocl::Device& device) {
  kde::Signature s;
  s.op = op;
  s.device = static_cast<uint8_t>(device.index());
  s.queue_idle = currentQueue(device).idle();
  const auto& formal = schema.arguments();
  for (size_t i = 0; i < formal.size() && s.nargs < kde::kMaxArgs; ++i) {
    const c10::IValue& v = args[i];
    if (v.isTensor()) {
      if (!formal[i].kwarg_only() || !formal[i].is_out()) addTensor(s, v.toTensor());
    } else if (v.isTensorList()) {
      for (const auto& t : v.toListRef()) addTensor(s, t.toTensor());
    } else if (v.isOptionalTensorList()) {
      for (const auto& t : v.toListRef())
        if (t.isTensor()) addTensor(s, t.toTensor());
    }
  }
  return s;
}

Decision& lastDecision() noexcept {
  thread_local Decision last;
  return last;
}

Decision decide(const kde::Signature& s, ocl::Device& device, const Trial* trial) { return lastDecision() = choose(s, device, trial); }

}  // namespace flagos::glue
