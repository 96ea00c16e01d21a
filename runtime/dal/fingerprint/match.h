// Which product is this board? Every fact given may exclude models; a missing fact excludes nothing; a name never
// decides.
//   exact   = exactly one model fits every fact given
//   family  = several fit
//   unknown = none fits, or the id is not in the table
#pragma once
#include <optional>
#include <string>

#include "runtime/dal/fingerprint/database.h"
#include "runtime/dal/inventory.h"

namespace flagos::dal {

// Facts of one board; "" or nullopt = not known. Ids as hex with or without 0x, any case.
struct Board {
  std::string vendor, device, subsystem, revision;
  std::optional<double> memory_bytes;
  std::optional<double> bandwidth_gbps;   // measured by a copy test, decimal GB/s
  std::string firmware, driver, reported_name;
};

// `identity` is made of ids and the size class only, so it survives firmware, driver and measurement changes; `build`
// is firmware and driver. Pure; any thread.
Fingerprint match(const Database&, const Board&);

// The match of a live device with what a copy test measured on it. Only the upper bound counts: a busy or throttled
// card measures low, so a figure below half of a fitting model's nominal excludes nothing here and is said to be left
// out; one that no fitting model could reach is left out too. Identity and build are those without it: the same before
// and after.
Fingerprint matchMeasured(const Database&, const Board&, double measured_gbps);

// The conventional size (GiB) that a reported memory belongs to: 22.5 GiB of a 24 GiB card with ECC on is 24.
double memoryClassGib(double reported_bytes);

Json toJson(const Fingerprint&);
// A `flagos fingerprints match` input line. A field of a wrong type is an error that names it.
Result<Board> boardFromJson(const Json&);

}  // namespace flagos::dal
