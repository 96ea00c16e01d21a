#include "runtime/opencl/program_cache.h"

#include "runtime/base/names.h"
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

}  // namespace

ProgramCacheImpl::ProgramCacheImpl(cl_context context, cl_device_id device, uint32_t index)
    : context_(context), device_(device), index_(index) {}

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
  {
    std::shared_lock lock(mutex_);
    if (const auto it = kernels_.find(kernel_key); it != kernels_.end()) return &it->second->kernel;
  }
  if (forkedAfterOpen())
    return fail("npu:" + std::to_string(index_) + " was opened before this process was forked, and OpenCL does not survive fork",
                "start workers with the spawn method");
  Program* program = nullptr;
  {
    std::unique_lock lock(mutex_);
    auto& slot = programs_[program_key];
    if (!slot) slot = std::make_unique<Program>();
    program = slot.get();
  }
  std::unique_lock building(program->mutex);
  if (!program->built) {
    if (compiled_in) text = kernelSource(name);
    if (text.empty())
      program->error = fail("no OpenCL source named '" + std::string(name) + "' is compiled in", "rebuild FlagOS");
    else
      build(*program, name, text, options);
    program->built = true;
  }
  if (program->error) return *program->error;
  std::unique_lock lock(mutex_);
  auto& slot = kernels_[kernel_key];
  if (!slot) {
    cl_int status = CL_SUCCESS;
    const cl_kernel handle = clCreateKernel(program->handle, std::string(function).c_str(), &status);
    if (!handle) {
      kernels_.erase(kernel_key);
      return clError("clCreateKernel", status, std::string(name) + ".cl, function " + std::string(function));
    }
    slot = std::make_unique<Entry>();
    slot->kernel.handle = handle;
    slot->kernel.name = internName(function);
    slot->kernel.owner = &slot->owner;
  }
  return &slot->kernel;
}

void ProgramCacheImpl::build(Program& program, std::string_view name, std::string_view text, std::string_view options) {
  const std::string_view prelude = kernelSource("prelude");
  const std::string line = "\n#line 1 \"" + std::string(name) + ".cl\"\n";
  const char* parts[] = {prelude.data(), line.data(), text.data()};
  const size_t sizes[] = {prelude.size(), line.size(), text.size()};
  cl_int status = CL_SUCCESS;
  const bool has_prelude = !prelude.empty();
  program.handle = clCreateProgramWithSource(context_, has_prelude ? 3 : 2, parts + (has_prelude ? 0 : 1),
                                             sizes + (has_prelude ? 0 : 1), &status);
  if (!program.handle) {
    program.error = clError("clCreateProgramWithSource", status, std::string(name) + ".cl");
    return;
  }
  builds_.fetch_add(1, std::memory_order_relaxed);
  status = clBuildProgram(program.handle, 1, &device_, std::string(options).c_str(), nullptr, nullptr);
  if (status == CL_SUCCESS) return;
  Error error = clError("clBuildProgram", status, std::string(name) + ".cl (options '" + std::string(options) + "')");
  if (const std::string log = buildLog(program.handle, device_); !log.empty()) error.what += ":\n" + log;
  program.error = std::move(error);
}

}  // namespace flagos::ocl
