// The machine as files, under an injectable root: "/" live, or a recorded folder (DIR/sys, DIR/proc, DIR/dev, DIR/etc).
// Every reader of the DAL goes through it, so a bug report can be replayed. Reads only; every read is bounded, never
// blocks on a pipe, stays inside the folder whatever its links say, and never throws. Not thread-safe (caches
// nodes.tsv); one per enumeration.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace flagos::dal {

// What the machine's user may do with a device node.
struct NodeAccess {
  bool exists = false;
  bool judged = false;     // false: nothing is known of its mode, so nothing is held against it
  bool allowed = true;     // read and write
  std::string why;         // if not allowed: mode, owner and the group that is missing
};

class Root {
 public:
  explicit Root(std::string dir);
  bool live() const noexcept { return live_; }
  const std::string& dir() const noexcept { return dir_; }
  // Where the machine's path lies on this disk.
  std::string at(const std::string& path) const { return dir_ + path; }

  // The file's text without trailing white space; nullopt if it cannot be read (missing, EPERM while asleep, ...).
  std::optional<std::string> text(const std::string& path, size_t max_bytes = 4096) const;
  // The same without trimming, for binary files such as a PCI config space.
  std::optional<std::string> bytes(const std::string& path, size_t max_bytes) const;
  std::optional<uint64_t> number(const std::string& path) const;      // decimal, or hexadecimal after 0x
  std::vector<std::string> list(const std::string& path) const;       // names, sorted; empty if it is no folder
  bool exists(const std::string& path) const;
  // Last component of a symbolic link's target (a plain file's text stands in for a link in recorded folders).
  std::optional<std::string> linkName(const std::string& path) const;
  // The link chain resolved to the machine's own path ("/sys/devices/pci0000:00/..."), or nullopt.
  std::optional<std::string> resolve(const std::string& path) const;
  NodeAccess node(const std::string& path) const;

  // Tests watch what is read (a sleeping card must be left alone).
  std::function<void(const std::string& path)> on_read;

 private:
  std::optional<std::string> read(const std::string& path, size_t max_bytes) const;   // not watched
  int open(const std::string& path, int flags) const;
  struct Recorded { uint32_t mode = 0; int64_t uid = 0, gid = 0; };
  void loadNodes() const;
  std::string dir_;        // "" for "/"
  bool live_;
  std::shared_ptr<const int> base_;   // the folder, opened once: two system calls less for each of thousands of reads
  mutable bool loaded_ = false;
  mutable std::map<std::string, Recorded> nodes_;
  mutable int64_t uid_ = 1000, gid_ = -1;
  mutable std::vector<int64_t> groups_;
};

}  // namespace flagos::dal
