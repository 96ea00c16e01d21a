#include "lsp/server/index.h"

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <set>

#include "lsp/python/workspace.h"
#include "runtime/base/clock.h"
#include "runtime/base/json.h"

namespace flagos::lsp {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kReportNs = 250'000'000;
constexpr size_t kStack = 64u << 20;   // lowering deep source recurses

bool skipped(const std::string& name) {
  static const std::set<std::string, std::less<>> names = {"node_modules", "__pycache__", "site-packages", "dist-packages", "venv", "env", "build", "dist"};
  return name.starts_with(".") || names.count(name) > 0;
}

int64_t stampOf(const struct stat& st) { return st.st_mtim.tv_sec * 1'000'000'000LL + st.st_mtim.tv_nsec; }

}  // namespace

FileSummary summarise(const std::string& path, std::string text) {
  FileSummary out;
  for (const char* word : {"device", ".to(", ".cuda(", "\"npu", "'npu", "\"cuda", "'cuda"}) out.speaks_of_devices = out.speaks_of_devices || text.find(word) != std::string::npos;
  const auto unit = makeUnit(path, std::move(text));
  if (!unit) { out.readable = false; return out; }
  for (const Node& n : unit->ast.nodes()) {
    if (n.kind == N::def || n.kind == N::class_) ++out.definitions;
    if (n.kind == N::from_import) out.imports.push_back(n.value);
    if (n.kind == N::import_) for (const Node* a : n.list) out.imports.push_back(a->value);
  }
  std::sort(out.imports.begin(), out.imports.end());
  out.imports.erase(std::unique(out.imports.begin(), out.imports.end()), out.imports.end());
  out.imports.shrink_to_fit();
  return out;
}

std::vector<std::string> pythonFiles(const std::vector<std::string>& roots, bool& cut, const std::atomic<bool>& stop) {
  std::vector<std::string> out;
  for (const auto& root : roots) {
    std::error_code ec;
    for (fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, ec), end; it != end; it.increment(ec)) {
      if (ec || stop) break;
      if (it->is_directory(ec)) {
        if (skipped(it->path().filename().string()) || fs::exists(it->path() / "pyvenv.cfg", ec)) it.disable_recursion_pending();
        continue;
      }
      if (it->path().extension() != ".py" || !it->is_regular_file(ec)) continue;
      if (out.size() >= kMaxFiles) { cut = true; break; }
      out.push_back(it->path().string());
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

struct WorkspaceIndex::State {
  std::function<void(const IndexProgress&)> progress;
  std::mutex lock;
  std::condition_variable wake;
  std::map<std::string, FileSummary> files;
  std::vector<std::string> roots, changed;
  bool start = false, end = false;
  std::atomic<bool> stop{false}, busy{false};

  void readOne(const std::string& path) {
    struct stat st{};
    if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode)) {
      const std::lock_guard guard(lock);
      files.erase(path);
      return;
    }
    {
      const std::lock_guard guard(lock);
      const auto it = files.find(path);
      if (it != files.end() && it->second.stamp == stampOf(st) && it->second.size == st.st_size) return;
    }
    FileSummary s;
    if (auto text = readFile(path, kMaxSourceBytes)) s = summarise(path, std::move(*text));
    else s.readable = false;
    s.stamp = stampOf(st);
    s.size = st.st_size;
    const std::lock_guard guard(lock);
    files[path] = std::move(s);
  }

  void readAll(const std::vector<std::string>& folders) {
    IndexProgress p;
    const auto found = pythonFiles(folders, p.cut, stop);
    p.total = found.size();
    progress(p);
    {
      const std::lock_guard guard(lock);   // what is not there any more
      std::erase_if(files, [&](const auto& f) { return !std::binary_search(found.begin(), found.end(), f.first); });
    }
    uint64_t told = nowNs();
    for (const auto& path : found) {
      while (busy && !stop) ::usleep(2000);
      if (stop) break;
      readOne(path);
      ++p.done;
      if (const uint64_t now = nowNs(); now - told > kReportNs) { told = now; progress(p); }
    }
    p.finished = true;
    p.cut = p.cut || p.done < p.total;
    ::malloc_trim(0);
    progress(p);
  }

  void run() {
    // Linux takes a thread's id here: only this thread is nice.
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
    std::unique_lock guard(lock);
    while (true) {
      wake.wait(guard, [&] { return end || start || !changed.empty(); });
      if (end) return;
      if (start) {
        start = false;
        stop = false;
        const auto folders = roots;
        guard.unlock();
        if (!folders.empty()) readAll(folders);
        guard.lock();
        continue;
      }
      const auto paths = std::move(changed);
      changed.clear();
      guard.unlock();
      for (const auto& path : paths) readOne(path);
      guard.lock();
    }
  }
};

WorkspaceIndex::WorkspaceIndex(std::function<void(const IndexProgress&)> progress) : state_(std::make_shared<State>()), busy_(state_->busy) {
  state_->progress = std::move(progress);
  const auto run = [](void* p) -> void* {
    const std::unique_ptr<std::shared_ptr<State>> state(static_cast<std::shared_ptr<State>*>(p));
    (*state)->run();
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  auto* given = new std::shared_ptr<State>(state_);
  if (pthread_create(&thread, &attributes, run, given) != 0) delete given;
  pthread_attr_destroy(&attributes);
}

WorkspaceIndex::~WorkspaceIndex() {
  {
    const std::lock_guard guard(state_->lock);
    state_->stop = state_->end = true;
  }
  state_->wake.notify_one();
}

void WorkspaceIndex::start(std::vector<std::string> roots) {
  {
    const std::lock_guard guard(state_->lock);
    state_->stop = true;   // what is going on now
    state_->start = true;
    state_->roots = std::move(roots);
  }
  state_->wake.notify_one();
}

void WorkspaceIndex::update(const std::string& path) {
  if (!path.ends_with(".py")) return;
  {
    const std::lock_guard guard(state_->lock);
    state_->changed.push_back(path);
  }
  state_->wake.notify_one();
}

std::map<std::string, FileSummary> WorkspaceIndex::files() const {
  const std::lock_guard guard(state_->lock);
  return state_->files;
}

std::vector<std::string> WorkspaceIndex::importersOf(const std::string& module) const {
  std::vector<std::string> out;
  const std::lock_guard guard(state_->lock);
  for (const auto& [path, f] : state_->files)
    for (const auto& name : f.imports)
      if (name == module || name.ends_with("." + module)) { out.push_back(path); break; }
  return out;
}

}  // namespace flagos::lsp
