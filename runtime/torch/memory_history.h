// Memory snapshots in PyTorch's own format (torch.cuda.memory._snapshot), which its viewer and torch.cuda._memory_viz read:
// segments and blocks as they stand, and, where asked for, a history of what was handed out and given back,
// and of segments that came and went. Frames are the source line that asked.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/mou/pool.h"

namespace flagos::glue {

enum class MemoryAction : uint8_t { alloc, free, segment_alloc, segment_free };

struct MemoryEvent {
  MemoryAction action;
  uint64_t address, bytes;
  uint32_t device, queue, site;
  uint64_t ns;           // nowNs()
};

// Keeps the last `most` events from now on; 0 stops and forgets. Off at start: it costs a lock per allocation.
void recordMemoryHistory(size_t most);
std::vector<MemoryEvent> memoryHistory();

// From allocation and deletion: takes no GIL.
void noteMemory(bool allocated, const mou::Block& block) noexcept;
// After slabs may have gone back to a device.
void noteSegments() noexcept;

}  // namespace flagos::glue
