// The host route: runs an operator's CPU kernel on npu tensors.
//
// On memory shared with the host nothing is copied: each npu storage gets a shadow CPU storage at the same address, each
// tensor a face on it, fresh results come from the npu range and are turned into npu tensors in place. On a discrete
// device the same mechanism runs on staged copies. It is the oracle and the safety net of every native kernel.
//
// Threads: any; the GIL is not needed. Errors are PyTorch's own, or name operator, device and argument.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/opencl/device.h"
#include "runtime/torch/decision.h"

namespace flagos::glue {

// CPU views of npu tensors. Tensors on one storage share one shadow, so aliasing inside an operator is kept.
class Faces {
 public:
  // Staged: bytes are read from the device when a face is made, and written back by writeBack().
  Faces(ocl::Device& device, bool staged) : device_(device), staged_(staged) {}

  at::Tensor face(const at::Tensor& npu, bool needs_bytes = true);
  // The npu tensor that stands for a CPU result: the original of a face, a view of an original's storage, or empty.
  at::Tensor original(const at::Tensor& cpu) const;
  // Sizes, strides, conj/neg bits and moved storages of the faces go back to their originals. Bytes too, if staged.
  void writeBack(bool bytes);
  size_t stagedBytes() const { return staged_bytes_; }
  std::vector<at::Tensor> originals() const;   // the npu tensors that have a face, for error texts

 private:
  struct Shadow {
    c10::Storage npu, cpu;
    void* data;
    size_t bytes;
  };
  struct Pair {
    at::Tensor npu, cpu;
  };
  Shadow& shadow(const c10::Storage& npu, bool needs_bytes);
  ocl::Device& device_;
  bool staged_;
  size_t staged_bytes_ = 0;
  c10::SmallVector<Shadow, 4> shadows_;
  c10::SmallVector<Pair, 6> pairs_;
};

// What runs on the faces; null: the operator's CPU kernel.
using HostKernel = void (*)(const c10::OperatorHandle&, torch::jit::Stack*);

// The kernel for operators that the CPU knows by another name (host_kernels.cpp); null for all others.
HostKernel hostKernelOf(std::string_view op);

// A fresh CPU result as an npu tensor: in place where its memory came from the range, else a copy.
at::Tensor npuResult(at::Tensor&& cpu, ocl::Device& device, bool staged);

// Runs the call on the host, whatever the router says (it has been asked already).
void runOnHost(const c10::OperatorHandle& op, torch::jit::Stack* stack, ocl::Device& device, HostKernel kernel = nullptr);

// Signature, decision, policy, then runOnHost: for operators without any native row.
void hostRoute(const c10::OperatorHandle& op, torch::jit::Stack* stack, HostKernel kernel = nullptr);

// Applies the fallback policy to a decision that is not an OpenCL launch: warns once per operator, or throws under forbid.
void applyPolicy(const Decision& d, const kde::Signature& s, ocl::Device& device);

// A device that shares memory with the host: a CPU tensor on the same memory, keeping it alive. Waits for pending work.
at::Tensor hostView(const at::Tensor& npu);

}  // namespace flagos::glue
