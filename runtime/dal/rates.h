// A device's measured rates, kept on disk by identity and build part, so that every run and every offline question
// predicts from the same numbers. Whoever measures stores once; the first stored value stays.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/dal/description.h"

namespace flagos::dal {

// Fills bandwidth_bps, flops_f32, copy_bps, launch_s, wait_s and rates_source from <cache dir>/rates.json. False: the
// file does not know this device (or is broken: then a new one replaces it).
bool loadRates(DeviceDescription&, const std::string& identity);
// What the bandwidth measurement touched stands beside it: few bytes may have come from a cache.
struct MeasuredRates { DeviceDescription rates; double measured_bytes = 0; };
// All rows of the file, or of a document's text (the rates.json of a recorded machine); only rates are filled. Empty if
// there is none or it is broken.
using RatesTable = std::map<std::string, MeasuredRates>;
RatesTable storedRates();
RatesTable readRates(std::string_view json_text);
// The document that `flagos doctor --record` writes: the rows of these identities only.
std::string ratesRecord(const std::vector<std::string>& identities);
// Rates of 0 are not stored. Does nothing where the file already knows the device. Locked between processes.
Result<void> storeRates(const DeviceDescription&, const std::string& identity, double measured_bytes = 0);

}  // namespace flagos::dal
