// What the probes saw, before anything is concluded from it. Probes only add facts; merge.cpp draws the conclusions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/dal/inventory.h"
#include "runtime/dal/root.h"

namespace flagos::dal {

// A device node of the card. A card without any known node is not judged by nodes. Required: no driver can do without
// it (the render node); others only explain why no driver lists the card (/dev/kfd).
struct NodeFact { std::string path; NodeAccess access; bool required = true; };

// One PCI function of an accelerator, keyed by its address. Ids are lower-case hex without prefix, "" = not read.
struct Card {
  std::string pci;
  std::string vendor, device, subsystem, revision, class_code;   // "1002" "744c" "1da2:e471" "c8" "030000"
  std::string parent;                                            // SR-IOV: the physical function
  std::string kernel_driver;                                     // "amdgpu", "" = none bound
  bool in_sysfs = false;
  bool asleep = false;                                           // runtime_status says suspended: nothing else was read
  bool dead = false;                                             // config space reads all ones
  std::vector<NodeFact> nodes;
  std::optional<uint64_t> vram_total, vram_used, gtt_total, gtt_used;  // bytes
  std::optional<double> busy_percent;
  std::optional<bool> apu;                                       // the driver's own tables say so
  std::string product_name, vbios, firmware;
  uint32_t compute_units = 0, clock_mhz = 0;                     // KFD
  uint32_t gfx_target = 0;                                       // KFD: 110000 = gfx1100
};

// One device of one OpenCL platform. Indices are in the loader's order and stay valid for the runtime.
struct OpenClFacts {
  OpenClPlace place;
  std::string platform, platform_version;
  std::string name, vendor_name, driver_version, version, extensions, uuid, pci;
  std::string board_name;                                        // AMD: the product, where the name is "gfx1100"
  uint32_t nv_major = 0, nv_minor = 0;                           // NVIDIA: compute capability, 0.0 = not told
  std::string type = "GPU";                                      // GPU | CPU | ACCELERATOR | CUSTOM
  uint32_t vendor_id = 0;
  std::optional<bool> unified;                                   // CL_DEVICE_HOST_UNIFIED_MEMORY
  std::optional<bool> available;
  std::optional<uint64_t> global_bytes, max_alloc_bytes, local_bytes, free_bytes;
  uint32_t compute_units = 0, clock_mhz = 0, vector_width_float = 0;
  uint64_t fp64_config = 0, fp16_config = 0;
  std::optional<int> error;                                      // a call for this device failed with it
};

struct NvmlMemory { std::optional<uint64_t> total, used, free; };
struct NvmlSlice {
  std::string uuid, name;
  int gpu_instance = -1, compute_instance = -1;
  NvmlMemory memory;
  std::optional<double> busy_percent;
  std::string why_no_busy;
};
// The answers of a vendor's library (NVML, its look-alikes, DCMI), in NVML's words.
struct NvmlFacts {
  std::string vendor = "10de";                                   // whose library it was
  std::vector<std::string> links;                                // NVLink: the address at the other end, one each
  std::string uuid, name, pci, device_id, subsystem, vbios;
  NvmlMemory memory;
  std::optional<double> busy_percent;
  std::string why_no_busy, why_no_memory;
  bool mig = false;
  std::vector<NvmlSlice> slices;
};

struct Facts {
  std::vector<Card> cards;                    // by ascending address once all probes have run
  std::vector<OpenClFacts> opencl;
  std::vector<NvmlFacts> nvml;
  std::string nvml_driver;
  std::string opencl_why_nothing;             // repeated in the reason of each card that no driver lists
  bool wsl = false;
  std::vector<std::string> broken;            // recorded files that are no JSON: "file:line:column: reason"

  Card& card(const std::string& pci);         // found or added; the reference lives until the next card() call
  const Card* find(const std::string& pci) const;
};

// One probe = one file and one line in probes/list.cpp. Never throws; says in why_nothing what it looked for.
struct Probe { const char* name; ProbeReport (*run)(const Root&, Facts&); };
const std::vector<Probe>& probes();

}  // namespace flagos::dal
