#include "profiler/view/table.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

namespace flagos::view {

Cell textCell(std::string text, std::string tooltip) { return {std::move(text), 0, false, std::move(tooltip)}; }

Cell countCell(uint64_t n) { return {std::to_string(n), static_cast<double>(n), false, {}}; }

Cell metricCell(const Metric& m) {
  if (!m.value) return {"–", 0, true, m.why_missing.empty() ? "no source reported it" : m.why_missing};
  std::string tip = "source: " + (m.source.empty() ? std::string("not stated") : m.source);
  if (m.age_s) {
    char age[32];
    std::snprintf(age, sizeof age, ", %.1f s old", *m.age_s);
    tip += age;
  }
  return {format(m), *m.value, false, std::move(tip)};
}

void sortRows(Table& table, const std::vector<SortKey>& keys) {
  std::stable_sort(table.rows.begin(), table.rows.end(), [&](const Row& a, const Row& b) {
    for (const SortKey& k : keys) {
      if (k.column >= table.columns.size() || k.column >= a.cells.size() || k.column >= b.cells.size()) continue;
      const Cell &x = a.cells[k.column], &y = b.cells[k.column];
      if (x.missing != y.missing) return y.missing;
      if (x.missing) continue;
      if (table.columns[k.column].number) {
        if (x.key != y.key) return k.descending ? x.key > y.key : x.key < y.key;
      } else if (x.text != y.text) {
        return k.descending ? x.text > y.text : x.text < y.text;
      }
    }
    return false;
  });
}

void filterRows(Table& table, std::string_view needle) {
  if (needle.empty()) return;
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  std::erase_if(table.rows, [&](const Row& row) {
    return std::none_of(row.cells.begin(), row.cells.end(), [&](const Cell& c) {
      return std::search(c.text.begin(), c.text.end(), needle.begin(), needle.end(), same) != c.text.end();
    });
  });
}

size_t displayWidth(std::string_view utf8) noexcept {
  size_t n = 0;
  for (const char c : utf8) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

std::string renderText(const Table& table, size_t width) {
  if (table.rows.empty()) return table.note.empty() ? "nothing to show\n" : table.note + "\n";
  std::vector<size_t> widths;
  for (const Column& c : table.columns) widths.push_back(displayWidth(c.title));
  for (const Row& row : table.rows)
    for (size_t i = 0; i < row.cells.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], displayWidth(row.cells[i].text));
  std::string out;
  const auto line = [&](auto&& textOf) {
    std::string text;
    for (size_t i = 0; i < table.columns.size(); ++i) {
      const std::string cell = textOf(i);
      const std::string pad(widths[i] - std::min(widths[i], displayWidth(cell)), ' ');
      if (i) text += "  ";
      text += table.columns[i].number ? pad + cell : cell + pad;
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    if (width && displayWidth(text) > width) {
      size_t end = 0;
      for (size_t seen = 0; end < text.size() && seen + 1 < width; ++seen) {
        ++end;
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      }
      text = text.substr(0, end) + "…";
    }
    out += text + "\n";
  };
  line([&](size_t i) { return table.columns[i].title; });
  for (const Row& row : table.rows)
    line([&](size_t i) { return i < row.cells.size() ? row.cells[i].text : std::string(); });
  return out;
}

}  // namespace flagos::view
