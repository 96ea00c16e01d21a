// Memory that is used only to try something out: while one lives the peaks of the pool's statistics may rise, and at its end
// they are what they were before, or what is allocated now. Reserved memory counts: the slabs stay.
//
// Threads: any. What another thread allocates and gives back during a trial is left out of the peaks too.
#pragma once
#include "runtime/mou/pool.h"

namespace flagos::mou {

class TrialMemory {
 public:
  explicit TrialMemory(Pool& pool) : pool_(pool), before_(pool.stats()) {}
  ~TrialMemory();
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

 private:
  Pool& pool_;
  const PoolStats before_;
};

}  // namespace flagos::mou
