#include "profiler/tui/tui.h"

#include <ncurses.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>

#include "profiler/view/screens.h"
#include "runtime/base/clock.h"

namespace flagos::tui {
namespace {

struct State {
  size_t screen = 0, row = 0, top = 0;
  size_t sort = SIZE_MAX;        // SIZE_MAX: the screen's own order
  bool descending = true, paused = false, filtering = false;
  std::string filter;
};

void put(int y, int x, const std::string& text, int width) {
  if (width > 0) mvaddnstr(y, x, text.c_str(), static_cast<int>(text.size()));
  (void)width;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

void draw(const std::vector<telemetry::ProcessRow>& rows, State& s, const std::string& trouble) {
  int height, width;
  getmaxyx(stdscr, height, width);
  erase();
  int x = 1;
  for (size_t i = 0; i < view::screens().size(); ++i) {
    const std::string title = std::to_string(i + 1) + " " + view::screens()[i].title;
    if (i == s.screen) attron(A_REVERSE);
    put(0, x, title, width - x);
    attroff(A_REVERSE);
    x += static_cast<int>(title.size()) + 2;
  }
  view::Table table = view::screens()[s.screen].make(rows);
  view::filterRows(table, s.filter);
  if (s.sort < table.columns.size()) view::sortRows(table, {{s.sort, s.descending}});
  s.row = table.rows.empty() ? 0 : std::min(s.row, table.rows.size() - 1);
  const auto text = lines(view::renderText(table, static_cast<size_t>(width)));
  const size_t room = height > 4 ? static_cast<size_t>(height) - 4 : 1;
  s.top = std::min(s.top, s.row);
  if (s.row >= s.top + room) s.top = s.row - room + 1;
  if (!text.empty()) {
    attron(A_BOLD);
    put(1, 0, text[0], width);
    attroff(A_BOLD);
  }
  for (size_t i = 0; i < room && s.top + i + 1 < text.size(); ++i) {
    if (s.top + i == s.row) attron(A_REVERSE);
    put(static_cast<int>(i) + 2, 0, text[s.top + i + 1], width);
    attroff(A_REVERSE);
  }
  if (s.row < table.rows.size()) {
    std::string detail;
    for (size_t i = 0; i < table.rows[s.row].cells.size() && i < table.columns.size(); ++i)
      if (!table.rows[s.row].cells[i].tooltip.empty() && table.columns[i].number)
        detail += (detail.empty() ? "" : " | ") + table.columns[i].title + ": " + table.rows[s.row].cells[i].tooltip;
    put(height - 2, 0, detail.substr(0, static_cast<size_t>(std::max(width, 1))), width);
  }
  std::string help = "1-5 screen  < > sort column  r reverse  / filter  p pause  q quit";
  if (s.sort < table.columns.size()) help += "   sorted by " + table.columns[s.sort].title + (s.descending ? ", largest first" : ", smallest first");
  if (!s.filter.empty() || s.filtering) help = "filter: " + s.filter + (s.filtering ? "_" : "");
  if (s.paused) help += "   PAUSED";
  if (!trouble.empty()) help = trouble;
  put(height - 1, 0, help.substr(0, static_cast<size_t>(std::max(width, 1))), width);
  refresh();
}

// False to quit.
bool key(int c, State& s) {
  const size_t columns = view::screens()[s.screen].make({}).columns.size();
  if (s.filtering) {
    if (c == '\n' || c == 27) s.filtering = false;
    else if (c == KEY_BACKSPACE || c == 127) { if (!s.filter.empty()) s.filter.pop_back(); }
    else if (c >= 32 && c < 127) s.filter += static_cast<char>(c);
    return true;
  }
  if (c == 'q') return false;
  if (c >= '1' && c < '1' + static_cast<int>(view::screens().size())) { s.screen = static_cast<size_t>(c - '1'); s.row = s.top = 0; s.sort = SIZE_MAX; }
  else if (c == '\t') { s.screen = (s.screen + 1) % view::screens().size(); s.row = s.top = 0; s.sort = SIZE_MAX; }
  else if (c == KEY_DOWN || c == 'j') ++s.row;
  else if (c == KEY_UP || c == 'k') s.row -= s.row > 0;
  else if (c == '>') s.sort = s.sort == SIZE_MAX ? 0 : (s.sort + 1) % columns;
  else if (c == '<') s.sort = s.sort == SIZE_MAX || s.sort == 0 ? columns - 1 : s.sort - 1;
  else if (c == 'r') s.descending = !s.descending;
  else if (c == '/') { s.filtering = true; s.filter.clear(); }
  else if (c == 'p') s.paused = !s.paused;
  return true;
}

}  // namespace

Result<void> run(view::Session& session, const std::string& first_screen, double interval_s) {
  if (!::isatty(STDOUT_FILENO) || !::isatty(STDIN_FILENO)) return fail("this is no terminal", "Use flagos top --once");
  State s;
  for (size_t i = 0; i < view::screens().size(); ++i)
    if (first_screen == view::screens()[i].name) s.screen = i;
  auto rows = session.refresh();
  if (!rows) return rows.error();
  std::setlocale(LC_ALL, "");
  initscr();
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  curs_set(0);
  std::string trouble;
  uint64_t last = nowNs();
  for (;;) {
    draw(*rows, s, trouble);
    timeout(static_cast<int>(interval_s * 1000));
    const int c = getch();
    if (c != ERR && !key(c, s)) break;
    if (s.paused || static_cast<double>(nowNs() - last) * 1e-9 < interval_s) continue;
    last = nowNs();
    auto next = session.refresh();
    trouble = next ? "" : next.error().text();
    if (next) rows = std::move(next);
  }
  endwin();
  return {};
}

}  // namespace flagos::tui
