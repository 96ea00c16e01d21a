#include "runtime/opencl/ops/layout.h"

#include <algorithm>
#include <cstdlib>
#include <string>

namespace flagos::ocl {
namespace {

std::string shapeText(const TensorRef& t) {
  std::string s = "[";
  for (int i = 0; i < t.ndim; ++i) s += (i ? ", " : "") + std::to_string(t.sizes[static_cast<size_t>(i)]);
  return s + "]";
}

void swapDims(Layout& l, size_t i, size_t j) {
  std::swap(l.sizes[i], l.sizes[j]);
  for (int k = 0; k < l.operands; ++k) std::swap(l.strides[static_cast<size_t>(k)][i], l.strides[static_cast<size_t>(k)][j]);
}

// Should dimension i lie outside (before) dimension j? The first operand that tells them apart decides.
bool outer(const Layout& l, size_t i, size_t j) {
  for (int k = 0; k < l.operands; ++k) {
    const int64_t a = std::llabs(l.strides[static_cast<size_t>(k)][i]), b = std::llabs(l.strides[static_cast<size_t>(k)][j]);
    if (a == 0 || b == 0 || a == b) continue;
    return a > b;
  }
  return i < j;
}

bool mergeable(const Layout& l, size_t i, size_t j) {  // i directly outside j
  for (int k = 0; k < l.operands; ++k) {
    const auto& s = l.strides[static_cast<size_t>(k)];
    if (s[i] != s[j] * l.sizes[j]) return false;
  }
  return true;
}

}  // namespace

int64_t Layout::numel() const noexcept {
  int64_t n = 1;
  for (int i = 0; i < ndim; ++i) n *= sizes[static_cast<size_t>(i)];
  return n;
}

Result<Layout> makeLayout(std::span<const TensorRef> refs, bool reorder, const char* op) {
  Layout l;
  l.operands = static_cast<int>(refs.size());
  const TensorRef& lead = refs[0];
  size_t nd = 0;
  for (int d = 0; d < lead.ndim; ++d) {
    const auto ud = static_cast<size_t>(d);
    const int64_t size = lead.sizes[ud];
    if (size != 1) l.sizes[nd] = size;
    for (size_t k = 0; k < refs.size(); ++k) {
      const int own = d - (lead.ndim - refs[k].ndim);
      const int64_t have = own >= 0 ? refs[k].sizes[static_cast<size_t>(own)] : 1;
      if (have != size && have != 1)
        return fail(std::string(op) + ": shape " + shapeText(refs[k]) + " does not broadcast to " + shapeText(lead));
      if (size != 1) l.strides[k][nd] = have == 1 ? 0 : refs[k].strides[static_cast<size_t>(own)];
    }
    if (size != 1) ++nd;
  }
  for (const TensorRef& r : refs)
    if (r.ndim > lead.ndim) return fail(std::string(op) + ": shape " + shapeText(r) + " does not broadcast to " + shapeText(lead));
  if (reorder)
    for (size_t i = 1; i < nd; ++i)  // insertion sort: few dimensions, nearly always in order
      for (size_t j = i; j > 0 && outer(l, j, j - 1); --j) swapDims(l, j, j - 1);
  if (nd > 1) {
    size_t kept = 0;
    for (size_t d = 1; d < nd; ++d) {
      if (mergeable(l, kept, d)) {
        l.sizes[kept] *= l.sizes[d];
        for (size_t k = 0; k < refs.size(); ++k) l.strides[k][kept] = l.strides[k][d];
        continue;
      }
      ++kept;
      l.sizes[kept] = l.sizes[d];
      for (size_t k = 0; k < refs.size(); ++k) l.strides[k][kept] = l.strides[k][d];
    }
    nd = kept + 1;
  }
  if (nd == 0) {
    nd = 1;
    l.sizes[0] = 1;
  }
  l.ndim = static_cast<int>(nd);
  return l;
}

bool fits32(const Layout& l) noexcept {
  constexpr int64_t limit = int64_t{1} << 30;
  if (l.numel() >= limit) return false;
  for (int k = 0; k < l.operands; ++k) {
    int64_t reach = 0;
    for (int d = 0; d < l.ndim; ++d)
      reach += (l.sizes[static_cast<size_t>(d)] - 1) * std::llabs(l.strides[static_cast<size_t>(k)][static_cast<size_t>(d)]);
    if (reach >= limit) return false;
  }
  return true;
}

}  // namespace flagos::ocl
