// `flagos top`: what running processes hold and do. Full screen on a terminal, one document with --once.
#include <cstdio>
#include <thread>

#include "profiler/cli/command.h"
#include "profiler/tui/tui.h"
#include "profiler/view/screens.h"
#include "profiler/view/session.h"

namespace flagos::cli {
namespace {

struct Options {
  bool once = false, json = false, follow = false;
  int pid = 0;
  double interval = 1.0;
  std::string screen = "lines", file;
};

void printTables(const std::vector<telemetry::ProcessRow>& rows) {
  for (const view::Screen& s : view::screens())
    std::printf("%s\n%s\n", s.title, view::renderText(s.make(rows)).c_str());
}

Exit run(const Options& o) {
  if (!(o.interval >= 0.1 && o.interval <= 60))   // also not-a-number
    return report("top", fail("--interval must lie between 0.1 and 60 seconds"));
  if (!view::screen(o.screen)) return report("top", fail("no screen '" + o.screen + "'", "There are: devices, lines, routes, fallbacks, processes"));
  view::SessionOptions options;
  if (o.pid) options.pid = o.pid;
  options.file = o.file;
  options.timing_s = o.interval;
  auto session = view::Session::open(options);
  if (!session) return report("top", session.error());
  if (!o.once && !o.json && !o.follow) {
    auto done = tui::run(*session, o.screen, o.interval);
    return done ? Exit::ok : report("top", done.error());
  }
  for (;;) {
    auto rows = session->refresh();
    if (!rows) return report("top", rows.error());
    if (o.json) std::printf("%s\n", dump(view::topDocument(*rows), o.follow ? -1 : 2).c_str());
    else printTables(*rows);
    std::fflush(stdout);
    if (!o.follow) {
      if (rows->empty() && !o.json) std::fprintf(stderr, "flagos top: no process of this user uses a FlagOS device\n");
      return rows->empty() ? Exit::no_device : Exit::ok;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(o.interval));
  }
}

}  // namespace

Run setupTop(CLI::App& app) {
  auto o = std::make_shared<Options>();
  app.add_flag("--once", o->once, "Print once and exit");
  app.add_flag("--json", o->json, "Print one JSON document (with --follow: one object a line)");
  app.add_flag("--follow", o->follow, "Print again at every interval");
  app.add_option("--pid", o->pid, "Only this process");
  app.add_option("--interval", o->interval, "Seconds between refreshes, 0.1 to 60 (default 1)");
  app.add_option("--screen", o->screen, "First screen: devices, lines, routes, fallbacks, processes");
  app.add_option("--file", o->file, "Show a saved document of `flagos top --once --json`");
  return [o] { return run(*o); };
}

}  // namespace flagos::cli
