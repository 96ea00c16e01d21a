// CLBlast's matrix products: made and tuned for GPUs, and on the machine only if its owner installed them.
#include "runtime/kde/catalog/clblast.h"

#include <cstdint>

#include "runtime/base/settings.h"

namespace flagos::kde {
namespace {
thread_local const dal::Presence* assumed = nullptr;
}

AssumeClblast::AssumeClblast(dal::Presence now) noexcept : before_(assumed), now_(now) { assumed = &now_; }
AssumeClblast::~AssumeClblast() { assumed = before_; }

dal::Presence clblastPresence(const dal::DeviceDescription& device) {
  if (assumed) return *assumed;
  static const dal::Presence here = dal::libraryPresence(dal::Root(setting("FLAGOS_ROOT").value_or("/")), "libclblast.so.1");
  return device.compute_units ? here : dal::Presence::unknown;   // the table does not count them
}

std::string clblastIllegal(const Facts& f) {
  switch (clblastPresence(f.device())) {
    case dal::Presence::yes: break;
    case dal::Presence::no: return "libclblast.so.1 is not installed: apt install libclblast1";
    case dal::Presence::unknown: return "whether libclblast.so.1 is installed on the device's machine is not known";
  }
  if (f.dtype() == DType::float16) return "CLBlast sums float16 in float16, and this backend's products sum it in float32";
  if (f.dtype() != DType::float32 && f.dtype() != DType::float64) return "CLBlast has no product of " + std::string(dtypeName(f.dtype()));
  bool batched = false;   // elsewhere `batch` repeats the rows
  for (int i = 0; i < f.signature().nargs && i < kMaxArgs; ++i) {
    const ArgSig& a = f.signature().args[static_cast<size_t>(i)];
    const auto numel = numelOf(a);
    batched = batched || a.rank >= 3;
    if (!numel || *numel > INT32_MAX) return "CLBlast counts elements in 32 bits, and argument " + std::to_string(i) + " has more";
  }
  const auto m = f.number(Field::m), n = f.number(Field::n), batch = f.number(Field::batch);
  if (m && n && static_cast<double>(*m) * static_cast<double>(*n) * static_cast<double>(batched ? batch.value_or(1) : 1) > INT32_MAX)
    return "CLBlast counts elements in 32 bits, and the result has more";
  return {};
}

}  // namespace flagos::kde
