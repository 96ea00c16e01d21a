#include "runtime/opencl/describe.h"

namespace flagos::ocl {

bool isPocl(cl_device_id device) {
  char name[64] = {};
  clGetPlatformInfo(deviceValue<cl_platform_id>(device, CL_DEVICE_PLATFORM), CL_PLATFORM_NAME, sizeof name - 1, name, nullptr);
  return std::string_view(name) == "Portable Computing Language";
}

std::string deviceText(cl_device_id device, cl_device_info property) {
  size_t size = 0;
  if (clGetDeviceInfo(device, property, 0, nullptr, &size) != CL_SUCCESS || size == 0) return {};
  std::string text(size, '\0');
  if (clGetDeviceInfo(device, property, size, text.data(), nullptr) != CL_SUCCESS) return {};
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

dal::DeviceDescription describe(cl_device_id device) {
  dal::DeviceDescription d;
  d.name = deviceText(device, CL_DEVICE_NAME);
  d.vendor = deviceText(device, CL_DEVICE_VENDOR);
  const auto type = deviceValue<cl_device_type>(device, CL_DEVICE_TYPE);
  const bool unified = deviceValue<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
  if (type & CL_DEVICE_TYPE_CPU) d.kind = dal::Kind::cpu;
  else if (type & CL_DEVICE_TYPE_GPU) d.kind = unified ? dal::Kind::integrated : dal::Kind::discrete;
  else if (type & CL_DEVICE_TYPE_ACCELERATOR) d.kind = dal::Kind::npu;
  d.shared_memory = unified || d.kind == dal::Kind::cpu;
  const std::string extensions = " " + deviceText(device, CL_DEVICE_EXTENSIONS) + " ";
  d.fp16 = extensions.find(" cl_khr_fp16 ") != std::string::npos;
  d.fp64 = extensions.find(" cl_khr_fp64 ") != std::string::npos;
  d.compute_units = deviceValue<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  d.clock_mhz = deviceValue<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  d.memory_bytes = deviceValue<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  d.max_alloc_bytes = deviceValue<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  d.local_bytes = deviceValue<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  return d;
}

}  // namespace flagos::ocl
