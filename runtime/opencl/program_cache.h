// Internal: the program cache of one device.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/opencl/disk_cache.h"
#include "runtime/opencl/program.h"
#include "runtime/opencl/queue_impl.h"

namespace flagos::ocl {

// What is kept on disk. Asked for an executable, PoCL compiles every kernel of it again, and no launch of the process gets
// on meanwhile; the object before the link is there at once. Other drivers have the executable's machine code at hand.
enum class Keep : uint8_t { object, executable };
Keep keepOf(cl_device_id device);

class ProgramCacheImpl final : public ProgramCache {
 public:
  // Programs are kept under `folder`.
  ProgramCacheImpl(cl_context context, cl_device_id device, uint32_t index, std::string folder, Keep keep);
  ~ProgramCacheImpl() override;

  Result<const Kernel*> kernel(std::string_view source, std::string_view function, std::string_view options) override;
  Result<const Kernel*> kernelFromText(std::string_view key, std::string_view text, std::string_view function,
                                       std::string_view options) override;
  uint64_t builds() const noexcept override { return builds_.load(std::memory_order_relaxed); }
  uint64_t diskHits() const noexcept override { return disk_hits_.load(std::memory_order_relaxed); }

 private:
  struct Program {
    std::mutex mutex;  // held while it is built; others wait here
    bool built = false;
    cl_program handle = nullptr;
    std::optional<Error> error;
    std::optional<DiskCache::Key> from_disk;  // set if the binary came from a file
  };
  struct Entry {
    Kernel kernel;
    KernelOwner owner;
  };

  Result<const Kernel*> get(std::string_view name, std::string_view text, bool compiled_in, std::string_view function,
                            std::string_view options);
  Program* program(const std::string& key);
  // Under the program's mutex.
  void ensureBuilt(Program& program, std::string_view name, std::string_view text, bool compiled_in,
                   std::string_view options);
  void build(Program& program, std::string_view name, std::string_view text, std::string_view options);
  cl_program finish(cl_program handle, std::string_view options, cl_int& status) const;
  bool fromDisk(Program& program, DiskCache::Key key, std::string_view options);
  Error buildError(cl_program handle, cl_int status, std::string_view name, std::string_view options) const;

  const cl_context context_;
  const cl_device_id device_;
  const uint32_t index_;
  const Keep keep_;
  DiskCache disk_;
  std::shared_mutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Entry>> kernels_;    // name \0 options \0 function
  std::unordered_map<std::string, std::unique_ptr<Program>> programs_;  // name \0 options
  std::atomic<uint64_t> builds_{0}, disk_hits_{0};
};

}  // namespace flagos::ocl
