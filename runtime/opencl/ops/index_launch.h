// What the launchers of index.cl share: the launch data, and one function that finds the kernel and starts it.
#pragma once
#include <string>
#include <string_view>

#include "runtime/base/names.h"
#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/elementwise.h"

namespace flagos::ocl {

// See kernels/index.cl for the meaning of the places.
struct IndexMeta {
  int64_t v[124] = {};

  void sizes(const TensorRef& t) {
    v[2] = t.ndim;
    for (int d = 0; d < t.ndim; ++d) v[16 + d] = t.sizes[static_cast<size_t>(d)];
  }
  // Operand k: offset and strides, of which `skip` counts as 0 (the walked or indexed dimension).
  void operand(int k, const TensorRef& t, int skip = -1) {
    v[5 + k] = t.offset;
    for (int d = 0; d < t.ndim; ++d) v[28 + 12 * k + d] = d == skip ? 0 : t.strides[static_cast<size_t>(d)];
  }
  // The walked dimension counts as size 1 when positions are decoded.
  void walk(int dim, int64_t length) {
    v[3] = length;
    if (v[2] > 0) v[16 + dim] = 1;
  }
  // What makes values and their places of the rows of `in` along dim: operands 0 = values, 1 = in, 2 = indices.
  void rows(const TensorRef& values, const TensorRef& in, const TensorRef& indices, int dim, int64_t length) {
    sizes(in);
    const TensorRef* const all[] = {&values, &in, &indices};
    for (int k = 0; k < 3; ++k) {
      operand(k, *all[k], dim);
      if (in.ndim > 0) v[9 + k] = all[k]->strides[static_cast<size_t>(dim)];
    }
    walk(dim, length);
  }
  // Drops dimensions of size 1 of the first `operands` operands, so that runs go along one with neighbours.
  void dropUnits(int operands) {
    int64_t to = 0;
    for (int64_t d = 0; d < v[2]; ++d) {
      if (v[16 + d] == 1) continue;
      v[16 + to] = v[16 + d];
      for (int k = 0; k < operands; ++k) v[28 + 12 * k + to] = v[28 + 12 * k + d];
      ++to;
    }
    v[2] = to;
  }
};

struct IndexKernel {
  std::string_view name;             // USE_<name>
  std::string_view function;
  uint32_t number;                   // unique, for the kernel's key
  DType data = DType::float32;
  bool raw = true;                   // moves bits: the kind follows from the size alone
  DType index = DType::int64;
  std::string_view defines = {};     // further lines of the head
  NameId checked = 0;                // the name to report where indices are checked: the kernel gets the fault record
};

// Finds the kernel, fills n and the positions per work-item, and launches it with these buffers and the launch data.
Result<void> launchIndex(Queue& queue, const IndexKernel& k, int64_t n, IndexMeta& m, std::initializer_list<cl_mem> buffers, Variant variant);

}  // namespace flagos::ocl
