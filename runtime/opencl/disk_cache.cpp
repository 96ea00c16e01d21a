#include "runtime/opencl/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"

namespace flagos::ocl {
namespace {

constexpr char kMagic[8] = {'F', 'L', 'A', 'G', 'O', 'S', 'B', '1'};
constexpr uint64_t kOtherBasis = 0x9e3779b97f4a7c15ull;
constexpr size_t kMaxBinary = size_t{256} << 20;

struct Header {
  char magic[8];
  uint64_t check, bytes, sum;
};

}  // namespace

uint64_t fnv1a(std::string_view text, uint64_t basis) noexcept {
  for (const unsigned char c : text) basis = (basis ^ c) * 1099511628211ull;
  return basis;
}

DiskCache::DiskCache(std::string folder, std::string identity)
    : folder_(std::move(folder)), identity_(std::move(identity)) {
  (void)makeDirs(folder_);
}

DiskCache::Key DiskCache::key(std::string_view text, std::string_view options) const noexcept {
  Key k{fnv1a(text, fnv1a(options, fnv1a(identity_))), fnv1a(text, fnv1a(options, fnv1a(identity_, kOtherBasis)))};
  return k;
}

std::string DiskCache::path(Key key) const {
  char name[32];
  std::snprintf(name, sizeof name, "/%016llx.bin", static_cast<unsigned long long>(key.name));
  return folder_ + name;
}

std::optional<std::string> DiskCache::load(Key key) const {
  auto file = readFile(path(key), kMaxBinary);
  if (!file) return std::nullopt;
  Header h;
  if (file->size() < sizeof h) return std::nullopt;
  std::memcpy(&h, file->data(), sizeof h);
  const std::string_view body = std::string_view(*file).substr(sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.check != key.check || h.bytes != body.size() || body.empty() ||
      h.sum != fnv1a(body))
    return std::nullopt;
  return std::string(body);
}

bool DiskCache::store(Key key, std::string_view binary) const {
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.check = key.check;
  h.bytes = binary.size();
  h.sum = fnv1a(binary);
  std::string file(reinterpret_cast<const char*>(&h), sizeof h);
  file += binary;
  return writeFileAtomic(path(key), file).ok();
}

void DiskCache::drop(Key key) const noexcept { ::unlink(path(key).c_str()); }

DiskCache::Lock::Lock(const std::string& path) noexcept : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  if (fd_ < 0) return;  // without the lock two processes may build the same program: slower, not wrong
  while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

DiskCache::Lock::~Lock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace flagos::ocl
