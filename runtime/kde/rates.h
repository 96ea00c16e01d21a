// A device's measured rates, kept on disk by identity and build part, so that every run and every offline question predicts
// from the same numbers. Whoever measures stores once; the first stored value stays.
#pragma once
#include <string>

#include "runtime/base/result.h"
#include "runtime/dal/description.h"

namespace flagos::kde {

// Fills bandwidth_bps, flops_f32, copy_bps, launch_s, wait_s and rates_source from <cache dir>/rates.json. False: the file
// does not know this device (or is broken: then a new one replaces it).
bool loadRates(dal::DeviceDescription&, const std::string& identity);
// Rates of 0 are not stored. Does nothing where the file already knows the device. Locked between processes.
Result<void> storeRates(const dal::DeviceDescription&, const std::string& identity);

}  // namespace flagos::kde
