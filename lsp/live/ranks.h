// Several processes of one job (ranks of a distributed run): which belong together, and how far their values differ.
//
// Values of ranks are never added up: each rank has its own device memory. What is shown is the maximum, the spread, and
// who has it.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/telemetry/model.h"

namespace flagos::lsp {

struct LiveFile;

struct Rank {
  int rank = -1;                        // -1: not a rank of a job that names them
  std::string job;                      // equal for processes of one job; "" = alone
};

// From the process's environment and command line, as torchrun and torch.multiprocessing leave them. `root`: "" or the
// folder to read instead of the machine.
Rank rankOf(int pid, const std::string& root = {});
// "rank 3 (pid 80)", or "pid 80".
std::string rankName(int pid, const std::map<int, Rank>& ranks);

struct Spread {
  double most = 0, least = 0;
  std::string most_on, least_on;
  size_t of = 0;                        // processes that have a value
};

struct RankValues { std::string name; const LiveFile* values; };
// Fills the spreads of `into` (one of `all`) from all ranks' values of the same places.
void addSpread(LiveFile& into, const std::vector<RankValues>& all);

}  // namespace flagos::lsp
