// Devices and calls for the routing tests.
#pragma once
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kde/router.h"

namespace flagos::kde::test {

inline dal::DeviceDescription cpuDevice() {
  dal::DeviceDescription d;
  d.name = "cpu-test";
  d.vendor = "TestVendor";
  d.kind = dal::Kind::cpu;
  d.shared_memory = true;
  d.fp64 = true;
  d.memory_bytes = 8ull << 30;
  d.bandwidth_bps = 20e9;
  d.flops_f32 = 200e9;
  d.copy_bps = 10e9;
  d.launch_s = 2e-6;
  d.wait_s = 40e-6;
  d.rates_source = "measured";
  return d;
}

inline dal::DeviceDescription cardDevice() {
  dal::DeviceDescription d = cpuDevice();
  d.name = "card-test";
  d.kind = dal::Kind::discrete;
  d.shared_memory = false;
  d.fp64 = false;
  d.memory_bytes = 16ull << 30;
  d.bandwidth_bps = 800e9;
  d.flops_f32 = 20e12;
  d.launch_s = 5e-6;
  return d;
}

inline ArgSig arg(std::initializer_list<int64_t> sizes, DType t = DType::float32, Layout l = Layout::contiguous) {
  ArgSig a;
  a.dtype = t;
  a.layout = l;
  a.rank = static_cast<uint8_t>(sizes.size());
  size_t i = 0;
  for (const int64_t s : sizes)
    if (i < a.sizes.size()) a.sizes[i++] = s;
  return a;
}

inline Signature call(std::string_view op, std::initializer_list<ArgSig> args, std::initializer_list<int64_t> scalars = {}) {
  Signature s;
  s.op = internName(op);
  for (const ArgSig& a : args) s.args[s.nargs++] = a;
  for (const int64_t v : scalars) s.scalars[s.nscalars++] = v;
  return s;
}

inline Signature mm(int64_t m, int64_t k, int64_t n, DType t = DType::float32) {
  return call("aten::mm.out", {arg({m, k}, t), arg({k, n}, t)});
}

inline std::unique_ptr<Router> router(dal::DeviceDescription d, Mode mode = Mode::automatic, Fallback fallback = Fallback::warn) {
  RouterOptions o;
  o.device = std::move(d);
  o.mode = mode;
  o.fallback = fallback;
  o.read_files = false;
  return Router::create(std::move(o));
}

inline std::string chosen(Router& r, const Signature& s) { return std::string(candidateName(r.choose(s).chosen)); }
inline std::string reason(Router& r, const Signature& s) { return std::string(nameText(r.choose(s).reason)); }

}  // namespace flagos::kde::test
