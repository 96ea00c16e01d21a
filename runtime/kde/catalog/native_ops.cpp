#include "runtime/kde/catalog/native_ops.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>

#include "runtime/base/settings.h"
#include "runtime/kde/embedded.h"

namespace flagos::kde {
namespace {

constexpr uint32_t bit(DType t) { return 1u << static_cast<unsigned>(t); }
constexpr uint32_t kFloating = bit(DType::float32) | bit(DType::float64) | bit(DType::float16) | bit(DType::bfloat16);
constexpr uint32_t kIntegral = bit(DType::int8) | bit(DType::int16) | bit(DType::int32) | bit(DType::int64) | bit(DType::uint8);
constexpr uint32_t kBool = bit(DType::bool_);

struct Group { std::string_view name; uint32_t mask; };
constexpr Group kGroups[] = {{"all", kFloating | kIntegral | kBool}, {"floating", kFloating}, {"integral", kIntegral},
                             {"number", kFloating | kIntegral}};

std::vector<std::string_view> split(std::string_view s, char by) {
  std::vector<std::string_view> out;
  while (!s.empty()) {
    const auto end = s.find(by);
    if (end != 0) out.push_back(s.substr(0, end));
    if (end == std::string_view::npos) break;
    s.remove_prefix(end + 1);
  }
  return out;
}

std::vector<NativeOp> parseTable(std::string_view text) {
  std::vector<NativeOp> rows;
  for (std::string_view line : split(text, '\n')) {
    if (line.front() == '#') continue;
    const auto words = split(line, ' ');
    NativeOp row;
    // A test walks the table, so a bad row cannot reach a user; here it is simply no row.
    if (words.size() < 3 || !familyFromName(words[1], &row.family) || !(row.dtypes = dtypesFromText(words[2]))) continue;
    row.op = words[0];
    for (size_t i = 3; i < words.size(); ++i) {
      const auto eq = words[i].find('=');
      const std::string_view key = words[i].substr(0, eq), value = eq == std::string_view::npos ? "" : words[i].substr(eq + 1);
      if (key == "rank") row.max_rank = std::atoi(std::string(value).c_str());
      if (key == "layout") row.contiguous_only = value == "contiguous";
      if (key == "host") row.host = value != "no";
      if (key == "runs_as") row.runs_as = split(value, ',');
    }
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const NativeOp& a, const NativeOp& b) { return a.op < b.op; });
  return rows;
}

const std::vector<NativeOp>& table() {
  static const auto* rows = new std::vector<NativeOp>(parseTable(embedded("native_ops")));
  return *rows;
}

const std::vector<std::string_view>& atenOps() {
  static const auto* names = [] {
    auto* v = new std::vector<std::string_view>(split(embedded("aten_ops"), '\n'));
    std::erase_if(*v, [](std::string_view s) { return s.front() == '#'; });
    return v;
  }();
  return *names;
}

// Declared rows live for ever (routes point at them); the lock is only taken on cold paths.
struct Declared {
  std::mutex mutex;
  std::deque<std::string> names;
  std::map<std::string_view, NativeOp> rows;
  std::atomic<bool> any{false};
};
Declared& declared() {
  static auto* d = new Declared;
  return *d;
}

const NativeOp* lookup(const std::vector<NativeOp>& rows, std::string_view op) {
  const auto it = std::lower_bound(rows.begin(), rows.end(), op, [](const NativeOp& r, std::string_view o) { return r.op < o; });
  return it != rows.end() && it->op == op ? &*it : nullptr;
}

}  // namespace

uint32_t dtypesFromText(std::string_view text) {
  uint32_t mask = 0;
  for (std::string_view word : split(text, ',')) {
    const auto* g = std::find_if(std::begin(kGroups), std::end(kGroups), [&](const Group& x) { return x.name == word; });
    if (g != std::end(kGroups)) { mask |= g->mask; continue; }
    const auto t = dtypeFromName(word);
    if (!t) return 0;
    mask |= bit(*t);
  }
  return mask;
}

std::string dtypesText(uint32_t mask) {
  std::string out;
  for (unsigned i = 0; i < static_cast<unsigned>(DType::count_); ++i)
    if (mask >> i & 1u) out += (out.empty() ? "" : ", ") + std::string(dtypeName(static_cast<DType>(i)));
  return out;
}

std::span<const NativeOp> nativeOpTable() { return table(); }

const NativeOp* findNativeOpExact(std::string_view op) {
  if (declared().any.load(std::memory_order_acquire)) {
    std::lock_guard lock(declared().mutex);
    const auto it = declared().rows.find(op);
    if (it != declared().rows.end()) return &it->second;
    // Composites are no registrations, but explain still says what they run as.
    const NativeOp* row = lookup(table(), op);
    return row && !row->runs_as.empty() ? row : nullptr;
  }
  return lookup(table(), op);
}

const NativeOp* findNativeOp(std::string_view op) {
  if (const NativeOp* row = findNativeOpExact(op)) return row;
  // A running process has the exact overload; only a person asks for "aten::mm".
  if (op.find('.') != std::string_view::npos || anyDeclared()) return nullptr;
  if (const NativeOp* row = findNativeOpExact(std::string(op) + ".out")) return row;   // before mm.dtype and the like
  for (const NativeOp& row : table())
    if (row.op.starts_with(op) && baseName(row.op) == op) return &row;
  return nullptr;
}

void declareImplemented(std::string_view op, std::string_view family, std::string_view dtypes) {
  Declared& d = declared();
  NativeOp row;
  if (const NativeOp* listed = lookup(table(), op)) row = *listed;
  if (!familyFromName(family, &row.family)) row.family = Family::other;
  // Each launcher judges its own call (Signature::native), more finely than a list of dtypes can.
  const uint32_t mask = dtypesFromText(dtypes);
  row.dtypes = mask ? mask : ~0u;
  std::lock_guard lock(d.mutex);
  row.op = d.names.emplace_back(op);
  d.rows.insert_or_assign(row.op, row);
  d.any.store(true, std::memory_order_release);
}

bool anyDeclared() noexcept { return declared().any.load(std::memory_order_acquire); }

bool isDeclared(std::string_view op) {
  std::lock_guard lock(declared().mutex);
  return declared().rows.count(op) != 0;
}

std::vector<std::string> catalogDifferences() {
  std::vector<std::string> out;
  std::lock_guard lock(declared().mutex);
  const auto& rows = declared().rows;
  for (const NativeOp& t : table())
    if (t.runs_as.empty() && !rows.count(t.op)) out.push_back(std::string(t.op) + ": in native_ops.txt, not registered");
  for (const auto& [op, row] : rows) {
    const NativeOp* t = lookup(table(), op);
    if (!t) out.push_back(std::string(op) + ": registered, not in native_ops.txt");
    else if (t->family != row.family)
      out.push_back(std::string(op) + ": family " + std::string(familyName(row.family)) + " registered, " +
                    std::string(familyName(t->family)) + " in native_ops.txt");
  }
  return out;
}

void forgetDeclaredForTest() {
  std::lock_guard lock(declared().mutex);
  declared().rows.clear();
  declared().any.store(false);
}

bool isAtenOp(std::string_view op) {
  const auto& names = atenOps();
  const auto it = std::lower_bound(names.begin(), names.end(), op);
  if (it != names.end() && *it == op) return true;
  if (op.find('.') != std::string_view::npos) return false;
  const std::string prefix = std::string(op) + '.';
  const auto next = std::lower_bound(names.begin(), names.end(), prefix);
  return next != names.end() && next->substr(0, prefix.size()) == prefix;
}

std::string nearestOp(std::string_view op) {
  std::vector<std::string> choices;
  const bool overload = op.find('.') != std::string_view::npos;
  for (std::string_view name : atenOps()) {
    const std::string_view candidate = overload ? name : baseName(name);
    if (choices.empty() || choices.back() != candidate) choices.emplace_back(candidate);
  }
  for (const NativeOp& row : table()) choices.emplace_back(overload ? row.op : baseName(row.op));
  const std::string wanted = op.find("::") == std::string_view::npos ? "aten::" + std::string(op) : std::string(op);
  return nearest(wanted, choices);
}

}  // namespace flagos::kde
