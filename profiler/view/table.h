// A screen as data: columns and rows of text with raw sort keys. GUI, TUI and text output only draw it.
#pragma once
#include <string>
#include <vector>

#include "runtime/base/metric.h"

namespace flagos::view {

struct Column {
  std::string title;
  bool number = false;     // right-aligned, sorted largest first
  std::string tooltip;     // unit, source, what it counts
};

struct Cell {
  std::string text;        // what is drawn
  double key = 0;          // sort key of number columns: the raw value, so that sorting matches what is shown
  bool missing = false;    // sorts last in both directions
  std::string tooltip;     // source and age, or why it is missing
};

struct Row {
  std::vector<Cell> cells;
  std::string file;        // where Enter leads, "" if nowhere
  int line = 0;
};

struct Table {
  std::vector<Column> columns;
  std::vector<Row> rows;
  std::string note;        // shown when there are no rows: why it is empty
};

Cell textCell(std::string text, std::string tooltip = {});
Cell countCell(uint64_t n);
// Text and tooltip of a metric: "1.2 MiB" / "source measured, 0.3 s old"; "–" / the reason when missing.
Cell metricCell(const Metric&);

struct SortKey { size_t column; bool descending; };
// Stable sort by several columns, the first key first. Missing cells come last.
void sortRows(Table&, const std::vector<SortKey>& keys);
// Keeps rows in which some cell contains `needle` (ASCII case-insensitive).
void filterRows(Table&, std::string_view needle);
// Fixed-width text with a header line, for terminals and logs; `width` 0 = as wide as needed.
std::string renderText(const Table&, size_t width = 0);

// Printed width in terminal columns (UTF-8 aware, no wide characters assumed).
size_t displayWidth(std::string_view utf8) noexcept;

}  // namespace flagos::view
