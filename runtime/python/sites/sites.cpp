#include "runtime/python/sites/sites.h"

#include <pthread.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "runtime/python/sites/frames.h"
#include "runtime/python/sites/resolve.h"

namespace flagos::telemetry {
namespace {

constexpr SiteId kLibrary = 0xffffffffu;      // a place that is not the user's: look at the caller
constexpr int kMostFrames = 256;              // deeper than any model nests torch's own calls
constexpr size_t kMostCode = 1u << 18;        // code objects kept for ever; beyond, new ones are "not attributed"

// Places of all threads; each thread has a small cache before it. The mutex is never held while the GIL is taken.
struct Places {
  std::mutex mutex;
  std::unordered_map<uintptr_t, SiteId> sites;
  std::unordered_set<PyCodeObject*> code;     // ours to keep; only with the GIL
};
Places* makePlaces() {
  auto* p = new Places;
  static Places* self = p;
  ::pthread_atfork([] { self->mutex.lock(); }, [] { self->mutex.unlock(); }, [] { self->mutex.unlock(); });
  return p;
}
Places& places() {
  static Places* const p = makePlaces();
  return *p;
}
[[maybe_unused]] const bool g_made = (places(), true);   // at load, never in the middle of a fork

std::atomic<bool> g_direct{false}, g_ready{false};

struct CacheEntry { uintptr_t key; SiteId site; };
constexpr uint32_t kCacheBits = 11;
thread_local CacheEntry t_cache[1u << kCacheBits];

CacheEntry& cacheEntry(uintptr_t key) noexcept {
  return t_cache[(uint64_t{key} * 0x9e3779b97f4a7c15u) >> (64 - kCacheBits)];
}

bool isFinalizing() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// With the GIL. The code object is kept from here on, so that its addresses stay its own.
SiteId resolvePlace(const frames::Place& p) {
  Places& all = places();
  if (!all.code.count(p.code)) {
    if (all.code.size() >= kMostCode) return 0;
    Py_INCREF(p.code);
    all.code.insert(p.code);
  }
  const SiteId id = resolve::isLibrary(p.code) ? kLibrary : resolve::siteOf(p.code, frames::offset(p));
  std::lock_guard lock(all.mutex);
  all.sites.emplace(p.key, id);
  return id;
}

// Takes the GIL for a block; keeps a pending Python exception as it is.
class WithGil {
 public:
  WithGil() : gil_(PyGILState_Ensure()) { PyErr_Fetch(&type_, &value_, &trace_); }
  ~WithGil() {
    PyErr_Restore(type_, value_, trace_);
    PyGILState_Release(gil_);
  }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE gil_;
  PyObject *type_ = nullptr, *value_ = nullptr, *trace_ = nullptr;
};

SiteId lookup(const frames::Place& p, bool have_gil) {
  CacheEntry& e = cacheEntry(p.key);
  if (e.key == p.key) return e.site;
  SiteId id = 0;
  bool known = false;
  {
    Places& all = places();
    std::lock_guard lock(all.mutex);
    if (const auto it = all.sites.find(p.key); it != all.sites.end()) id = it->second, known = true;
  }
  if (!known) {
    if (have_gil) {
      id = resolvePlace(p);
    } else {
      if (!Py_IsInitialized() || isFinalizing()) return 0;
      WithGil gil;
      id = resolvePlace(p);
    }
    if (id == 0) return 0;                    // no room: not remembered
  }
  e = {p.key, id};
  return id;
}

// The public API makes a frame object for each frame it names: about ten times slower, right everywhere.
SiteId publicWalk(PyThreadState* thread) {
  SiteId found = 0;
  PyFrameObject* f = PyThreadState_GetFrame(thread);
  for (int i = 0; f && i < kMostFrames; ++i) {
    PyCodeObject* code = PyFrame_GetCode(f);
    const int at = PyFrame_GetLasti(f);
    const SiteId id = at < 0 ? kLibrary : lookup({code, frames::keyOf(code, at)}, true);
    Py_DECREF(code);
    if (id != kLibrary) { found = id; break; }
    PyFrameObject* back = PyFrame_GetBack(f);
    Py_DECREF(f);
    f = back;
  }
  Py_XDECREF(f);
  return found;
}

}  // namespace

const std::string& initSites(const std::string& torch_dir, const std::string& flagos_dir) {
  static std::string how;
  resolve::setLibraryDirs(torch_dir, flagos_dir);
  g_direct = frames::agreesWithPublicApi();
  if (g_direct) how = std::string("frames ") + frames::versionText();
  else if (!frames::directSupported()) how = std::string("public API (no direct reader for Python ") + frames::versionText() + ")";
  else how = "public API (the direct reader disagrees with it on this interpreter)";
  g_ready = true;
  return how;
}

SiteId currentSite() noexcept {
  if (!g_ready.load(std::memory_order_relaxed)) return 0;
  try {
    if (g_direct.load(std::memory_order_relaxed)) {
      const void* f = frames::innermost();
      for (int i = 0; f && i < kMostFrames; ++i, f = frames::outer(f)) {
        frames::Place p;
        if (!frames::place(f, p)) continue;
        const CacheEntry& e = cacheEntry(p.key);
        const SiteId id = e.key == p.key ? e.site : lookup(p, false);
        if (id != kLibrary) return id;
      }
      return 0;
    }
    if (!Py_IsInitialized() || isFinalizing() || !PyGILState_GetThisThreadState()) return 0;
    WithGil gil;
    return publicWalk(PyThreadState_Get());
  } catch (...) {
    return 0;                                 // out of memory: the work goes on, not attributed
  }
}

SiteId backwardCaller(int64_t graph_task) noexcept {
  struct Last { int64_t task = -1; SiteId site = 0; };
  thread_local Last last;
  if (!g_ready || !Py_IsInitialized() || isFinalizing()) return 0;
  if (graph_task >= 0 && last.task == graph_task) return last.site;
  try {
    WithGil gil;
    PyThreadState* const self = PyThreadState_Get();
    SiteId found = 0;
    int waiting = 0;
    for (PyThreadState* t = PyInterpreterState_ThreadHead(PyThreadState_GetInterpreter(self)); t; t = PyThreadState_Next(t)) {
      PyFrameObject* f = PyThreadState_GetFrame(t);
      if (!f) continue;
      PyCodeObject* code = PyFrame_GetCode(f);
      if (resolve::isBackwardCall(code)) {
        ++waiting;
        found = publicWalk(t);
      }
      Py_DECREF(code);
      Py_DECREF(f);
    }
    if (waiting != 1) found = 0;              // two backward passes at once: unknown is better than the wrong one
    last = {graph_task, found};
    return found;
  } catch (...) {
    return 0;
  }
}

}  // namespace flagos::telemetry
