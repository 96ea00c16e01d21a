// Full-screen `flagos top` on a terminal (ncurses). Draws the tables of profiler/view and nothing else.
#pragma once
#include <string>

#include "profiler/view/session.h"
#include "runtime/base/result.h"

namespace flagos::tui {

// Returns when the user quits. Fails at once if stdout is no terminal, with the option to use instead.
// Keys: 1-5 or Tab screens, arrows move, < > choose the sort column, r reverse, / filter, p pause, q quit.
Result<void> run(view::Session& session, const std::string& first_screen, double interval_s);

}  // namespace flagos::tui
