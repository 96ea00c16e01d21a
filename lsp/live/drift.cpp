#include "lsp/live/drift.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"

namespace flagos::lsp {

const char* driftName(DriftState s) {
  switch (s) {
    case DriftState::exact: return "exact";
    case DriftState::moved: return "moved";
    case DriftState::edited: return "edited";
    default: return "gone";
  }
}

std::string hash16(uint64_t hash) {
  char buffer[17];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(hash));
  return buffer;
}

namespace {
std::mutex remembered_lock;
std::map<std::string, std::string>& remembered() {
  static std::map<std::string, std::string> texts;
  return texts;
}

std::vector<std::string_view> linesOf(std::string_view text, const LineIndex& index) {
  std::vector<std::string_view> out;
  for (int i = 0; i < index.lineCount(); ++i) out.push_back(index.lineText(text, i));
  return out;
}

std::string nodeHash(const SourceUnit& unit, const Node* n) {
  return hash16(telemetry::callHash(std::string_view(unit.text).substr(n->begin, n->end - n->begin)));
}
}  // namespace

void rememberBaseline(const std::string& raw) {
  if (raw.size() > kMaxSourceBytes) return;
  const std::lock_guard lock(remembered_lock);
  auto& texts = remembered();
  if (texts.size() > 64) texts.clear();
  texts.emplace(hash16(telemetry::fnv1a(raw)), raw);
}

std::optional<std::string> baselineText(const std::string& hash) {
  if (hash.size() != 16 || hash.find_first_not_of("0123456789abcdef") != std::string::npos) return std::nullopt;
  {
    const std::lock_guard lock(remembered_lock);
    const auto it = remembered().find(hash);
    if (it != remembered().end()) return it->second;
  }
  auto kept = readFile(cacheDir() + "/sources/" + hash + ".py", kMaxSourceBytes);
  if (!kept || hash16(telemetry::fnv1a(*kept)) != hash) return std::nullopt;
  return std::move(*kept);
}

// Myers' greedy diff over lines, after the equal head and tail are set aside.
std::vector<int> matchLines(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b) {
  std::vector<int> map(a.size(), -1);
  size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) { map[head] = static_cast<int>(head); ++head; }
  size_t ea = a.size(), eb = b.size();
  while (ea > head && eb > head && a[ea - 1] == b[eb - 1]) { --ea; --eb; map[ea] = static_cast<int>(eb); }
  const int n = static_cast<int>(ea - head), m = static_cast<int>(eb - head);
  if (n == 0 || m == 0) return map;
  const int most = std::min(n + m, 800);  // more edits than this: what is left unmatched counts as changed
  std::vector<std::vector<int>> trace;
  std::vector<int> v(static_cast<size_t>(2 * most + 3), 0);
  const auto at = [&](int k) -> int& { return v[static_cast<size_t>(k + most + 1)]; };
  int found = -1;
  for (int d = 0; d <= most && found < 0; ++d) {
    trace.push_back(v);
    for (int k = -d; k <= d; k += 2) {
      int x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      int y = x - k;
      while (x < n && y < m && a[head + static_cast<size_t>(x)] == b[head + static_cast<size_t>(y)]) { ++x; ++y; }
      at(k) = x;
      if (x >= n && y >= m) { found = d; break; }
    }
  }
  if (found < 0) return map;
  int x = n, y = m;
  for (int d = found; d > 0 || (x > 0 && y > 0); --d) {
    if (d == 0) {
      while (x > 0 && y > 0) { --x; --y; map[head + static_cast<size_t>(x)] = static_cast<int>(head) + y; }
      break;
    }
    const auto& before = trace[static_cast<size_t>(d)];
    const auto old = [&](int k) { return before[static_cast<size_t>(k + most + 1)]; };
    const int k = x - y;
    const int from = k == -d || (k != d && old(k - 1) < old(k + 1)) ? k + 1 : k - 1;
    const int px = old(from), py = px - from;
    while (x > px && y > py) {
      if (from == k + 1 ? (x == px && y == py + 1) : (x == px + 1 && y == py)) break;
      --x; --y;
      map[head + static_cast<size_t>(x)] = static_cast<int>(head) + y;
    }
    x = px;
    y = py;
  }
  return map;
}

Drift::Drift(const SourceUnit& now, std::string_view raw_now, std::string_view ran_hash, std::optional<std::string> baseline,
             const std::vector<const telemetry::SiteRow*>& rows, const std::vector<LineOrigins>* origins)
    : now_(now), baseline_(std::move(baseline)) {
  same_ = hash16(telemetry::fnv1a(raw_now)) == ran_hash;
  for (const Node& n : now_.ast.nodes()) {
    switch (n.kind) {
      case N::call: case N::binary: case N::subscript: case N::compare: case N::unary: case N::aug_assign: case N::attribute:
        expressions_.push_back(&n);
        break;
      default: break;
    }
  }
  std::stable_sort(expressions_.begin(), expressions_.end(), [](const Node* a, const Node* b) { return a->begin < b->begin; });
  if (same_) return;
  if (baseline_) {
    baseline_lines_ = LineIndex(*baseline_);
    const auto before = linesOf(*baseline_, baseline_lines_), after = linesOf(now_.text, now_.lines);
    line_map_ = matchLines(before, after);
    for (size_t i = 0; origins && i < origins->size(); ++i) {
      const auto& o = (*origins)[i];
      if (o.text != *baseline_ || o.origin.size() != after.size()) continue;
      std::vector<int> followed(before.size(), -1), places(before.size(), -1);
      for (size_t line = 0; line < after.size(); ++line) {
        const auto was = static_cast<size_t>(o.origin[line]);
        if (o.origin[line] >= 0 && was < before.size()) places[was] = static_cast<int>(line);
        if (o.origin[line] >= 0 && was < before.size() && before[was] == after[line]) followed[was] = static_cast<int>(line);
      }
      const auto known = [](const std::vector<int>& m) { return std::count_if(m.begin(), m.end(), [](int l) { return l >= 0; }); };
      // A tool that rewrites the whole text leaves nothing to follow: the diff is better then.
      if (known(followed) + 4 >= known(line_map_)) {
        line_map_ = std::move(followed);
        followed_ = std::move(places);
      }
    }
  }
  for (const Node* n : expressions_) by_hash_.emplace(nodeHash(now_, n), n);
  for (const auto* r : rows) {
    if (r->call_hash.empty()) continue;
    auto& places = rows_by_hash_[r->call_hash];
    const std::pair<int, int> at{r->line, r->column};
    if (std::find(places.begin(), places.end(), at) == places.end()) places.push_back(at);
  }
  for (auto& [hash, places] : rows_by_hash_) std::sort(places.begin(), places.end());
}

const Node* Drift::nodeAt(uint32_t begin, uint32_t end) const {
  const Node* named = nullptr;
  for (const Node* n : expressions_) {
    if (n->end != end) continue;
    if (n->begin == begin) return n;
    // CPython says that a method call chained over several lines begins at the method's name.
    if (n->kind == N::call && n->a && n->a->kind == N::attribute && n->a->end - n->a->text.size() == begin) named = n;
  }
  return named;
}

const Node* Drift::bestOnLine(int line, const std::string& hash) const {
  const Node* found = nullptr;
  int calls = 0;
  for (const Node* n : expressions_) {
    if (n->line != line) continue;
    if (!hash.empty() && nodeHash(now_, n) == hash) return n;
    if (n->kind == N::call) { ++calls; if (!found) found = n; }
  }
  return hash.empty() && calls == 1 ? found : nullptr;
}

Placement Drift::inPlace(const telemetry::SiteRow& row) const {
  Placement p;
  p.state = DriftState::exact;
  p.line = row.line;
  const int last = (row.end_line > 0 ? row.end_line : row.line) - 1;
  if (row.line >= 1 && last < now_.lines.lineCount() && row.column >= 0 && row.end_column >= 0) {
    p.node = nodeAt(now_.lines.lineStart(row.line - 1) + static_cast<uint32_t>(row.column),
                    now_.lines.lineStart(last) + static_cast<uint32_t>(row.end_column));
  }
  if (!p.node) p.node = bestOnLine(row.line, row.call_hash);
  return p;
}

Placement Drift::byBaseline(const telemetry::SiteRow& row) const {
  const int first = row.line - 1, last = (row.end_line > 0 ? row.end_line : row.line) - 1;
  const auto lines = static_cast<int>(line_map_.size());
  if (first < 0 || last >= lines || last < first) return {DriftState::gone, nullptr, 0, "its line is not in the text that ran"};
  bool whole = true;
  for (int l = first; l <= last; ++l) {
    const int to = line_map_[static_cast<size_t>(l)];
    whole = whole && to >= 0 && to - l == line_map_[static_cast<size_t>(first)] - first;
  }
  if (whole) {
    telemetry::SiteRow shifted = row;
    const int by = line_map_[static_cast<size_t>(first)] - first;
    shifted.line += by;
    if (shifted.end_line > 0) shifted.end_line += by;
    Placement p = inPlace(shifted);
    p.state = by == 0 ? DriftState::exact : DriftState::moved;
    return p;
  }
  // The line changed: look between the nearest unchanged lines around it.
  int before = first - 1, after = last + 1;
  while (before >= 0 && line_map_[static_cast<size_t>(before)] < 0) --before;
  while (after < lines && line_map_[static_cast<size_t>(after)] < 0) ++after;
  int from = before >= 0 ? line_map_[static_cast<size_t>(before)] + 1 : 0;
  int to = after < lines ? line_map_[static_cast<size_t>(after)] - 1 : now_.lines.lineCount() - 1;
  // An editor knows which line it still is; a twin beside it is not meant.
  if (!followed_.empty() && followed_[static_cast<size_t>(first)] >= 0) {
    from = followed_[static_cast<size_t>(first)];
    to = std::max(from, followed_[static_cast<size_t>(last)]);
  }
  std::vector<const Node*> same_call, same_callee;
  // What was called, in the text that ran.
  std::string callee;
  if (row.column >= 0 && row.end_column >= 0) {
    const auto b = baseline_lines_.lineStart(first) + static_cast<uint32_t>(row.column);
    const auto e = baseline_lines_.lineStart(last) + static_cast<uint32_t>(row.end_column);
    if (b < e && e <= baseline_->size()) {
      auto text = std::string_view(*baseline_).substr(b, e - b);
      int depth = 0;
      size_t open = std::string_view::npos;  // the parenthesis that the call ends with
      for (size_t i = text.size(); i-- > 0;) {
        if (text[i] == ')' || text[i] == ']' || text[i] == '}') ++depth;
        if ((text[i] == '(' || text[i] == '[' || text[i] == '{') && --depth == 0) { open = i; break; }
      }
      if (open != std::string_view::npos) callee = std::string(text.substr(0, open));
    }
  }
  const auto simple = [](std::string_view s) { return s.substr(s.rfind('.') == std::string_view::npos ? 0 : s.rfind('.') + 1); };
  for (const Node* n : expressions_) {
    if (n->line - 1 < from || n->line - 1 > to) continue;
    if (!row.call_hash.empty() && nodeHash(now_, n) == row.call_hash) same_call.push_back(n);
    else if (n->kind == N::call && n->a && !callee.empty()) {
      const auto text = std::string_view(now_.text).substr(n->a->begin, n->a->end - n->a->begin);
      if (text == callee || (simple(text) == simple(callee) && callee.find('.') != std::string::npos)) same_callee.push_back(n);
    }
  }
  if (same_call.size() == 1) return {same_call[0]->line == row.line ? DriftState::exact : DriftState::moved, same_call[0], same_call[0]->line, {}};
  if (same_call.size() > 1) return {DriftState::gone, nullptr, 0, "several identical calls are there now, which cannot be told apart"};
  if (same_callee.size() == 1) return {DriftState::edited, same_callee[0], same_callee[0]->line, {}};
  if (same_callee.size() > 1 && after - before == to - from + 2) {  // as many lines as before: the one on its own line
    const int line = from + (first - before - 1);
    for (const Node* n : same_callee) if (n->line - 1 == line) return {DriftState::edited, n, n->line, {}};
  }
  return {DriftState::gone, nullptr, 0, "the call is not in the text any more"};
}

Placement Drift::byHash(const telemetry::SiteRow& row) const {
  if (row.call_hash.empty()) return {DriftState::gone, nullptr, 0, "the file changed, and the text that ran was not kept"};
  const auto [b, e] = by_hash_.equal_range(row.call_hash);
  std::vector<const Node*> nodes;
  for (auto it = b; it != e; ++it) nodes.push_back(it->second);
  std::sort(nodes.begin(), nodes.end(), [](const Node* x, const Node* y) { return x->begin < y->begin; });
  const auto it = rows_by_hash_.find(row.call_hash);
  if (nodes.empty()) return {DriftState::gone, nullptr, 0, "no such call is in the text any more"};
  if (it == rows_by_hash_.end() || it->second.size() != nodes.size())
    return {DriftState::gone, nullptr, 0, "the file changed and the text that ran was not kept, so identical calls cannot be told apart"};
  const auto position = std::find(it->second.begin(), it->second.end(), std::pair<int, int>{row.line, row.column});
  const Node* n = nodes[static_cast<size_t>(position - it->second.begin())];
  return {n->line == row.line ? DriftState::exact : DriftState::moved, n, n->line, {}};
}

Placement Drift::place(const telemetry::SiteRow& row) const {
  if (same_) return inPlace(row);
  return baseline_ ? byBaseline(row) : byHash(row);
}

}  // namespace flagos::lsp
