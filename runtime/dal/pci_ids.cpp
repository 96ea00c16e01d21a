#include "runtime/dal/pci_ids.h"

#include <algorithm>

namespace flagos::dal {
namespace {

// What follows "1002  " up to the end of the line.
std::string nameAt(std::string_view text, size_t begin) {
  return std::string(text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin));
}

}  // namespace

std::string_view pciVendorSection(std::string_view ids, std::string_view vendor) {
  const std::string head = std::string(vendor) + "  ";
  size_t begin = 0;
  if (vendor.empty()) return {};
  if (ids.substr(0, head.size()) != head) {
    begin = ids.find("\n" + head);
    if (begin == std::string_view::npos) return {};
    ++begin;
  }
  size_t end = begin;
  while (true) {
    end = ids.find('\n', end);
    if (end == std::string_view::npos || end + 1 >= ids.size()) return ids.substr(begin);
    ++end;
    if (ids[end] != '\t' && ids[end] != '#' && ids[end] != '\n') return ids.substr(begin, end - begin);
  }
}

std::string pciVendorName(std::string_view ids, std::string_view vendor) {
  const auto section = pciVendorSection(ids, vendor);
  return section.empty() ? "" : nameAt(section, vendor.size() + 2);
}

std::string pciDeviceName(std::string_view ids, std::string_view vendor, std::string_view device) {
  const auto section = pciVendorSection(ids, vendor);
  const std::string line = "\n\t" + std::string(device) + "  ";
  const size_t at = device.empty() ? std::string_view::npos : section.find(line);
  return at == std::string_view::npos ? "" : nameAt(section, at + line.size());
}

}  // namespace flagos::dal
