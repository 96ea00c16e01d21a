#include "lsp/text/parse_worker.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runtime/base/clock.h"

extern "C" const TSLanguage* tree_sitter_python(void);

namespace flagos::lsp {
namespace {

constexpr auto kGrace = std::chrono::seconds(1);
std::atomic<unsigned> abandoned{0};

struct Shared {
  std::mutex lock;
  std::condition_variable wake, done;
  std::string text;
  TSTree* old = nullptr;
  TSTree* result = nullptr;
  uint64_t deadline = 0;
  bool busy = false, stop = false, left = false;   // left: nobody waits any more

  ~Shared() {
    if (old) ts_tree_delete(old);
    if (result) ts_tree_delete(result);
  }
};

const char* readChunk(void* payload, uint32_t byte, TSPoint, uint32_t* length) {
  const auto& text = static_cast<Shared*>(payload)->text;
  *length = byte >= text.size() ? 0 : static_cast<uint32_t>(text.size() - byte);
  return byte >= text.size() ? "" : text.data() + byte;
}

void work(const std::shared_ptr<Shared>& s) {
  const std::unique_ptr<TSParser, void (*)(TSParser*)> parser{ts_parser_new(), ts_parser_delete};
  ts_parser_set_language(parser.get(), tree_sitter_python());
  std::unique_lock guard(s->lock);
  while (true) {
    s->wake.wait(guard, [&] { return s->busy || s->stop; });
    if (s->stop) return;
    guard.unlock();   // text and old are this thread's while busy
    TSInput input{s.get(), readChunk, TSInputEncodingUTF8, nullptr};
    TSParseOptions options{s.get(), [](TSParseState* state) { return nowNs() > static_cast<Shared*>(state->payload)->deadline; }};
    ts_parser_reset(parser.get());
    TSTree* tree = ts_parser_parse_with_options(parser.get(), s->old, input, options);
    guard.lock();
    s->result = tree;
    s->busy = false;
    if (s->left) return;
    s->done.notify_one();
  }
}

class Worker {
 public:
  ~Worker() { end(); }
  TSTree* parse(std::string text, const TSTree* old, uint64_t budget_ns) {
    if (!shared_) {
      shared_ = std::make_shared<Shared>();
      thread_ = std::thread(work, shared_);
    }
    auto& s = *shared_;
    std::unique_lock guard(s.lock);
    s.text = std::move(text);
    if (s.old) ts_tree_delete(s.old);
    s.old = old ? ts_tree_copy(old) : nullptr;
    s.deadline = nowNs() + budget_ns;
    s.busy = true;
    s.wake.notify_one();
    if (!s.done.wait_for(guard, std::chrono::nanoseconds(budget_ns) + kGrace, [&] { return !s.busy; })) {
      s.left = true;
      guard.unlock();
      ++abandoned;
      thread_.detach();
      shared_.reset();
      return nullptr;
    }
    TSTree* out = s.result;
    s.result = nullptr;
    s.text.clear();
    return out;
  }

 private:
  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  void end() {
    if (!shared_) return;
    {
      const std::lock_guard guard(shared_->lock);
      shared_->stop = true;
    }
    shared_->wake.notify_one();
    thread_.join();
  }
};

}  // namespace

TSTree* parseWatched(std::string text, const TSTree* old, uint64_t budget_ns) {
  thread_local Worker worker;
  return worker.parse(std::move(text), old, budget_ns);
}

unsigned abandonedParses() { return abandoned; }

}  // namespace flagos::lsp
