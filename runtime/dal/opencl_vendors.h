// Where the OpenCL loader (ocl-icd) looks for its drivers, so that a message names the place that was really searched.
// Threads: any, while nobody changes the environment.
#pragma once
#include <cstdlib>
#include <string>

namespace flagos::dal {

inline constexpr const char* kOpenClVendors = "/etc/OpenCL/vendors";

// OCL_ICD_VENDORS, else OPENCL_VENDOR_PATH, replaces the system's folder; it may also name one .icd file or a library.
struct OpenClVendors {
  std::string path = kOpenClVendors;
  std::string variable;   // "" = none is set

  // "/etc/OpenCL/vendors", or "/opt/icd (set by OCL_ICD_VENDORS)".
  std::string text() const { return variable.empty() ? path : path + " (set by " + variable + ")"; }
};

inline OpenClVendors openClVendors() {
  for (const char* name : {"OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"})
    if (const char* v = std::getenv(name); v && *v) return {v, name};
  return {};
}

}  // namespace flagos::dal
