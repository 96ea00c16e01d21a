// Every word flagos-top draws goes through here, so that a screenshot can also be read as text.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "profiler/view/table.h"

namespace flagos::gui {

// Starts and ends collecting the strings of one frame.
void beginCapture();
std::vector<std::string> endCapture();

void text(std::string_view s);                 // one line, no wrapping
void note(std::string_view s);                 // dimmed, wrapped
void tooltip(std::string_view s);              // for the item drawn last
// A sortable, scrolling table; draws only the rows that are visible. Returns the row that was double-clicked, or -1.
// `height` in pixels, 0 = the rest of the window. Missing values are dimmed and say why in their tooltip.
int table(const char* id, view::Table& table, float height);
// A line of values over time with its newest value as text; needs at least two points.
void history(const char* label, const std::vector<float>& values, float top, std::string_view newest, float width);

}  // namespace flagos::gui
