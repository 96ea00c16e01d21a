#include "runtime/kde/measured.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/base/file_lock.h"
#include "runtime/kde/families.h"

namespace flagos::kde {
namespace {

using Entries = std::map<std::string, std::map<std::string, Measurement, std::less<>>>;

std::optional<Measurement> measurementOf(const Json& j) {
  if (!j.is_object() || !j.contains("seconds") || !j["seconds"].is_number()) return std::nullopt;
  Measurement m;
  m.seconds = j["seconds"].get<double>();
  if (!std::isfinite(m.seconds) || m.seconds < 0) return std::nullopt;
  if (const auto it = j.find("runs"); it != j.end() && it->is_number_integer()) m.runs = it->get<int>();
  if (const auto it = j.find("at"); it != j.end() && it->is_number_integer()) m.at = it->get<int64_t>();
  return m;
}

Entries entriesOf(const Json& doc, const std::string& identity) {
  Entries out;
  if (!doc.is_object() || !doc.contains("devices") || !doc["devices"].is_object()) return out;
  const auto device = doc["devices"].find(identity);
  if (device == doc["devices"].end() || !device->is_object()) return out;
  for (const auto& [shape, times] : device->items()) {
    if (!times.is_object()) continue;
    for (const auto& [candidate, time] : times.items())
      if (const auto m = measurementOf(time)) out[shape][candidate] = *m;
  }
  return out;
}

Json toJson(const Entries& entries) {
  Json out = Json::object();
  for (const auto& [shape, times] : entries)
    for (const auto& [candidate, m] : times) out[shape][candidate] = {{"seconds", m.seconds}, {"runs", m.runs}, {"at", m.at}};
  return out;
}

// The document as it is now, or an empty one. Under the file's lock.
Json documentAt(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0)
    if (auto old = readJsonFile(path); old && old->is_object() && old->value("version", 0) == 1 && old->contains("devices") && (*old)["devices"].is_object())
      return *old;
  return {{"version", 1}, {"devices", Json::object()}};
}

// The operator of a shape class: "aten::mm.out(float32[...] ...)".
bool isOf(const std::string& shape, std::string_view op) {
  return op.empty() || opMatches(op, std::string_view(shape).substr(0, shape.find('(')));
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

std::optional<Measurement> MeasuredStore::find(const std::string& shape, std::string_view candidate) const {
  std::lock_guard lock(mutex_);
  const auto it = entries_.find(shape);
  if (it == entries_.end()) return std::nullopt;
  const auto t = it->second.find(candidate);
  return t == it->second.end() ? std::nullopt : std::optional<Measurement>(t->second);
}

bool MeasuredStore::add(const std::string& shape, std::string_view candidate, const Measurement& m) {
  if (!std::isfinite(m.seconds) || m.seconds < 0) return false;
  std::lock_guard lock(mutex_);
  const bool fresh = entries_[shape].emplace(std::string(candidate), m).second;
  dirty_ = dirty_ || fresh;
  return fresh;
}

void MeasuredStore::giveUp(const std::string& shape) {
  std::lock_guard lock(mutex_);
  entries_.erase(shape);
  given_up_.insert(shape);
}

bool MeasuredStore::givenUp(const std::string& shape) const {
  std::lock_guard lock(mutex_);
  return given_up_.count(shape) != 0;
}

Result<void> MeasuredStore::save() {
  std::lock_guard lock(mutex_);
  if (!dirty_) return {};
  if (path_.empty()) return fail("no device says where its measured choices are kept");
  if (auto made = makeDirs(path_.substr(0, path_.rfind('/'))); !made) return made.error();
  const FileLock file(path_ + ".lock");
  Json doc = documentAt(path_);
  for (auto& [shape, times] : entriesOf(doc, identity_))
    for (auto& [candidate, m] : times) entries_[shape][candidate] = m;
  doc["devices"][identity_] = toJson(entries_);
  if (auto wrote = writeFileAtomic(path_, dump(doc, 1) + "\n"); !wrote) return wrote.error();
  dirty_ = false;
  return {};
}

Result<size_t> MeasuredStore::forgetFile(const std::string& dir, std::string_view op) {
  const std::string path = dir + "/measured.json";
  if (::access(path.c_str(), F_OK) != 0) return size_t{0};
  const FileLock file(path + ".lock");
  Json doc = documentAt(path);
  size_t gone = 0;
  for (auto& [identity, shapes] : doc["devices"].items()) {
    if (!shapes.is_object()) continue;
    Json kept = Json::object();
    for (auto& [shape, times] : shapes.items()) {
      if (isOf(shape, op)) ++gone;
      else kept[shape] = times;
    }
    shapes = std::move(kept);
  }
  if (gone)
    if (auto wrote = writeFileAtomic(path, dump(doc, 1) + "\n"); !wrote) return wrote.error();
  return gone;
}

Result<size_t> MeasuredStore::forget(std::string_view op) {
  std::lock_guard lock(mutex_);
  size_t gone = std::erase_if(entries_, [&](const auto& e) { return isOf(e.first, op); });
  std::erase_if(given_up_, [&](const std::string& shape) { return isOf(shape, op); });
  if (path_.empty()) return gone;
  const auto on_disk = forgetFile(path_.substr(0, path_.rfind('/')), op);
  if (!on_disk) return on_disk.error();
  return std::max(gone, *on_disk);
}

size_t MeasuredStore::size() const {
  std::lock_guard lock(mutex_);
  return entries_.size();
}

bool MeasuredStore::empty() const {
  std::lock_guard lock(mutex_);
  return entries_.empty();
}

}  // namespace flagos::kde
