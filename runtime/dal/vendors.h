// What is known of a PCI vendor without any device table: a name to show and how its devices are classed.
#pragma once
#include <string>
#include <string_view>

namespace flagos::dal {

enum class Makes : unsigned char {
  gpu,         // graphics or GPGPU cards, also under class 1200
  npu,         // neural processors only
  both,        // the PCI class decides
  display,     // management and virtual displays: no compute
  other,
};

struct Vendor {
  std::string_view id;     // "1002"
  std::string_view name;   // "AMD"
  Makes makes;
  bool only_accelerators;  // every endpoint of this vendor that is no bridge, NIC, disk or sound function counts
};

const Vendor* findVendor(std::string_view id) noexcept;

}  // namespace flagos::dal
