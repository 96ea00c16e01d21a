// Times measured once per shape class and kept on disk, so that the same script takes the same routes in every later run.
// The store is consulted where the cost model cannot separate two legal candidates. The first value stays: a later
// measurement never replaces it, or a choice could change between two equal runs.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/kde/router.h"

namespace flagos::kde {

// Operator, dtypes, layouts, and sizes rounded up to powers of two: "aten::mm.out(float32[256,64] contiguous, ...)".
std::string shapeClass(const Signature&);

struct Measurement {
  double seconds = 0;     // of one call, the host's wait for the queue apart
  int runs = 0;
  int64_t at = 0;         // when, seconds since 1970
};

class MeasuredStore {
 public:
  // <dir>/measured.json, section `identity` (device identity + build part). A missing file is an empty store; a broken one
  // is reported, ignored, and replaced by the next save.
  MeasuredStore() = default;
  Result<void> open(const std::string& dir, const std::string& identity);

  // Threads: any.
  std::optional<Measurement> find(const std::string& shape_class, std::string_view candidate) const;
  bool add(const std::string& shape_class, std::string_view candidate, const Measurement&);  // false: already there
  // Nothing is to be kept for this class, in this process: a candidate failed, or nothing can be written.
  void giveUp(const std::string& shape_class);
  bool givenUp(const std::string& shape_class) const;
  // Forgets all classes of operators that `op` (a glob; "" = all) matches, on disk too, and says how many there were.
  Result<size_t> forget(std::string_view op);
  // The same for every device of <dir>/measured.json, without an open device.
  static Result<size_t> forgetFile(const std::string& dir, std::string_view op);
  size_t size() const;
  // Merges with what other processes wrote meanwhile (their values win).
  Result<void> save();
  bool empty() const;

 private:
  using Entries = std::map<std::string, std::map<std::string, Measurement, std::less<>>>;
  mutable std::mutex mutex_;
  std::string path_, identity_;
  Entries entries_;
  std::set<std::string> given_up_;
  bool dirty_ = false;
};

}  // namespace flagos::kde
