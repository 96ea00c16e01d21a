#include "runtime/kde/measured.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/base/file_lock.h"

namespace flagos::kde {
namespace {

using Entries = std::map<std::string, std::map<std::string, double, std::less<>>>;

Entries entriesOf(const Json& doc, const std::string& identity) {
  Entries out;
  if (!doc.is_object() || !doc.contains("devices") || !doc["devices"].is_object()) return out;
  const auto device = doc["devices"].find(identity);
  if (device == doc["devices"].end() || !device->is_object()) return out;
  for (const auto& [shape, times] : device->items()) {
    if (!times.is_object()) continue;
    for (const auto& [candidate, seconds] : times.items())
      if (seconds.is_number() && std::isfinite(seconds.get<double>()) && seconds.get<double>() >= 0)
        out[shape][candidate] = seconds.get<double>();
  }
  return out;
}

}  // namespace

std::string shapeClass(const Signature& s) {
  Signature rounded = s;
  for (int i = 0; i < std::min<int>(s.nargs, kMaxArgs); ++i) {
    ArgSig& a = rounded.args[static_cast<size_t>(i)];
    for (int64_t& size : a.sizes)
      if (size > 1 && size < (int64_t{1} << 62)) size = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  }
  return text(rounded);
}

Result<void> MeasuredStore::open(const std::string& dir, const std::string& identity) {
  std::lock_guard lock(mutex_);
  path_ = dir + "/measured.json";
  identity_ = identity;
  entries_.clear();
  if (::access(path_.c_str(), F_OK) != 0) return {};
  auto doc = readJsonFile(path_);
  if (!doc) return doc.error();
  entries_ = entriesOf(*doc, identity_);
  return {};
}

std::optional<double> MeasuredStore::find(const std::string& shape, std::string_view candidate) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(shape);
  if (it == entries_.end()) return std::nullopt;
  const auto t = it->second.find(candidate);
  return t == it->second.end() ? std::nullopt : std::optional<double>(t->second);
}

bool MeasuredStore::add(const std::string& shape, std::string_view candidate, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return false;
  std::lock_guard lock(mutex_);
  const bool fresh = entries_[shape].emplace(std::string(candidate), seconds).second;
  dirty_ = dirty_ || fresh;
  return fresh;
}

Result<void> MeasuredStore::save() {
  std::lock_guard lock(mutex_);
  if (!dirty_ || path_.empty()) return {};
  if (auto made = makeDirs(path_.substr(0, path_.rfind('/'))); !made) return made.error();
  const FileLock file(path_ + ".lock");
  Json doc = {{"version", 1}, {"devices", Json::object()}};
  if (::access(path_.c_str(), F_OK) == 0)
    if (auto old = readJsonFile(path_); old && old->is_object() && old->value("version", 0) == 1 && old->contains("devices") && (*old)["devices"].is_object()) doc = *old;
  for (auto& [shape, times] : entriesOf(doc, identity_))
    for (auto& [candidate, seconds] : times) entries_[shape][candidate] = seconds;
  doc["devices"][identity_] = entries_;
  if (auto wrote = writeFileAtomic(path_, dump(doc, 1) + "\n"); !wrote) return wrote.error();
  dirty_ = false;
  return {};
}

bool MeasuredStore::empty() const {
  std::lock_guard lock(mutex_);
  return entries_.empty();
}

}  // namespace flagos::kde
