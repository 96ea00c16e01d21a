// From a call on PyTorch's stack to a routing decision: signature, Router::choose, counting.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>
#include <c10/util/FunctionRef.h>

#include "runtime/kde/router.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/variant.h"

namespace flagos::glue {

enum class Place : uint8_t {
  opencl,     // a launcher runs
  host,       // host.aten: zero copy on shared memory
  fallback,   // cpu.fallback: staged copies, or a device that was asked to run OpenCL only
  refused,    // nothing is legal
};

struct Decision {
  const kde::Route* route = nullptr;
  Place place = Place::host;
  ocl::Variant variant = ocl::Variant::wide;
};

// From now on telemetry learns the names of every route that a router publishes. Once, before the first router.
void installDecisions();

// NameId of a schema ("aten::add.out"), interned once per operator.
NameId opName(const c10::FunctionSchema& schema);

// The arguments of a call, in schema order; `out=` arguments that are only written are left out, tensor lists give their
// tensors until kMaxArgs.
kde::Signature signatureOf(NameId op, const c10::FunctionSchema& schema, const c10::IValue* args, ocl::Device& device);
void addTensor(kde::Signature& s, const at::Tensor& t);

// Runs the call once with a candidate, into results of its own; false: that candidate cannot. For calls without any effect
// but their results (measure.h).
using Trial = c10::function_ref<bool(const Decision&)>;

// Chooses, and counts the call for the running site. With `trial` a route that is open is settled by timing first.
Decision decide(const kde::Signature& s, ocl::Device& device, const Trial* trial = nullptr);
// What a candidate means here. `route` is only carried along.
Decision meaningOf(kde::CandidateId id, const kde::Route& route);
// Tells the routers whether torch.use_deterministic_algorithms is on; before anything is decided or remembered.
void followDeterminism();
// What this thread decided last; may be set to nothing before a call whose decision is wanted.
Decision& lastDecision() noexcept;

}  // namespace flagos::glue
