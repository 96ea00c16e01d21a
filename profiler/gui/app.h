// The window's content: what is shown is profiler/view's; this decides only where.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "profiler/view/session.h"

namespace flagos::gui {

class App {
 public:
  explicit App(std::string first_screen) : wanted_(std::move(first_screen)) {}
  // Any thread: the newest snapshot, or what went wrong while taking it.
  void update(Result<std::vector<telemetry::ProcessRow>> rows);
  // Drawing thread, inside an ImGui frame.
  void draw();

 private:
  void overview(std::vector<telemetry::ProcessRow>& rows);
  std::mutex mutex_;
  std::vector<telemetry::ProcessRow> rows_;
  std::string trouble_, wanted_;
  uint64_t updated_ns_ = 0;
  // Values over time by "pid device what"; at most 600 points each.
  std::map<std::string, std::vector<float>> history_;
  char filter_[128] = "";
};

}  // namespace flagos::gui
