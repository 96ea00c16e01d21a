// CLBlast as a candidate: what it asks beyond what every kernel of the gemm family does.
#pragma once
#include <string>

#include "runtime/dal/libraries.h"
#include "runtime/kde/facts.h"

namespace flagos::kde {

// "" or why CLBlast cannot run this call on this device.
std::string clblastIllegal(const Facts&);

// Whether libclblast.so.1 is on the device's machine: this one (FLAGOS_ROOT), if a driver answered for the device; unknown
// for a device that only the table describes.
dal::Presence clblastPresence(const dal::DeviceDescription&);

// While it lives, this thread takes it that the library is there or not: what explain tries, and tests.
class AssumeClblast {
 public:
  explicit AssumeClblast(dal::Presence) noexcept;
  ~AssumeClblast();
  AssumeClblast(const AssumeClblast&) = delete;
  AssumeClblast& operator=(const AssumeClblast&) = delete;

 private:
  const dal::Presence* before_;
  dal::Presence now_;
};

}  // namespace flagos::kde
