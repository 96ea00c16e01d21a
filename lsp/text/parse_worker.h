// Runs one parse at a time on a thread of its own, so that a parse that never ends can be given up.
//
// tree-sitter asks its progress callback only at some points, and error recovery may go on between them; no caller must
// wait for that. A worker that does not come back in time is left to itself and a new one is made; whatever it still
// holds is freed if it ever ends.
#pragma once
#include <tree_sitter/api.h>

#include <memory>
#include <string>

namespace flagos::lsp {

// The tree of `text`, or null: it took longer than `budget_ns` (asked for nicely), or `budget_ns` plus a second (given up).
// `old`: a tree edited to fit `text`, or null; it is copied.
TSTree* parseWatched(std::string text, const TSTree* old, uint64_t budget_ns);

// Parses that were given up in this process; for tests and the log.
unsigned abandonedParses();

}  // namespace flagos::lsp
