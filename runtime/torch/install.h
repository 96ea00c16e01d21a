// The backend is registered when Python says so, not when the library loads: only then is it known that PyTorch's one
// slot for outside devices is free.
#pragma once
#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace flagos::glue {

void installGuardAndHooks();
void installCoreOps();      // factories, views, copies: what the host route cannot do
void installHostRoute();    // the boxed fallback for everything else
void installHostKernels();  // operators whose CPU kernel is missing or is called by another name
void installFastPath();     // typed kernels for the hottest operators
void installAutocast();
void installAttentionBatching();  // rules of torch.func.vmap

// Grows (or shrinks, also to 0) a storage, keeping its bytes; in place where the pool can.
void resizeStorage(c10::StorageImpl& storage, size_t bytes);

}  // namespace flagos::glue
