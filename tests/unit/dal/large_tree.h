// A machine of many cards for counting and timing: eight host bridges, each with a switch of eight downstream ports, an
// amdgpu card below each port, every fourth asleep. Written below a folder of the caller's.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace large_tree {

constexpr int kBridges = 8, kPorts = 8;

inline void put(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

inline std::string function(const std::string& parent, const std::string& root, const std::string& bdf, const char* cls,
                            const char* vendor, const char* device) {
  const std::string dir = parent + "/" + bdf;
  std::filesystem::create_directories(root + dir + "/power");
  put(root + dir + "/class", std::string(cls) + "\n");
  put(root + dir + "/vendor", std::string(vendor) + "\n");
  put(root + dir + "/device", std::string(device) + "\n");
  put(root + dir + "/subsystem_vendor", "0x1da2\n");
  put(root + dir + "/subsystem_device", "0xe471\n");
  put(root + dir + "/revision", "0xc8\n");
  put(root + dir + "/numa_node", "0\n");
  put(root + dir + "/current_link_speed", "16.0 GT/s PCIe\n");
  put(root + dir + "/current_link_width", "16\n");
  put(root + dir + "/max_link_speed", "16.0 GT/s PCIe\n");
  put(root + dir + "/max_link_width", "16\n");
  put(root + dir + "/power/runtime_status", "active\n");
  put(root + dir + "/config", std::string(64, '\x01'));
  std::filesystem::create_symlink("../../.." + dir.substr(4), root + "/sys/bus/pci/devices/" + bdf);
  return dir;
}

// Returns the number of cards.
inline int write(const std::string& root) {
  std::filesystem::create_directories(root + "/sys/bus/pci/devices");
  std::filesystem::create_directories(root + "/sys/class/drm");
  std::filesystem::create_directories(root + "/dev/dri");
  std::filesystem::create_directories(root + "/proc/self");
  put(root + "/proc/self/status", "Uid:\t1000\t1000\nGid:\t1000\t1000\nGroups:\t109\n");
  put(root + "/proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n");
  std::string nodes, devices;
  int n = 0;
  for (int b = 0; b < kBridges; ++b) {
    char host[32], port[32], up[32];
    std::snprintf(host, sizeof host, "pci0000:%02x", b * 32);
    std::snprintf(port, sizeof port, "0000:%02x:01.0", b * 32);
    std::snprintf(up, sizeof up, "0000:%02x:00.0", b * 32 + 1);
    const std::string top = std::string("/sys/devices/") + host;
    std::filesystem::create_directories(root + top);
    const std::string root_port = function(top, root, port, "0x060400", "0x1022", "0x1483");
    const std::string upstream = function(root_port, root, up, "0x060400", "0x1000", "0xc030");
    for (int p = 0; p < kPorts; ++p, ++n) {
      char down[32], card[32], render[32];
      std::snprintf(down, sizeof down, "0000:%02x:%02x.0", b * 32 + 2, p);
      std::snprintf(card, sizeof card, "0000:%02x:00.0", b * 32 + 3 + p);
      std::snprintf(render, sizeof render, "renderD%d", 128 + n);
      const std::string below = function(upstream, root, down, "0x060400", "0x1000", "0xc030");
      const std::string dir = function(below, root, card, "0x030000", "0x1002", "0x744c");
      std::filesystem::create_directories(root + dir + "/drm/" + render);
      std::filesystem::create_symlink("../../../bus/pci/drivers/amdgpu", root + dir + "/driver");
      put(root + dir + "/mem_info_vram_total", "25753026560\n");
      put(root + dir + "/mem_info_vram_used", "1048576\n");
      put(root + dir + "/gpu_busy_percent", "3\n");
      put(root + dir + "/vbios_version", "113-1\n");
      if (n % 4 == 3) put(root + dir + "/power/runtime_status", "suspended\n");
      put(root + "/dev/dri/" + render, "");
      nodes += std::string("/dev/dri/") + render + "\t0660\t0\t109\n";
      devices += std::string(n ? "," : "") +
                 R"({"CL_DEVICE_NAME":"gfx1100","CL_DEVICE_TYPE":"GPU","CL_DEVICE_VENDOR_ID":4098,)" +
                 R"("CL_DEVICE_VERSION":"OpenCL 2.0","CL_DEVICE_PCI_BUS_INFO_KHR":")" + card + R"("})";
    }
  }
  put(root + "/nodes.tsv", nodes);
  put(root + "/opencl.json", R"({"platforms":[{"name":"AMD","version":"OpenCL 2.1","devices":[)" + devices + "]}]}");
  return n;
}

}  // namespace large_tree
