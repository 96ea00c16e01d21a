#include "runtime/torch/site.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>

#include "runtime/python/sites/sites.h"

namespace flagos::glue {
namespace {

// Autograd gives every node of a thread a rising number before its operator reaches us. What was made since the last
// operator of this thread belongs to the present one.
void noteForward(telemetry::SiteId site) noexcept {
  thread_local uint64_t noted = 0;
  const uint64_t next = at::sequence_number::peek();
  if (next == noted) return;
  const uint64_t thread = at::RecordFunction::currentThreadId();
  constexpr uint64_t kMost = 16;  // nodes of one operator; more would be other people's
  for (uint64_t n = std::max(noted, next < kMost ? 0 : next - kMost); n < next; ++n)
    telemetry::rememberForward(thread, n, site);
  noted = next;
}

}  // namespace

telemetry::SiteId readSite() noexcept {
  if (const auto node = torch::autograd::get_current_node()) {
    if (const auto forward = telemetry::forwardSite(node->thread_id(), node->sequence_nr()))
      return telemetry::backwardSite(forward);
    return telemetry::backwardCaller(torch::autograd::get_current_graph_task_id());
  }
  const auto site = telemetry::currentSite();
  if (site) noteForward(site);
  return site;
}

}  // namespace flagos::glue
