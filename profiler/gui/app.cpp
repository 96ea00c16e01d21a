#include "profiler/gui/app.h"

#include <imgui.h>

#include <cstdio>

#include "profiler/gui/draw.h"
#include "profiler/view/screens.h"
#include "runtime/base/clock.h"

namespace flagos::gui {
namespace {

void push(std::vector<float>& values, double v) {
  if (values.size() >= 600) values.erase(values.begin());
  values.push_back(static_cast<float>(v));
}

std::string key(const telemetry::ProcessRow& p, const telemetry::DeviceRow& d, const char* what) {
  return std::to_string(p.pid) + " " + d.device + " " + what;
}

}  // namespace

void App::update(Result<std::vector<telemetry::ProcessRow>> rows) {
  std::lock_guard lock(mutex_);
  updated_ns_ = nowNs();
  if (!rows) { trouble_ = rows.error().text(); return; }
  trouble_.clear();
  rows_ = std::move(*rows);
  for (const auto& p : rows_)
    for (const auto& d : p.devices) {
      if (p.state != "live") continue;
      if (d.allocated.value) push(history_[key(p, d, "memory")], *d.allocated.value);
      if (d.utilisation.value) push(history_[key(p, d, "busy")], *d.utilisation.value);
    }
}

void App::overview(std::vector<telemetry::ProcessRow>& rows) {
  const float width = ImGui::GetContentRegionAvail().x, height = ImGui::GetContentRegionAvail().y;
  view::Table devices = view::devicesScreen(rows);
  table("devices", devices, 26.0f * static_cast<float>(1 + std::min<size_t>(devices.rows.size(), 4)));
  bool first = true;
  for (const auto& p : rows)
    for (const auto& d : p.devices) {
      const auto memory = history_.find(key(p, d, "memory")), busy = history_.find(key(p, d, "busy"));
      if (memory == history_.end()) continue;
      if (!first) ImGui::SameLine();
      first = false;
      const float peak = static_cast<float>(d.allocated_peak.value.value_or(1));
      history((std::to_string(p.pid) + " " + d.device + " allocated, up to the peak").c_str(), memory->second, peak,
              format(d.allocated) + " of peak " + format(d.allocated_peak), width * 0.24f);
      if (busy != history_.end()) {
        ImGui::SameLine();
        history((std::to_string(p.pid) + " " + d.device + " busy, 0 to 100 %").c_str(), busy->second, 100, format(d.utilisation), width * 0.24f);
      }
    }
  view::Table lines = view::linesScreen(rows), routes = view::routesScreen(rows);
  view::filterRows(lines, filter_);
  view::filterRows(routes, filter_);
  text("Lines");
  table("lines", lines, height * 0.36f);
  text("Routes");
  table("routes", routes, ImGui::GetContentRegionAvail().y - 4);
}

void App::draw() {
  std::lock_guard lock(mutex_);
  const ImGuiIO& io = ImGui::GetIO();
  ImGui::SetNextWindowPos(ImVec2(0, 0));
  ImGui::SetNextWindowSize(io.DisplaySize);
  ImGui::Begin("flagos-top", nullptr, ImGuiWindowFlags_NoDecoration | ImGuiWindowFlags_NoMove | ImGuiWindowFlags_NoSavedSettings |
                                         ImGuiWindowFlags_NoBringToFrontOnFocus);
  char status[256];
  const double age = updated_ns_ ? static_cast<double>(nowNs() - updated_ns_) * 1e-9 : 0;
  std::snprintf(status, sizeof status, "%zu process%s, values %.1f s old", rows_.size(), rows_.size() == 1 ? "" : "es", age);
  text(trouble_.empty() ? status : trouble_.c_str());
  ImGui::SameLine();
  ImGui::SetCursorPosX(io.DisplaySize.x - 320);
  ImGui::SetNextItemWidth(300);
  ImGui::InputTextWithHint("##filter", "filter (Ctrl+F)", filter_, sizeof filter_);
  if (io.KeyCtrl && ImGui::IsKeyPressed('F', false)) ImGui::SetKeyboardFocusHere(-1);
  if (ImGui::BeginTabBar("screens")) {
    const auto tab = [&](const char* name, const char* title) {
      const bool select = wanted_ == name;
      return ImGui::BeginTabItem(title, nullptr, select ? ImGuiTabItemFlags_SetSelected : ImGuiTabItemFlags_None);
    };
    if (tab("overview", "Overview")) {
      overview(rows_);
      ImGui::EndTabItem();
    }
    for (const view::Screen& s : view::screens()) {
      if (!tab(s.name, s.title)) continue;
      note(s.about);
      view::Table t = s.make(rows_);
      view::filterRows(t, filter_);
      table(s.name, t, 0);
      ImGui::EndTabItem();
    }
    ImGui::EndTabBar();
  }
  wanted_.clear();
  ImGui::End();
}

}  // namespace flagos::gui
