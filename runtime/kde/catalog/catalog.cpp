#include "runtime/kde/catalog/catalog.h"

#include <algorithm>

#include "runtime/kde/catalog/clblast.h"
#include "runtime/kde/catalog/native_ops.h"

namespace flagos::kde {
namespace {

// The predicate of every OpenCL candidate is the same sentence with the family's own numbers: see whyIllegal.
#define FLAGOS_TEMPLATE(FAMILY, SENTENCE)                                    \
  {"opencl." #FAMILY ".wide", Family::FAMILY, Shape::wide, SENTENCE},        \
  {"opencl." #FAMILY ".tiled", Family::FAMILY, Shape::tiled, SENTENCE}

constexpr CandidateRow kCandidates[] = {
    FLAGOS_TEMPLATE(pointwise, "an elementwise operator with an OpenCL kernel for these dtypes; any strides, at most 12 dimensions"),
    FLAGOS_TEMPLATE(reduce, "a reduction with an OpenCL kernel for this dtype; any strides, at most 12 dimensions"),
    FLAGOS_TEMPLATE(gemm, "a matrix product of float32, float16, bfloat16 or (with fp64) float64; any strides"),
    {"opencl.gemm.clblast", Family::gemm, Shape::library,
     "libclblast.so.1 is installed; a product of float32 or (with fp64) float64 of less than 2^31 elements; any strides"},
    FLAGOS_TEMPLATE(conv, "a 1-d or 2-d convolution of float32, float16, bfloat16 or (with fp64) float64; any strides"),
    FLAGOS_TEMPLATE(pool, "a 1-d or 2-d pooling of a floating dtype; any strides"),
    FLAGOS_TEMPLATE(softmax, "softmax or log-softmax of a floating dtype; any strides, at most 12 dimensions"),
    FLAGOS_TEMPLATE(loss, "a loss of a floating dtype with an OpenCL kernel"),
    FLAGOS_TEMPLATE(copy, "a copy or cast inside the device; any strides, at most 12 dimensions"),
    FLAGOS_TEMPLATE(fill, "a fill of a dtype that the device stores"),
    FLAGOS_TEMPLATE(random, "a random generator with an OpenCL kernel for this dtype"),
    FLAGOS_TEMPLATE(index, "an indexing or joining operator with an OpenCL kernel; any strides, at most 12 dimensions"),
    FLAGOS_TEMPLATE(foreach, "a multi-tensor update with an OpenCL kernel"),
    FLAGOS_TEMPLATE(norm, "a batch, layer or group normalisation of a floating dtype"),
    FLAGOS_TEMPLATE(attention, "scaled-dot-product attention of a floating dtype over [batch, heads, positions, size]; any strides"),
    FLAGOS_TEMPLATE(resample, "interpolation, padding, unfolding or 3-d pooling of a floating dtype; any strides, at most 5 dimensions"),
    {"opencl.composed", Family::composed, Shape::wide, "made of other operators on the device, each with a route of its own"},
    {"host.aten", Family::other, Shape::host, "the device shares memory with the host, and PyTorch has a CPU kernel"},
    {"cpu.fallback", Family::other, Shape::fallback, "PyTorch has a CPU kernel; operands are copied to the host and back"},
};
#undef FLAGOS_TEMPLATE

const FamilyRow* const kFamilyRows[] = {&kPointwiseFamily, &kReduceFamily, &kGemmFamily, &kConvFamily, &kPoolFamily,
    &kSoftmaxFamily, &kLossFamily, &kCopyFamily, &kFillFamily, &kRandomFamily, &kIndexFamily, &kForeachFamily, &kNormFamily,
    &kAttentionFamily, &kResampleFamily, &kComposedFamily, &kOtherFamily};
static_assert(std::size(kFamilyRows) == static_cast<size_t>(Family::count_));

std::string nativeIllegal(const CandidateRow& row, const Facts& f) {
  const std::string op(f.op());
  if (!f.signature().native) return "no OpenCL kernel for this call";
  const NativeOp* native = findNativeOp(f.op());
  if (!native) {
    const std::string kind = f.family() == Family::other ? "" : " (family " + std::string(familyName(f.family())) + ")";
    return op + kind + " has no OpenCL kernel";
  }
  if (native->family != row.family)
    return "it runs " + std::string(familyName(row.family)) + " operators; " + op + " is in family " +
           std::string(familyName(native->family));
  const FamilyRow& family = familyRow(row.family);
  for (int i = 0; i < f.signature().nargs && i < kMaxArgs; ++i) {
    const ArgSig& a = f.signature().args[static_cast<size_t>(i)];
    if (a.layout == Layout::none || !a.on_device) continue;   // a CPU scalar travels as a kernel argument
    const std::string dtype(dtypeName(a.dtype));
    if (a.dtype == DType::float64 && !f.device().fp64) return "float64 needs fp64, which the description of this device does not list";
    const bool main = a.dtype == f.dtype() || !family.mixed_dtypes;
    if (main && !native->takes(a.dtype))
      return "no kernel for " + dtype + ": " + op + " takes " + dtypesText(native->dtypes);
    if (isComplex(a.dtype) && !native->takes(a.dtype)) return "no kernel for " + dtype;
    if (a.rank > native->max_rank || a.rank > family.max_rank)
      return "rank " + std::to_string(a.rank) + " exceeds " + std::to_string(std::min(native->max_rank, family.max_rank));
    if (native->contiguous_only && a.layout != Layout::contiguous)
      return "argument " + std::to_string(i) + " is " + std::string(layoutName(a.layout)) + ", and the kernel wants contiguous operands";
  }
  if (f.overlapping_self) return "it writes to a tensor whose elements overlap in memory";
  return {};
}

}  // namespace

std::span<const CandidateRow> candidates() noexcept { return kCandidates; }

const CandidateRow& candidate(CandidateId id) noexcept { return kCandidates[id - 1]; }

const FamilyRow& familyRow(Family f) noexcept { return *kFamilyRows[std::min(static_cast<size_t>(f), std::size(kFamilyRows) - 1)]; }

CandidateId candidateId(std::string_view name) noexcept {
  for (size_t i = 0; i < std::size(kCandidates); ++i)
    if (kCandidates[i].name == name) return static_cast<CandidateId>(i + 1);
  return kNoCandidate;
}

std::string_view candidateName(CandidateId id) noexcept {
  return id >= 1 && id <= std::size(kCandidates) ? kCandidates[id - 1].name : std::string_view();
}

std::vector<std::string> candidateNames() {
  std::vector<std::string> out;
  for (const CandidateRow& c : kCandidates) out.emplace_back(c.name);
  return out;
}

std::string whyIllegal(const CandidateRow& row, const Facts& f) {
  switch (row.shape) {
    case Shape::wide:
    case Shape::tiled: return nativeIllegal(row, f);
    case Shape::library: {
      std::string why = nativeIllegal(row, f);
      return why.empty() ? clblastIllegal(f) : why;
    }
    case Shape::host:
      if (!f.device().shared_memory) return "the device has its own memory: host kernels cannot reach it without copies";
      break;
    case Shape::fallback: break;
  }
  const NativeOp* native = findNativeOp(f.op());
  if (native && !native->host) return "PyTorch has no CPU kernel for " + std::string(f.op());
  return {};
}

std::vector<Field> constraintFields(const CandidateRow& row, const Facts& f) {
  if (row.shape == Shape::host || row.shape == Shape::fallback) return {Field::op};
  std::vector<Field> out{Field::op, Field::dtype, Field::rank};
  if (const NativeOp* native = findNativeOp(f.op()); native && native->contiguous_only) out.push_back(Field::contiguous);
  return out;
}

Work unknownWork(const Facts& f, Field missing) {
  Work w;
  w.why = f.whyUnknown(missing);
  if (w.why.empty()) w.why = std::string(fieldInfo(missing).name) + " is unknown";
  return w;
}

Work streaming(const Facts& f, double flops_per_element, double passes, int launches) {
  const auto numel = f.number(Field::numel);
  if (!numel || f.bytes_in < 0) return unknownWork(f, Field::numel);
  Work w;
  w.flops = static_cast<double>(*numel) * flops_per_element;
  w.bytes = f.bytes_in * passes + f.bytes_out;
  w.launches = launches;
  return w;
}

}  // namespace flagos::kde
