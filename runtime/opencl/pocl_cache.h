// A kernel cache of PoCL's own for each process. Two processes that compile into one cache folder can abort each other
// (PoCL 3.1), and a second process is ordinary: data-parallel training, a test run beside a training.
#pragma once

namespace flagos::ocl {

// Before a driver is loaded: points POCL_CACHE_DIR at the first folder of cacheDir()/pocl/0 ... 31 that no living process
// holds (a lock that ends with the process). Processes that follow each other so share a warm cache, those that run
// together do not. Where cacheDir() is full or cannot be written, a private
// folder for temporary files takes its place, and stderr says so. Does nothing where the user has set POCL_CACHE_DIR. Kernel files that were cut
// short are removed, since PoCL would abort over them. Idempotent.
void privatePoclCache() noexcept;

}  // namespace flagos::ocl
