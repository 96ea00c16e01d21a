// Kernels by name. Source files (*.cl) are compiled into the library as text; built programs are cached on disk by
// device identity, build part (driver version), source hash and options. The cache is locked between processes and
// heals itself: a broken or foreign entry is rebuilt and replaced.
#pragma once
#include <CL/cl.h>

#include <cstdint>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos::ocl {

// A cl_kernel shared by all threads; the queue clones or locks it per launch (clSetKernelArg is not thread-safe).
struct Kernel {
  cl_kernel handle = nullptr;
  uint32_t name = 0;           // NameId of the kernel function
  void* owner = nullptr;
};

class ProgramCache {
 public:
  virtual ~ProgramCache() = default;
  // `source` is the .cl file's name without suffix; `options` are -D defines. Built on first use, then a hash lookup.
  // The error carries the compiler's log. Any thread.
  virtual Result<const Kernel*> kernel(std::string_view source, std::string_view function, std::string_view options = {}) = 0;
  // For source text made at run time (pointwise expressions).
  virtual Result<const Kernel*> kernelFromText(std::string_view key, std::string_view text, std::string_view function,
                                               std::string_view options = {}) = 0;
  virtual uint64_t builds() const noexcept = 0;       // programs compiled from source in this process
  virtual uint64_t diskHits() const noexcept = 0;
};

// Text of a compiled-in .cl file, or empty.
std::string_view kernelSource(std::string_view name) noexcept;

}  // namespace flagos::ocl
