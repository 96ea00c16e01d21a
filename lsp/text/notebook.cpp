#include "lsp/text/notebook.h"

#include <algorithm>

#include "lsp/text/magics.h"

namespace flagos::lsp {
namespace {

constexpr size_t kHistory = 16;

// MurmurHash2, which ipykernel names its files with.
uint32_t murmur2(std::string_view s, uint32_t seed) {
  constexpr uint32_t m = 0x5bd1e995;
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(s[i])); };
  uint32_t h = seed ^ static_cast<uint32_t>(s.size());
  size_t i = 0;
  for (; i + 4 <= s.size(); i += 4) {
    uint32_t k = byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16 | byte(i + 3) << 24;
    k *= m;
    k ^= k >> 24;
    k *= m;
    h = h * m ^ k;
  }
  if (const size_t left = s.size() - i; left > 0) {
    uint32_t k = 0;
    for (size_t j = left; j-- > 0;) k = k << 8 | byte(i + j);
    h = (h ^ k) * m;
  }
  h ^= h >> 13;
  h *= m;
  return h ^ h >> 15;
}

const Json& at(const Json& j, const char* key) {
  static const Json none;
  if (!j.is_object()) return none;
  const auto it = j.find(key);
  return it == j.end() ? none : *it;
}

std::string text(const Json& j) {
  if (j.is_string()) return j.get<std::string>();
  std::string out;
  if (j.is_array()) for (const auto& line : j) if (line.is_string()) out += line.get_ref<const std::string&>();
  return out;
}

}  // namespace

void Notebook::remember(Cell& c) {
  if (!c.history.empty() && c.history.back().text == c.doc.text()) return;
  if (c.history.size() >= kHistory) c.history.erase(c.history.begin());
  c.history.push_back({c.doc.text(), ipykernelName(c.doc.text())});
}

void Notebook::splice(int start, int removed, const std::vector<Entry>& added) {
  const auto size = static_cast<int>(order_.size());
  const int from = std::clamp(start, 0, size), to = std::clamp(removed, 0, size - from) + from;
  order_.erase(order_.begin() + from, order_.begin() + to);
  order_.insert(order_.begin() + from, added.begin(), added.end());
  for (const auto& e : added) setKind(e.uri, e.code);
}

void Notebook::setKind(const std::string& uri, bool code) {
  for (auto& e : order_) if (e.uri == uri) e.code = code;
  if (const auto it = texts_.find(uri); it != texts_.end()) it->second.code = code;
}

void Notebook::openCell(const std::string& uri, const std::string& language, int version, std::string content) {
  Cell c{uri, false, language, Document(uri, {}, version, std::move(content)), 0, 0, {}};
  for (const auto& e : order_) if (e.uri == uri) c.code = e.code;
  if (const auto old = texts_.find(uri); old != texts_.end()) c.history = std::move(old->second.history);
  remember(c);
  texts_.insert_or_assign(uri, std::move(c));
}

void Notebook::closeCell(const std::string& uri) { texts_.erase(uri); }

bool Notebook::changeCell(const std::string& uri, const std::vector<TextChange>& changes, int version, Encoding encoding) {
  const auto it = texts_.find(uri);
  if (it == texts_.end()) return false;
  it->second.doc.apply(changes, version, encoding);
  remember(it->second);
  return true;
}

std::string Notebook::layOut() {
  std::string out;
  int line = 0;
  for (const auto& e : order_) {
    const auto it = texts_.find(e.uri);
    if (it == texts_.end()) continue;
    Cell& c = it->second;
    c.code = e.code;
    c.begin = static_cast<uint32_t>(out.size());
    c.first_line = line;
    if (!c.python()) continue;
    out += withoutMagics(c.doc.text());
    // A cell always ends its own line; a lone CR at its end would join with this LF, so the cells stay one line apart.
    out += '\n';
    line += LineIndex(std::string_view(out).substr(c.begin)).lineCount() - 1;
  }
  return out;
}

const Cell* Notebook::cell(const std::string& uri) const {
  const auto it = texts_.find(uri);
  if (it == texts_.end()) return nullptr;
  return std::any_of(order_.begin(), order_.end(), [&](const Entry& e) { return e.uri == uri; }) ? &it->second : nullptr;
}

std::vector<const Cell*> Notebook::cells() const {
  std::vector<const Cell*> out;
  for (const auto& e : order_) if (const auto it = texts_.find(e.uri); it != texts_.end()) out.push_back(&it->second);
  return out;
}

const Cell* Notebook::at(uint32_t offset) const {
  for (const Cell* c : cells()) if (c->python() && offset >= c->begin && offset <= c->begin + c->size()) return c;
  return nullptr;
}

int Notebook::number(const Cell& c) const {
  for (size_t i = 0; i < order_.size(); ++i) if (order_[i].uri == c.uri) return static_cast<int>(i);
  return -1;
}

Notebook::Line Notebook::lineAt(int virtual_line) const {
  const Cell* found = nullptr;
  for (const Cell* c : cells()) if (c->python() && c->first_line < virtual_line) found = c;
  return {found, found ? virtual_line - found->first_line : virtual_line};
}

bool Notebook::outOfSync() const {
  for (const Cell* c : cells()) if (c->python() && c->doc.outOfSync()) return true;
  return false;
}

std::string ipykernelName(std::string_view cell_text) { return std::to_string(murmur2(cell_text, 0xc70f6907)) + ".py"; }

std::string_view ipykernelFile(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return {};
  const auto folder = path.substr(0, slash);
  const auto parent = folder.substr(folder.rfind('/') == std::string_view::npos ? 0 : folder.rfind('/') + 1);
  constexpr std::string_view prefix = "ipykernel_";
  const auto digits = [](std::string_view s) { return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos; };
  const auto name = path.substr(slash + 1);
  if (!parent.starts_with(prefix) || !digits(parent.substr(prefix.size())) || !name.ends_with(".py")) return {};
  return digits(name.substr(0, name.size() - 3)) ? name : std::string_view{};
}

Result<Notebook> notebookFromJson(const Json& document) {
  const Json* cells = &at(document, "cells");
  if (!cells->is_array()) {   // format 3 keeps them in worksheets
    const Json& sheets = at(document, "worksheets");
    if (sheets.is_array() && !sheets.empty()) cells = &at(sheets[0], "cells");
  }
  if (!cells->is_array()) return fail("not a notebook: it has no list of cells", {}, Exit::broken_input);
  const Json& metadata = at(document, "metadata");
  std::string language = text(at(at(metadata, "kernelspec"), "language"));
  if (language.empty()) language = text(at(at(metadata, "language_info"), "name"));
  if (!language.empty() && language != "python" && language != "ipython")
    return fail("a notebook in " + language.substr(0, 40) + "; only Python is read", {}, Exit::broken_input);
  Notebook out;
  std::vector<Notebook::Entry> order;
  for (size_t i = 0; i < cells->size(); ++i) {
    const Json& c = (*cells)[i];
    const bool code = text(at(c, "cell_type")) == "code";
    order.push_back({"cell:" + std::to_string(i), code});
  }
  out.splice(0, 0, order);
  for (size_t i = 0; i < cells->size(); ++i) {
    const Json& c = (*cells)[i];
    const Json& source = at(c, "source").is_null() ? at(c, "input") : at(c, "source");
    out.openCell(order[i].uri, order[i].code ? "python" : "markdown", 0, text(source));
  }
  return out;
}

}  // namespace flagos::lsp
