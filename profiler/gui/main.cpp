// flagos-top: the desktop monitor. A refresh thread takes snapshots; the window redraws when one arrives or the user acts.
#include <GLFW/glfw3.h>
#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl2.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <thread>

#include "profiler/gui/app.h"
#include "profiler/gui/draw.h"
#include "profiler/gui/screenshot.h"
#include "profiler/view/screens.h"
#include "runtime/base/version.h"

namespace {

using namespace flagos;

int complain(const Error& e) {
  std::fprintf(stderr, "flagos-top: %s\n", e.text().c_str());
  return static_cast<int>(e.exit);
}

std::string g_glfw_error;

void style() {
  ImGui::StyleColorsDark();
  ImGuiStyle& s = ImGui::GetStyle();
  s.WindowRounding = 0;
  s.FrameRounding = s.TabRounding = 4;
  s.CellPadding = ImVec2(8, 4);
  s.WindowPadding = ImVec2(12, 10);
  s.Colors[ImGuiCol_WindowBg] = ImVec4(0.07f, 0.08f, 0.10f, 1);
  s.Colors[ImGuiCol_TableRowBgAlt] = ImVec4(1, 1, 1, 0.03f);
  s.Colors[ImGuiCol_TableHeaderBg] = ImVec4(0.14f, 0.17f, 0.22f, 1);
  s.Colors[ImGuiCol_TabActive] = ImVec4(0.20f, 0.34f, 0.52f, 1);
  // Latin, punctuation and the dashes and dots that the tables use.
  static const ImWchar ranges[] = {0x20, 0xFF, 0x2010, 0x2027, 0x2190, 0x2193, 0x3bc, 0x3bc, 0};
  for (const char* font : {"/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "/usr/share/fonts/TTF/DejaVuSans.ttf"})
    if (::access(font, R_OK) == 0) { ImGui::GetIO().Fonts->AddFontFromFileTTF(font, 15, nullptr, ranges); return; }
}

struct Options {
  int pid = 0;
  double interval = 1.0;
  std::string screen = "overview", file, screenshot;
  int width = 1500, height = 900;
};

int run(const Options& o) {
  if (o.screen != "overview" && !view::screen(o.screen))
    return complain(fail("no screen '" + o.screen + "'", "There are: overview, devices, lines, routes, fallbacks, processes"));
  view::SessionOptions so;
  if (o.pid) so.pid = o.pid;
  so.file = o.file;
  auto session = view::Session::open(so);
  if (!session) return complain(session.error());

  glfwSetErrorCallback([](int, const char* text) { g_glfw_error = text; });
  if (!glfwInit()) return complain(fail("no display to open a window on (" + g_glfw_error + ")", "On a machine without a screen: xvfb-run -a flagos-top ..., or use flagos top"));
  GLFWwindow* window = glfwCreateWindow(o.width, o.height, "FlagOS", nullptr, nullptr);
  if (!window) {
    glfwTerminate();
    return complain(fail("no OpenGL window can be made (" + g_glfw_error + ")", "Install libgl1-mesa-dri, or use flagos top"));
  }
  glfwMakeContextCurrent(window);
  glfwSwapInterval(1);
  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;
  style();
  ImGui_ImplGlfw_InitForOpenGL(window, true);
  ImGui_ImplOpenGL2_Init();

  gui::App app(o.screen);
  std::atomic<bool> quit{false};
  // A picture waits for four snapshots, so that its histories have something to draw (a saved file has only one).
  std::atomic<int> snapshots{0};
  const int wanted = o.file.empty() ? 4 : 1;
  const double interval = o.screenshot.empty() ? o.interval : std::min(o.interval, 0.3);
  std::mutex mutex;
  std::condition_variable wake;
  std::thread refresher([&] {
    while (!quit) {
      app.update(session->refresh());
      ++snapshots;
      glfwPostEmptyEvent();
      std::unique_lock lock(mutex);
      wake.wait_for(lock, std::chrono::duration<double>(interval), [&] { return quit.load(); });
    }
  });

  int result = 0, settled = 0;
  while (!glfwWindowShouldClose(window)) {
    glfwWaitEventsTimeout(o.screenshot.empty() ? o.interval : 0.05);
    // Three frames after every event let hovers, popups and column widths settle.
    for (int i = 0; i < 3; ++i) {
      glfwPollEvents();
      ImGui_ImplOpenGL2_NewFrame();
      ImGui_ImplGlfw_NewFrame();
      ImGui::NewFrame();
      gui::beginCapture();
      app.draw();
      const auto strings = gui::endCapture();
      ImGui::Render();
      int width, height;
      glfwGetFramebufferSize(window, &width, &height);
      glViewport(0, 0, width, height);
      glClearColor(0.07f, 0.08f, 0.10f, 1);
      glClear(GL_COLOR_BUFFER_BIT);
      ImGui_ImplOpenGL2_RenderDrawData(ImGui::GetDrawData());
      if (!o.screenshot.empty() && snapshots >= wanted && ++settled == 9) {
        if (auto written = gui::writeScreenshot(o.screenshot, width, height, strings); !written) result = complain(written.error());
        glfwSetWindowShouldClose(window, GLFW_TRUE);
      }
      glfwSwapBuffers(window);
      if (glfwWindowShouldClose(window)) break;
    }
  }
  {
    std::lock_guard lock(mutex);
    quit = true;
  }
  wake.notify_all();
  refresher.join();
  ImGui_ImplOpenGL2_Shutdown();
  ImGui_ImplGlfw_Shutdown();
  ImGui::DestroyContext();
  glfwDestroyWindow(window);
  glfwTerminate();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Devices, source lines and routes of running processes, in a window", "flagos-top"};
  Options o;
  app.set_version_flag("--version", std::string("flagos-top ") + flagos::kVersion);
  app.add_option("--pid", o.pid, "Only this process");
  app.add_option("--screen", o.screen, "First screen: overview, devices, lines, routes, fallbacks, processes");
  app.add_option("--interval", o.interval, "Seconds between refreshes")->check(CLI::Range(0.1, 60.0));
  app.add_option("--file", o.file, "Show a saved document of `flagos top --once --json`");
  app.add_option("--screenshot", o.screenshot, "Write one picture to F.png and its words to F.txt, then exit");
  app.add_option("--width", o.width)->check(CLI::Range(320, 8192));
  app.add_option("--height", o.height)->check(CLI::Range(240, 8192));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    return complain(fail(e.what(), "See flagos-top --help"));
  }
  return run(o);
}
