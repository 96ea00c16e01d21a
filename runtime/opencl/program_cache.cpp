#include "runtime/opencl/program_cache.h"

#include "runtime/base/names.h"
#include "runtime/opencl/describe.h"
#include "runtime/opencl/error.h"
#include "runtime/opencl/fork_guard.h"

namespace flagos::ocl {
namespace {

std::string keyOf(std::string_view a, std::string_view b) {
  std::string key;
  key.reserve(a.size() + b.size() + 1);
  key.append(a).push_back('\0');
  key.append(b);
  return key;
}

std::string buildLog(cl_program program, cl_device_id device) {
  size_t size = 0;
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS || size < 2) return {};
  std::string log(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  while (!log.empty() && (log.back() == '\0' || log.back() == '\n')) log.pop_back();
  return log;
}

// A binary fits this device with this driver on this platform, and nothing else.
std::string programIdentity(cl_device_id device) {
  std::string identity = "1";  // format of what we keep
  for (const cl_device_info property :
       {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION, CL_DEVICE_EXTENSIONS})
    identity += '\0' + deviceText(device, property);
  const auto platform = deviceValue<cl_platform_id>(device, CL_DEVICE_PLATFORM);
  char version[256] = {};
  clGetPlatformInfo(platform, CL_PLATFORM_VERSION, sizeof version - 1, version, nullptr);
  return identity + '\0' + version;
}

// The program's binary for its only device; empty if the driver gives none.
std::string binaryOf(cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) != CL_SUCCESS || !size) return {};
  std::string binary(size, '\0');
  char* into = binary.data();
  if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof into, &into, nullptr) != CL_SUCCESS) return {};
  return binary;
}

}  // namespace

Keep keepOf(cl_device_id device) { return isPocl(device) ? Keep::object : Keep::executable; }

ProgramCacheImpl::ProgramCacheImpl(cl_context context, cl_device_id device, uint32_t index, std::string folder, Keep keep)
    : context_(context), device_(device), index_(index), keep_(keep),
      disk_(std::move(folder), programIdentity(device) + (keep == Keep::object ? " object" : "")) {}

ProgramCacheImpl::~ProgramCacheImpl() {
  for (auto& [key, entry] : kernels_) clReleaseKernel(entry->kernel.handle);
  for (auto& [key, program] : programs_)
    if (program->handle) clReleaseProgram(program->handle);
}

Result<const Kernel*> ProgramCacheImpl::kernel(std::string_view source, std::string_view function,
                                               std::string_view options) {
  return get(source, {}, true, function, options);
}

Result<const Kernel*> ProgramCacheImpl::kernelFromText(std::string_view key, std::string_view text,
                                                       std::string_view function, std::string_view options) {
  return get(key, text, false, function, options);
}

Result<const Kernel*> ProgramCacheImpl::get(std::string_view name, std::string_view text, bool compiled_in,
                                            std::string_view function, std::string_view options) {
  const std::string program_key = keyOf(name, options) + (compiled_in ? "" : "\1");
  const std::string kernel_key = keyOf(program_key, function);
  if (forkedAfterOpen())
    return fail("npu:" + std::to_string(index_) +
                    " was opened before this process was forked, and OpenCL does not survive fork",
                "start workers with the spawn method");
  {
    std::shared_lock lock(mutex_);
    if (const auto it = kernels_.find(kernel_key); it != kernels_.end()) return &it->second->kernel;
  }
  Program* program = this->program(program_key);
  std::unique_lock building(program->mutex);
  ensureBuilt(*program, name, text, compiled_in, options);
  if (program->error) return *program->error;
  {
    std::shared_lock lock(mutex_);
    if (const auto it = kernels_.find(kernel_key); it != kernels_.end()) return &it->second->kernel;
  }
  const std::string function_name(function);
  cl_int status = CL_SUCCESS;
  cl_kernel handle = clCreateKernel(program->handle, function_name.c_str(), &status);
  if (!handle && program->from_disk) {
    // The driver took the binary and yet cannot use it: build afresh and replace the file.
    disk_.drop(*program->from_disk);
    clReleaseProgram(program->handle);
    program->handle = nullptr;
    program->from_disk.reset();
    program->built = false;
    ensureBuilt(*program, name, text, compiled_in, options);
    if (program->error) return *program->error;
    handle = clCreateKernel(program->handle, function_name.c_str(), &status);
  }
  if (!handle) return clError("clCreateKernel", status, std::string(name) + ".cl, function " + function_name);
  auto entry = std::make_unique<Entry>();
  entry->kernel.handle = handle;
  entry->kernel.name = internName(function);
  entry->kernel.owner = &entry->owner;
  const Kernel* kernel = &entry->kernel;
  std::unique_lock lock(mutex_);
  kernels_[kernel_key] = std::move(entry);
  return kernel;
}

ProgramCacheImpl::Program* ProgramCacheImpl::program(const std::string& key) {
  std::unique_lock lock(mutex_);
  auto& slot = programs_[key];
  if (!slot) slot = std::make_unique<Program>();
  return slot.get();
}

void ProgramCacheImpl::ensureBuilt(Program& program, std::string_view name, std::string_view text, bool compiled_in,
                                   std::string_view options) {
  if (program.built) return;
  program.built = true;
  if (compiled_in) text = kernelSource(name);
  if (text.empty())
    program.error = fail("no OpenCL source named '" + std::string(name) + "' is compiled in", "rebuild FlagOS");
  else
    build(program, name, text, options);
}

Error ProgramCacheImpl::buildError(cl_program handle, cl_int status, std::string_view name,
                                   std::string_view options) const {
  Error error = clError(keep_ == Keep::object ? "clCompileProgram" : "clBuildProgram", status,
                        std::string(name) + ".cl (options '" + std::string(options) + "')");
  if (const std::string log = buildLog(handle, device_); !log.empty()) error.what += ":\n" + log;
  return error;
}

// An executable of `handle`, which is given up: itself, or what it links to. Null, with why in `status`, if there is none.
cl_program ProgramCacheImpl::finish(cl_program handle, std::string_view options, cl_int& status) const {
  if (keep_ == Keep::executable) {
    status = clBuildProgram(handle, 1, &device_, std::string(options).c_str(), nullptr, nullptr);
    if (status == CL_SUCCESS) return handle;
    clReleaseProgram(handle);
    return nullptr;
  }
  const cl_program linked = clLinkProgram(context_, 1, &device_, nullptr, 1, &handle, nullptr, nullptr, &status);
  clReleaseProgram(handle);
  if (linked && status != CL_SUCCESS) clReleaseProgram(linked);
  return status == CL_SUCCESS ? linked : nullptr;
}

bool ProgramCacheImpl::fromDisk(Program& program, DiskCache::Key key, std::string_view options) {
  const auto binary = disk_.load(key);
  if (!binary) return false;
  const auto* bytes = reinterpret_cast<const unsigned char*>(binary->data());
  const size_t size = binary->size();
  cl_int loaded = CL_SUCCESS, status = CL_SUCCESS;
  cl_program handle = clCreateProgramWithBinary(context_, 1, &device_, &size, &bytes, &loaded, &status);
  if (handle && (status != CL_SUCCESS || loaded != CL_SUCCESS)) {
    clReleaseProgram(handle);
    handle = nullptr;
  }
  program.handle = handle ? finish(handle, options, status) : nullptr;
  if (!program.handle) {
    disk_.drop(key);  // the file is whole but the driver does not want it: it is replaced by what we build now
    return false;
  }
  program.from_disk = key;
  disk_hits_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void ProgramCacheImpl::build(Program& program, std::string_view name, std::string_view text, std::string_view options) {
  std::string whole(kernelSource("prelude"));
  whole += "\n#line 1 \"" + std::string(name) + ".cl\"\n";
  whole += text;
  const DiskCache::Key key = disk_.key(whole, options);
  if (fromDisk(program, key, options)) return;
  const DiskCache::Lock lock(disk_.lockPath());
  if (fromDisk(program, key, options)) return;  // another process was faster
  const char* source = whole.c_str();
  const size_t size = whole.size();
  cl_int status = CL_SUCCESS;
  const cl_program handle = clCreateProgramWithSource(context_, 1, &source, &size, &status);
  if (!handle) {
    program.error = clError("clCreateProgramWithSource", status, std::string(name) + ".cl");
    return;
  }
  builds_.fetch_add(1, std::memory_order_relaxed);
  const std::string words(options);
  status = keep_ == Keep::object
               ? clCompileProgram(handle, 1, &device_, words.c_str(), 0, nullptr, nullptr, nullptr, nullptr)
               : clBuildProgram(handle, 1, &device_, words.c_str(), nullptr, nullptr);
  if (status != CL_SUCCESS) {
    program.error = buildError(handle, status, name, options);
    clReleaseProgram(handle);
    return;
  }
  if (const std::string binary = binaryOf(handle); !binary.empty()) disk_.store(key, binary);
  program.handle = keep_ == Keep::object ? finish(handle, options, status) : handle;
  if (!program.handle) program.error = clError("clLinkProgram", status, std::string(name) + ".cl");
}

}  // namespace flagos::ocl
