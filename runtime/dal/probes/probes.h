// The probes, one file each. Order and registration: list.cpp.
#pragma once
#include "runtime/dal/facts.h"

namespace flagos::dal {

ProbeReport probePci(const Root&, Facts&);
ProbeReport probeOpenCl(const Root&, Facts&);
ProbeReport probeDrm(const Root&, Facts&);
ProbeReport probeAccel(const Root&, Facts&);
ProbeReport probeKfd(const Root&, Facts&);
ProbeReport probeNvml(const Root&, Facts&);
ProbeReport probeAscend(const Root&, Facts&);
ProbeReport probeWsl(const Root&, Facts&);

// One function's cached facts from /sys/bus/pci/devices; nullopt if it is not there, or is not `wanted` by its class
// and ids, which are read first: a machine has many more bridges than accelerators.
std::optional<Card> readPciCard(const Root&, const std::string& address, bool (*wanted)(const Card&) = nullptr);

// Texts of drivers and records as they may be shown on a terminal: control characters become spaces.
void makePrintable(std::string&);

// Fills `out` from the ICD loader of this machine (dlopen, no context). Returns "" or why there is nothing.
std::string askOpenClLoader(std::vector<OpenClFacts>& out);
// Fills `out` from a recorded opencl.json's text. Returns "" or why there is nothing.
std::string readOpenClRecord(const std::string& text, std::vector<OpenClFacts>& out);
// Fills facts.nvml and facts.nvml_driver from a record's text; the live libraries: vendor_library.h.
std::string readNvmlRecord(const std::string& text, Facts&);
Json nvmlRecord(const Facts&);

// The same facts as a record, for `flagos doctor --record`.
Json openClRecord(const std::vector<OpenClFacts>&, const std::string& why_nothing);

}  // namespace flagos::dal
