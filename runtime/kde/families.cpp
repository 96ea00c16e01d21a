#include "runtime/kde/families.h"

#include <algorithm>
#include <array>

#include "runtime/kde/catalog/native_ops.h"

namespace flagos::kde {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Family::count_)> kFamilies = {
    "pointwise", "reduce", "gemm", "conv", "pool", "softmax", "loss", "copy", "fill", "random", "index", "foreach",
    "norm", "attention", "resample", "composed", "other"};

using enum Field;
using T = FieldType;

constexpr FieldInfo kFields[] = {
    {op, "op", T::text, "operator's name; without an overload it means all of them; * and ? are wildcards"},
    {dtype, "dtype", T::dtype, "element type of the first floating-point operand, else of the first operand"},
    {rank, "rank", T::integer, "largest number of dimensions among the operands"},
    {numel, "numel", T::integer, "elements of the largest operand"},
    {bytes, "bytes", T::bytes, "bytes of all operands together"},
    {contiguous, "contiguous", T::boolean, "true if every operand is contiguous"},
    {m, "m", T::integer, "rows of the product"},
    {n, "n", T::integer, "columns of the product"},
    {k, "k", T::integer, "inner size of the product"},
    {batch, "batch", T::integer, "matrices (bmm, baddbmm), else rows of the left operand"},
    {bias, "bias", T::boolean, "true if a bias or self is added"},
    {c, "c", T::integer, "channels"},
    {h, "h", T::integer, "height of the input"},
    {w, "w", T::integer, "width of the input"},
    {r, "r", T::integer, "height of the filter"},
    {s, "s", T::integer, "width of the filter"},
    {stride, "stride", T::integer, "stride (the larger of both)"},
    {padding, "padding", T::integer, "padding (the larger of both)"},
    {dilation, "dilation", T::integer, "dilation (the larger of both)"},
    {groups, "groups", T::integer, "groups"},
    {transposed, "transposed", T::boolean, "true for a transposed convolution"},
    {rows, "rows", T::integer, "rows"},
    {outputs, "outputs", T::integer, "results of the reduction"},
    {reduced, "reduced", T::integer, "elements folded into one result"},
    {inner, "inner", T::integer, "distance between neighbours of a row, in elements"},
    {tensors, "tensors", T::integer, "tensors in the list"},
    {indices, "indices", T::integer, "elements of the index operand"},
    {device_kind, "device.kind", T::kind, "discrete, npu, integrated, other or cpu"},
    {device_vendor, "device.vendor", T::text, "vendor as the driver names it; wildcards allowed"},
    {device_name, "device.name", T::text, "device name; wildcards allowed"},
    {device_firmware, "device.firmware", T::text, "firmware or vBIOS version; wildcards allowed"},
    {device_memory, "device.memory", T::bytes, "device memory in bytes (\">= 16 GiB\" is understood)"},
};
static_assert(std::size(kFields) == static_cast<size_t>(Field::count_));

constexpr FieldUse kGemm[] = {{m, "rows of the product"}, {n, "columns of the product"}, {k, "inner size of the product"},
    {batch, "matrices (bmm, baddbmm), else rows of the left operand"}, {bias, "true if a bias or self is added"}};
constexpr FieldUse kConv[] = {{n, "images in the batch"}, {c, "input channels"}, {h, "height of the input"},
    {w, "width of the input"}, {k, "output channels"}, {r, "height of the filter"}, {s, "width of the filter"},
    {stride, "stride (the larger of both)"}, {padding, "padding (the larger of both)"},
    {dilation, "dilation (the larger of both)"}, {groups, "groups"}, {transposed, "true for a transposed convolution"},
    {bias, "true if a bias is added"}};
constexpr FieldUse kPool[] = {{n, "images in the batch"}, {c, "channels"}, {h, "height of the input"},
    {w, "width of the input"}, {r, "height of the window"}, {s, "width of the window"},
    {stride, "stride (the larger of both)"}, {padding, "padding (the larger of both)"}};
constexpr FieldUse kReduce[] = {{outputs, "results of the reduction"}, {reduced, "elements folded into one result"}};
constexpr FieldUse kSoftmax[] = {{rows, "rows that are normalised"}, {n, "elements in one row"},
    {inner, "distance between neighbours of a row, in elements"}};
constexpr FieldUse kLoss[] = {{rows, "samples"}, {c, "classes"}};
constexpr FieldUse kIndex[] = {{indices, "elements of the index operand"}};
constexpr FieldUse kForeach[] = {{tensors, "tensors in the list"}};
constexpr FieldUse kNorm[] = {{n, "samples in the batch"}, {c, "channels"}};
constexpr FieldUse kAttention[] = {{batch, "samples in the batch"}, {c, "heads of the query"}, {m, "queries"}, {n, "keys"},
    {k, "size of a head"}};
constexpr FieldUse kResample[] = {{n, "samples in the batch"}, {c, "channels"}};

constexpr std::string_view kConvScalars[] = {"stride_h", "stride_w", "padding_h", "padding_w", "dilation_h", "dilation_w",
                                             "flags", "groups"};
constexpr std::string_view kPoolScalars[] = {"kernel_h", "kernel_w", "stride_h", "stride_w", "padding_h", "padding_w"};
constexpr std::string_view kReduceScalars[] = {"reduced"};
constexpr std::string_view kDimScalar[] = {"dim"};
constexpr std::string_view kAttentionScalars[] = {"causal"};
constexpr std::string_view kForeachScalars[] = {"tensors", "numel"};

// For operators that the native table does not hold. First match wins, so the special comes before the general.
struct Pattern { std::string_view glob; Family family; };
constexpr Pattern kPatterns[] = {
    {"aten::_foreach_*", Family::foreach}, {"aten::_fused_adam*", Family::foreach}, {"aten::_fused_sgd*", Family::foreach},
    {"aten::mm", Family::gemm}, {"aten::addmm*", Family::gemm}, {"aten::bmm", Family::gemm}, {"aten::baddbmm*", Family::gemm},
    {"aten::mv", Family::gemm}, {"aten::addmv*", Family::gemm}, {"aten::dot", Family::gemm}, {"aten::linear", Family::gemm},
    {"aten::matmul", Family::gemm}, {"aten::addbmm*", Family::gemm}, {"aten::vdot", Family::gemm},
    {"aten::*convolution*", Family::conv}, {"aten::conv?d", Family::conv}, {"aten::conv_transpose?d*", Family::conv},
    {"aten::*_pool?d*", Family::pool},
    {"aten::*softmax*", Family::softmax},
    {"aten::*_loss*", Family::loss}, {"aten::binary_cross_entropy*", Family::loss},
    {"aten::*batch_norm*", Family::norm}, {"aten::*layer_norm*", Family::norm}, {"aten::*group_norm*", Family::norm},
    {"aten::*instance_norm*", Family::norm},
    {"aten::*scaled_dot_product*", Family::attention}, {"aten::*rms_norm*", Family::norm},
    {"aten::*upsample_*", Family::resample}, {"aten::*reflection_pad*", Family::resample},
    {"aten::*replication_pad*", Family::resample}, {"aten::im2col*", Family::resample}, {"aten::col2im*", Family::resample},
    {"aten::copy_", Family::copy}, {"aten::_copy_from*", Family::copy}, {"aten::clone", Family::copy},
    {"aten::contiguous", Family::copy}, {"aten::_to_copy", Family::copy}, {"aten::to", Family::copy},
    {"aten::fill_", Family::fill}, {"aten::fill", Family::fill}, {"aten::zero_", Family::fill}, {"aten::zeros", Family::fill},
    {"aten::ones", Family::fill}, {"aten::full", Family::fill}, {"aten::arange", Family::fill},
    {"aten::uniform_", Family::random}, {"aten::normal_", Family::random}, {"aten::random_", Family::random},
    {"aten::bernoulli*", Family::random}, {"aten::rand*", Family::random}, {"aten::exponential_", Family::random},
    {"aten::dropout*", Family::random}, {"aten::native_dropout", Family::random},
    {"aten::gather", Family::index}, {"aten::scatter*", Family::index}, {"aten::index*", Family::index},
    {"aten::embedding*", Family::index}, {"aten::_index_put_impl_", Family::index},
    {"aten::cat", Family::index}, {"aten::_cat", Family::index}, {"aten::flip", Family::index},
    {"aten::sum", Family::reduce}, {"aten::mean", Family::reduce}, {"aten::amax", Family::reduce},
    {"aten::amin", Family::reduce}, {"aten::argmax", Family::reduce}, {"aten::argmin", Family::reduce},
    {"aten::any", Family::reduce}, {"aten::all", Family::reduce}, {"aten::prod", Family::reduce},
    {"aten::var", Family::reduce}, {"aten::std", Family::reduce}, {"aten::linalg_vector_norm", Family::reduce},
    {"aten::logsumexp", Family::reduce},
};

}  // namespace

std::string_view familyName(Family f) noexcept {
  const auto i = static_cast<size_t>(f);
  return i < kFamilies.size() ? kFamilies[i] : "other";
}

bool familyFromName(std::string_view name, Family* out) noexcept {
  for (size_t i = 0; i < kFamilies.size(); ++i)
    if (kFamilies[i] == name) { *out = static_cast<Family>(i); return true; }
  return false;
}

std::string_view baseName(std::string_view name) noexcept { return name.substr(0, name.find('.')); }

bool globMatches(std::string_view p, std::string_view t) noexcept {
  // Two pointers with one point of return: linear for the patterns people write, never exponential.
  size_t i = 0, j = 0, star = std::string_view::npos, mark = 0;
  while (j < t.size()) {
    if (i < p.size() && p[i] == '*') { star = i++; mark = j; }
    else if (i < p.size() && (p[i] == '?' || p[i] == t[j])) { ++i; ++j; }
    else if (star != std::string_view::npos) { i = star + 1; j = ++mark; }
    else return false;
  }
  while (i < p.size() && p[i] == '*') ++i;
  return i == p.size();
}

bool opMatches(std::string_view pattern, std::string_view name) noexcept {
  if (globMatches(pattern, name)) return true;
  return pattern.find('.') == std::string_view::npos && globMatches(pattern, baseName(name));
}

Family familyOf(std::string_view name) {
  if (const NativeOp* native = findNativeOp(name)) return native->family;
  for (const Pattern& p : kPatterns)
    if (globMatches(p.glob, baseName(name))) return p.family;
  return Family::other;
}

std::span<const std::string_view> scalarNames(Family f) noexcept {
  switch (f) {
    case Family::conv: return kConvScalars;
    case Family::pool: return kPoolScalars;
    case Family::reduce: return kReduceScalars;
    case Family::softmax:
    case Family::index: return kDimScalar;
    case Family::attention: return kAttentionScalars;
    case Family::foreach: return kForeachScalars;
    default: return {};
  }
}

const FieldInfo& fieldInfo(Field f) noexcept { return kFields[std::min(static_cast<size_t>(f), std::size(kFields) - 1)]; }

const FieldInfo* findField(std::string_view name) noexcept {
  for (const FieldInfo& f : kFields)
    if (f.name == name) return &f;
  return nullptr;
}

std::span<const FieldUse> familyFields(Family f) noexcept {
  switch (f) {
    case Family::gemm: return kGemm;
    case Family::conv: return kConv;
    case Family::pool: return kPool;
    case Family::reduce: return kReduce;
    case Family::softmax: return kSoftmax;
    case Family::loss: return kLoss;
    case Family::index: return kIndex;
    case Family::foreach: return kForeach;
    case Family::norm: return kNorm;
    case Family::attention: return kAttention;
    case Family::resample: return kResample;
    default: return {};
  }
}

bool familyHas(Family f, Field field) noexcept {
  if (field <= contiguous || field >= device_kind) return true;
  const auto own = familyFields(f);
  return std::any_of(own.begin(), own.end(), [&](const FieldUse& u) { return u.field == field; });
}

std::vector<std::string> fieldNames(Family f) {
  std::vector<std::string> out;
  for (const FieldInfo& i : kFields)
    if (i.field <= contiguous) out.emplace_back(i.name);
  for (const FieldUse& u : familyFields(f)) out.emplace_back(fieldInfo(u.field).name);
  for (const FieldInfo& i : kFields)
    if (i.field >= device_kind) out.emplace_back(i.name);
  return out;
}

}  // namespace flagos::kde
