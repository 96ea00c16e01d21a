// A machine as a folder. What to copy is not listed anywhere: enumeration runs once while every path it looks at is
// noted, so a new probe is recorded without a line here.
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <set>
#include <sstream>

#include "runtime/base/paths.h"
#include "runtime/dal/facts.h"
#include "runtime/dal/inventory.h"
#include "runtime/dal/acs.h"
#include "runtime/dal/merge.h"
#include "runtime/dal/pci_ids.h"
#include "runtime/dal/probes/probes.h"
#include "runtime/dal/rates.h"
#include "runtime/dal/topology.h"

namespace flagos::dal {
namespace {

constexpr size_t kMaxFile = 64u << 10;

// Only these lines of these files are of any use; the rest is nobody's business.
std::string filtered(const std::string& path, const std::string& text) {
  std::vector<std::string> keep;
  if (path.size() > 7 && path.compare(path.size() - 7, 7, "/config") == 0) return withoutSerialNumber(text);
  if (path == "/proc/self/status") keep = {"Uid:", "Gid:", "Groups:"};
  else if (path == "/proc/meminfo") keep = {"MemTotal:", "MemAvailable:"};
  else if (path == "/proc/cpuinfo") keep = {"model name"};
  else return text;
  std::istringstream lines(text);
  std::string out;
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);)
    for (const std::string& k : keep)
      if (line.compare(0, k.size(), k) == 0 && seen.insert(k).second) out += line + "\n";
  return out;
}

class Recorder {
 public:
  explicit Recorder(std::string dir) : dir_(std::move(dir)) {}

  // Recreates one path: each symbolic link on the way as a relative link, then the file, folder or node itself.
  void add(const std::string& path, int depth = 0) {
    if (error_ || depth > 40 || !done_.insert(path).second) return;
    if (path.rfind("/proc/self/", 0) == 0) {
      // The link would carry this process's number, which means nothing elsewhere.
      if (const auto bytes = Root("/").bytes(path, kMaxFile)) write(path, filtered(path, *bytes));
      return;
    }
    std::string at;
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, '/');) {
      if (part.empty() || part == ".") continue;
      if (part == "..") { at = at.substr(0, at.rfind('/')); continue; }
      const std::string here = at + "/" + part;
      struct stat s;
      if (::lstat(here.c_str(), &s) != 0) return;
      if (S_ISLNK(s.st_mode)) {
        char buf[PATH_MAX];
        const ssize_t n = ::readlink(here.c_str(), buf, sizeof buf);
        if (n <= 0) return;
        const std::string target(buf, static_cast<size_t>(n));
        const std::string absolute = target[0] == '/' ? target : at + "/" + target;
        link(here, target);
        std::string rest;
        std::getline(parts, rest, '\0');
        add(normal(absolute) + (rest.empty() ? "" : "/" + rest), depth + 1);
        return;
      }
      at = here;
    }
    leaf(at.empty() ? "/" : at);
  }

  std::string nodes() const { return nodes_; }
  Result<void> result() const { return error_ ? Result<void>(*error_) : Result<void>(); }
  void write(const std::string& path, const std::string& bytes) {
    const std::string to = dir_ + path;
    if (auto made = makeDirs(to.substr(0, to.rfind('/'))); !made) { error_ = made.error(); return; }
    if (auto wrote = writeFileAtomic(to, bytes, 0644); !wrote) error_ = wrote.error();
  }

 private:
  static std::string normal(const std::string& path) {
    std::vector<std::string> stack;
    std::istringstream parts(path);
    for (std::string part; std::getline(parts, part, '/');) {
      if (part.empty() || part == ".") continue;
      if (part == "..") { if (!stack.empty()) stack.pop_back(); } else stack.push_back(part);
    }
    std::string out;
    for (const std::string& s : stack) out += "/" + s;
    return out;
  }

  void link(const std::string& here, const std::string& target) {
    const std::string to = dir_ + here;
    if (auto made = makeDirs(to.substr(0, to.rfind('/'))); !made) { error_ = made.error(); return; }
    std::string relative = target;
    if (target[0] == '/') {
      relative.clear();
      for (auto p = here.find('/', 1); p != std::string::npos; p = here.find('/', p + 1)) relative += "../";
      relative += target.substr(1);
    }
    (void)!::symlink(relative.c_str(), to.c_str());  // already there: another path led through it
  }

  void leaf(const std::string& path) {
    struct stat s;
    if (::lstat(path.c_str(), &s) != 0) return;
    if (S_ISDIR(s.st_mode)) {
      if (auto made = makeDirs(dir_ + path); !made) error_ = made.error();
    } else if (S_ISCHR(s.st_mode)) {
      // An access list may grant what the mode denies: then the mode is widened, so that replay gives the same answer.
      const bool granted = ::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
      const bool by_mode = ::geteuid() == 0 || s.st_uid == ::geteuid() || inGroup(s.st_gid) || (s.st_mode & 06) == 06;
      char row[64];
      std::snprintf(row, sizeof row, "\t%04o\t%u\t%u\n", (s.st_mode & 07777) | (granted && !by_mode ? 06u : 0u),
                    s.st_uid, s.st_gid);
      nodes_ += path + row;
      write(path, "");
    } else if (S_ISREG(s.st_mode)) {
      const Root live("/");
      if (const auto bytes = live.bytes(path, kMaxFile)) write(path, filtered(path, *bytes));
    }
  }

  static bool inGroup(gid_t gid) {
    gid_t groups[256];
    const int n = ::getgroups(256, groups);
    return gid == ::getegid() || (n > 0 && std::find(groups, groups + n, gid) != groups + n);
  }

  std::string dir_, nodes_;
  std::set<std::string> done_;
  std::optional<Error> error_;
};

}  // namespace

Result<void> recordMachine(const std::string& dir) {
  if (auto made = makeDirs(dir); !made) return made.error();
  std::set<std::string> paths{"/proc/self/status", "/proc/cpuinfo", "/proc/meminfo", "/etc/os-release",
                              "/etc/OpenCL/vendors"};
  Root root("/");
  root.on_read = [&](const std::string& p) { paths.insert(p); };
  Facts facts;
  for (const Probe& p : probes()) (void)p.run(root, facts);
  Inventory inventory;
  inventory.devices = mergeDevices(root, facts);
  inventory.fabric = fabricOf(facts);
  (void)readTopology(root, inventory);
  for (const std::string& f : root.list("/etc/OpenCL/vendors")) paths.insert("/etc/OpenCL/vendors/" + f);
  Recorder recorder(dir);
  for (const std::string& p : paths)
    if (p != kPciIds) recorder.add(p);
  recorder.write("/nodes.tsv", recorder.nodes());
  recorder.write("/opencl.json", dump(openClRecord(facts.opencl, facts.opencl_why_nothing), 2) + "\n");
  std::vector<std::string> measured;
  for (const Device& d : inventory.devices) measured.push_back(d.fingerprint.identity + d.fingerprint.build);
  recorder.write("/rates.json", ratesRecord(measured));
  if (!facts.nvml.empty()) recorder.write("/nvml.json", dump(nvmlRecord(facts), 2) + "\n");
  return recorder.result();
}

}  // namespace flagos::dal
