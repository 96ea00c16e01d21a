#include "runtime/dal/vendors.h"

namespace flagos::dal {

const Vendor* findVendor(std::string_view id) noexcept {
  static constexpr Vendor rows[] = {
      {"1002", "AMD", Makes::gpu, false},          {"1022", "AMD", Makes::both, false},
      {"10de", "NVIDIA", Makes::gpu, false},       {"8086", "Intel", Makes::both, false},
      {"1ed5", "Moore Threads", Makes::gpu, true}, {"9999", "MetaX", Makes::gpu, true},
      {"1d94", "Hygon", Makes::gpu, false},        {"1e3e", "Iluvatar", Makes::gpu, true},
      {"1ee0", "Biren", Makes::gpu, true},         {"1ded", "T-Head", Makes::gpu, false},
      {"1e36", "Enflame", Makes::npu, true},       {"cabc", "Cambricon", Makes::npu, true},
      {"19e5", "Huawei", Makes::both, false},      {"1da3", "Habana", Makes::npu, true},
      {"1d0f", "AWS", Makes::npu, false},          {"1ae0", "Google", Makes::npu, false},
      {"1e52", "Tenstorrent", Makes::npu, true},   {"17cb", "Qualcomm", Makes::npu, false},
      {"1d22", "Kunlunxin", Makes::npu, true},
      // Displays of management controllers and virtual machines: of class 03, but they compute nothing.
      {"1a03", "ASPEED", Makes::display, false},   {"102b", "Matrox", Makes::display, false},
      {"1013", "Cirrus Logic", Makes::display, false}, {"1234", "QEMU", Makes::display, false},
      {"1af4", "Virtio", Makes::display, false},   {"1b36", "Red Hat", Makes::display, false},
      {"15ad", "VMware", Makes::display, false},   {"80ee", "VirtualBox", Makes::display, false},
      {"1414", "Microsoft", Makes::display, false},
  };
  for (const Vendor& v : rows)
    if (v.id == id) return &v;
  return nullptr;
}

}  // namespace flagos::dal
