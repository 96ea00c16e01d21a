// What the driver itself says of a device, as the cost model wants it.
#pragma once
#include <CL/cl.h>

#include <string>

#include "runtime/dal/description.h"

namespace flagos::ocl {

// Facts only (names, limits, capabilities); rates stay 0.
dal::DeviceDescription describe(cl_device_id device);
// One string property, trimmed; "" if the driver refuses.
std::string deviceText(cl_device_id device, cl_device_info property);
bool isPocl(cl_device_id device);
template <class T>
T deviceValue(cl_device_id device, cl_device_info property, T otherwise = T{}) {
  T value{};
  return clGetDeviceInfo(device, property, sizeof value, &value, nullptr) == CL_SUCCESS ? value : otherwise;
}

}  // namespace flagos::ocl
