// Built programs on disk, one file each under <cache dir>/kernels. A file names in its header the device, driver, source
// and options it was made for and the checksum of its content; anything that does not fit is treated as absent and
// replaced. Written beside and renamed over, so a reader never sees half a file.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace flagos::ocl {

uint64_t fnv1a(std::string_view text, uint64_t basis = 14695981039346656037ull) noexcept;

class DiskCache {
 public:
  // `identity`: device and driver in words; part of every key.
  DiskCache(std::string folder, std::string identity);

  struct Key { uint64_t name, check; };  // file name, and a second hash that guards against a collision of the first
  Key key(std::string_view text, std::string_view options) const noexcept;

  std::optional<std::string> load(Key key) const;
  // Failure (no space, no rights) is silent: the next process builds again.
  bool store(Key key, std::string_view binary) const;
  void drop(Key key) const noexcept;
  std::string path(Key key) const;

  // Held while a program is compiled, so that two processes do not compile the same one at the same time.
  class Lock {
   public:
    explicit Lock(const std::string& path) noexcept;
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
   private:
    int fd_;
  };
  std::string lockPath() const { return folder_ + "/build.lock"; }

 private:
  std::string folder_;
  std::string identity_;
};

}  // namespace flagos::ocl
