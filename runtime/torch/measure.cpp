#include "runtime/torch/measure.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <mutex>

#include "runtime/base/clock.h"
#include "runtime/kde/measured.h"
#include "runtime/mou/trial.h"
#include "runtime/torch/state.h"

namespace flagos::glue {
namespace {

constexpr int kLeastRuns = 3, kMostRuns = 9;
constexpr double kEnough = 2e-3;     // seconds of runs after which more would tell little
constexpr double kLong = 2e-2;       // a call that takes longer is run once
constexpr double kBatch = 2e-4;      // short calls are enqueued together: waiting for each would be timed instead

// The fastest of some runs; nothing if the candidate cannot.
std::optional<kde::Measurement> timed(ocl::Queue& queue, const Trial& trial, const Decision& candidate) {
  const auto run = [&](int times) -> std::optional<double> {
    const uint64_t start = nowNs();
    for (int i = 0; i < times; ++i)
      if (!trial(candidate)) return std::nullopt;
    if (!queue.finish()) return std::nullopt;
    return static_cast<double>(nowNs() - start) * 1e-9 / times;
  };
  if (!queue.finish()) return std::nullopt;
  if (!run(1)) return std::nullopt;   // programs are built, memory is touched
  auto first = run(1);
  if (!first) return std::nullopt;
  kde::Measurement best{*first, 1, static_cast<int64_t>(std::time(nullptr))};
  double spent = *first;
  while (best.runs < kMostRuns && best.seconds < kLong && (best.runs < kLeastRuns || spent < kEnough)) {
    const int fitting = std::clamp(static_cast<int>(kBatch / std::max(best.seconds, 1e-7)), 1, 8);
    const int batch = candidate.place == Place::opencl ? fitting : 1;
    const auto again = run(batch);
    if (!again) return std::nullopt;
    best.seconds = std::min(best.seconds, *again);
    best.runs += batch;
    spent += *again * batch;
  }
  return best;
}

// What is timed is nobody's work: no line, no route and no operator of a profile takes it.
class Unseen {
 public:
  Unseen() : kept_(ocl::currentTag()), quiet_(false) { ocl::currentTag() = {}; }
  ~Unseen() { ocl::currentTag() = kept_; }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  const ocl::LaunchTag kept_;
  const at::RecordFunctionGuard quiet_;
};

}  // namespace

bool isPure(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  // Writes its running statistics, and its schema does not say so.
  if (name.find("batch_norm") != std::string::npos && name.find("backward") == std::string::npos) return false;
  for (const auto& a : schema.arguments()) {
    const bool writes = a.alias_info() && a.alias_info()->isWrite();
    if (writes && (!a.is_out() || a.type()->kind() != c10::TypeKind::TensorType)) return false;
  }
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return op && !op->hasTag(at::Tag::nondeterministic_seeded);
}

const kde::Route& settled(const kde::Signature& s, const kde::Route& open, ocl::Device& device, const Trial& trial) {
  static std::mutex one;
  thread_local bool measuring = false;   // an operator that a candidate itself calls
  if (measuring) return open;
  std::lock_guard lock(one);
  kde::Router& router = glue::router(static_cast<int>(device.index()));
  const kde::Route& now = router.reconsider(s);   // another call of the same class may have settled it
  if (!now.open) return now;
  waitForHost(device);   // what went wrong before is the program's to know, and not a candidate's fault
  const std::string shape = kde::shapeClass(s);
  std::vector<std::pair<kde::CandidateId, kde::Measurement>> times;
  const std::vector<kde::CandidateId> candidates = router.contenders(s);
  {
    const mou::TrialMemory memory(device.pool());
    const Unseen unseen;
    measuring = true;
    for (const kde::CandidateId id : candidates) {
      const Decision d = meaningOf(id, now);
      if (d.place != Place::opencl && d.place != Place::host) break;
      if (const auto m = timed(currentQueue(device), trial, d)) times.emplace_back(id, *m);
      else break;
    }
    measuring = false;
  }
  kde::MeasuredStore& store = router.measured();
  if (times.size() == candidates.size()) {
    for (const auto& [id, m] : times) store.add(shape, kde::candidateName(id), m);
    // What cannot be kept must not choose: the next run could choose otherwise.
    if (!store.save()) store.giveUp(shape);
  } else {
    store.giveUp(shape);
  }
  return router.reconsider(s);
}

}  // namespace flagos::glue
