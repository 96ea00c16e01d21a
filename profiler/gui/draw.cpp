#include "profiler/gui/draw.h"

#include <imgui.h>

#include <algorithm>

namespace flagos::gui {
namespace {

bool g_capture = false;
std::vector<std::string> g_strings;

void captured(std::string_view s) {
  if (g_capture && !s.empty()) g_strings.emplace_back(s);
}

const ImVec4 kDim(0.60f, 0.63f, 0.68f, 1.0f);

}  // namespace

void beginCapture() { g_capture = true; g_strings.clear(); }
std::vector<std::string> endCapture() { g_capture = false; return std::move(g_strings); }

void text(std::string_view s) {
  captured(s);
  ImGui::TextUnformatted(s.data(), s.data() + s.size());
}

void note(std::string_view s) {
  captured(s);
  ImGui::PushStyleColor(ImGuiCol_Text, kDim);
  ImGui::PushTextWrapPos(0.0f);
  ImGui::TextUnformatted(s.data(), s.data() + s.size());
  ImGui::PopTextWrapPos();
  ImGui::PopStyleColor();
}

void tooltip(std::string_view s) {
  if (s.empty() || !ImGui::IsItemHovered()) return;
  captured(s);
  ImGui::BeginTooltip();
  ImGui::TextUnformatted(s.data(), s.data() + s.size());
  ImGui::EndTooltip();
}

int table(const char* id, view::Table& t, float height) {
  if (t.rows.empty()) { note(t.note.empty() ? "nothing to show" : t.note); return -1; }
  const ImGuiTableFlags flags = ImGuiTableFlags_Sortable | ImGuiTableFlags_SortMulti | ImGuiTableFlags_SortTristate | ImGuiTableFlags_RowBg |
                                ImGuiTableFlags_BordersInnerV | ImGuiTableFlags_Resizable | ImGuiTableFlags_Reorderable |
                                ImGuiTableFlags_Hideable | ImGuiTableFlags_ScrollY | ImGuiTableFlags_ScrollX | ImGuiTableFlags_SizingFixedFit;
  const int columns = static_cast<int>(t.columns.size());
  if (!ImGui::BeginTable(id, columns, flags, ImVec2(0, height))) return -1;
  ImGui::TableSetupScrollFreeze(0, 1);
  for (const view::Column& c : t.columns)
    ImGui::TableSetupColumn(c.title.c_str(), c.number ? ImGuiTableColumnFlags_PreferSortDescending : ImGuiTableColumnFlags_None);
  // Header cells by hand: they carry the column's explanation.
  ImGui::TableNextRow(ImGuiTableRowFlags_Headers);
  for (int i = 0; i < columns; ++i) {
    if (!ImGui::TableSetColumnIndex(i)) continue;
    const view::Column& c = t.columns[static_cast<size_t>(i)];
    captured(c.title);
    ImGui::TableHeader(c.title.c_str());
    tooltip(c.tooltip);
  }
  if (const ImGuiTableSortSpecs* specs = ImGui::TableGetSortSpecs(); specs && specs->SpecsCount > 0) {
    std::vector<view::SortKey> keys;
    for (int i = 0; i < specs->SpecsCount; ++i)
      keys.push_back({static_cast<size_t>(specs->Specs[i].ColumnIndex), specs->Specs[i].SortDirection == ImGuiSortDirection_Descending});
    view::sortRows(t, keys);
  }
  int opened = -1;
  ImGuiListClipper clipper;
  clipper.Begin(static_cast<int>(t.rows.size()));
  while (clipper.Step()) {
    for (int r = clipper.DisplayStart; r < clipper.DisplayEnd; ++r) {
      const view::Row& row = t.rows[static_cast<size_t>(r)];
      ImGui::TableNextRow();
      for (int i = 0; i < columns && i < static_cast<int>(row.cells.size()); ++i) {
        if (!ImGui::TableSetColumnIndex(i)) continue;
        const view::Cell& c = row.cells[static_cast<size_t>(i)];
        if (t.columns[static_cast<size_t>(i)].number) {
          const float free = ImGui::GetContentRegionAvail().x - ImGui::CalcTextSize(c.text.c_str()).x;
          if (free > 0) ImGui::SetCursorPosX(ImGui::GetCursorPosX() + free);
        }
        if (c.missing) ImGui::PushStyleColor(ImGuiCol_Text, kDim);
        text(c.text);
        if (c.missing) ImGui::PopStyleColor();
        tooltip(c.tooltip);
        if (ImGui::IsItemHovered() && ImGui::IsMouseDoubleClicked(0)) opened = r;
      }
    }
  }
  ImGui::EndTable();
  return opened;
}

void history(const char* label, const std::vector<float>& values, float top, std::string_view newest, float width) {
  ImGui::BeginGroup();
  note(label);
  const ImVec2 at = ImGui::GetCursorScreenPos(), size(width, 48);
  ImDrawList* list = ImGui::GetWindowDrawList();
  list->AddRectFilled(at, ImVec2(at.x + size.x, at.y + size.y), IM_COL32(24, 28, 36, 255), 4);
  if (values.size() >= 2 && top > 0) {
    std::vector<ImVec2> points;
    // One point per pixel column at most: the newest `size.x` values.
    const size_t shown = std::min(values.size(), static_cast<size_t>(size.x));
    for (size_t i = 0; i < shown; ++i) {
      const float v = std::clamp(values[values.size() - shown + i] / top, 0.0f, 1.0f);
      points.emplace_back(at.x + size.x * static_cast<float>(i) / static_cast<float>(shown - 1), at.y + size.y - 3 - v * (size.y - 6));
    }
    list->AddPolyline(points.data(), static_cast<int>(points.size()), IM_COL32(120, 190, 255, 255), 0, 1.6f);
  }
  ImGui::Dummy(size);
  text(newest);
  ImGui::EndGroup();
}

}  // namespace flagos::gui
