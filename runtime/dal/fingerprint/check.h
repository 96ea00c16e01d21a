// The validator of fingerprint files: what a contributor's entry must satisfy before it is matched against anyone's
// board.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace flagos::dal {

struct CheckError { std::string file; int line = 1; std::string reason; };

// Checks one file's text; errors in file order. Rules: fingerprints/README.md. Pure but for pci.ids, whose path may be
// "".
std::vector<CheckError> checkFingerprints(std::string_view json_text, const std::string& file,
                                          std::string_view pci_ids = {});
// Rules across files: one file per vendor, one spelling of a figure per model name.
std::vector<CheckError> checkTogether(const std::vector<std::pair<std::string, std::string>>& files);

}  // namespace flagos::dal
