// Measures a device's rates for the cost model: once per device and driver, then from disk, so that every run predicts
// (and therefore routes) from the same numbers.
#pragma once
#include <string>

#include "runtime/dal/description.h"
#include "runtime/opencl/device.h"

namespace flagos::ocl {

// Fills the rates of `description` from disk, or by a measurement of a fraction of a second. What cannot be measured
// stays 0 = unknown.
void fillRates(Device& device, dal::DeviceDescription& description, const std::string& identity);
// The measurement itself. False if it failed or the machine was too busy for the numbers to be kept.
// `bandwidth_bytes` gets what the copy test touched.
bool measureRates(Device& device, dal::DeviceDescription& description, double* bandwidth_bytes = nullptr);

}  // namespace flagos::ocl
