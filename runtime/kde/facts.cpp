#include "runtime/kde/facts.h"

#include <algorithm>

namespace flagos::kde {
namespace {

using Number = std::optional<int64_t>;

// The call's arguments as the family reads them: undefined ones count as absent.
struct Args {
  const Signature& s;
  bool has(int i) const { return i < s.nargs && i < kMaxArgs && s.args[static_cast<size_t>(i)].layout != Layout::none; }
  const ArgSig& at(int i) const { return s.args[static_cast<size_t>(i)]; }
  int rank(int i) const { return has(i) ? at(i).rank : 0; }
  // Size of dimension d, negative d from the end.
  Number size(int i, int d) const {
    if (!has(i)) return {};
    const int r = at(i).rank;
    if (d < 0) d += r;
    if (d < 0 || d >= r || d >= kMaxRank) return {};
    return at(i).sizes[static_cast<size_t>(d)];
  }
  Number scalar(int i) const {
    if (i >= s.nscalars || i >= static_cast<int>(s.scalars.size())) return {};
    return s.scalars[static_cast<size_t>(i)];
  }
};

Number times(Number a, Number b) {
  int64_t out;
  if (!a || !b || __builtin_mul_overflow(*a, *b, &out)) return {};
  return out;
}
Number larger(Number a, Number b) {
  if (!a || !b) return a ? a : b;
  return std::max(*a, *b);
}
Number product(const Args& a, int i, int first, int last) {
  Number p = 1;
  for (int d = first; d < last; ++d) p = times(p, a.size(i, d));
  return p;
}

using Numbers = std::array<Number, static_cast<size_t>(Field::count_)>;
Number& at(Numbers& n, Field f) { return n[static_cast<size_t>(f)]; }

void gemmFacts(const Args& a, std::string_view base, Numbers& v) {
  auto set = [&](Number m, Number n, Number k, Number batch, bool bias) {
    at(v, Field::m) = m; at(v, Field::n) = n; at(v, Field::k) = k; at(v, Field::batch) = batch; at(v, Field::bias) = bias;
  };
  const std::string_view name = base.substr(base.rfind(':') + 1);
  const bool self = name.substr(0, 3) == "add" || name.substr(0, 4) == "badd";
  const int l = self ? 1 : 0, r = l + 1;
  if (name == "linear") {  // weight is [out, in]; the input may have any rank
    const Number rows = product(a, 0, 0, a.rank(0) - 1);
    return set(rows, a.size(1, 0), a.size(0, -1), rows, a.has(2));
  }
  if (name == "dot" || name == "vdot") return set(1, 1, a.size(0, 0), 1, false);
  if (a.rank(r) == 1) return set(a.size(l, -2), 1, a.size(l, -1), a.size(l, -2), self);        // mv, addmv
  if (a.rank(l) <= 2) return set(a.size(l, 0), a.size(r, -1), a.size(l, -1), a.size(l, 0), self);  // mm, addmm
  set(a.size(l, -2), a.size(r, -1), a.size(l, -1), product(a, l, 0, a.rank(l) - 2), self);     // bmm, baddbmm, matmul
}

void convFacts(const Args& a, std::string_view base, Numbers& v) {
  const bool backward = base.find("backward") != std::string_view::npos;
  const int x = backward ? 1 : 0, wt = x + 1;
  const bool line = a.rank(x) == 3;  // [N, C, L] runs as height 1
  const Number flags = a.scalar(6);
  bool transposed = flags && (*flags & 1);
  if (base.find("conv_transpose") != std::string_view::npos) transposed = true;
  const Number c = a.size(x, 1);
  Number groups = a.scalar(7);
  if (!groups && !transposed) {
    const Number per = a.size(wt, 1);
    if (c && per && *per > 0) groups = *c / *per;
  }
  if (!groups) groups = 1;
  at(v, Field::n) = a.size(x, 0);
  at(v, Field::c) = c;
  at(v, Field::h) = line ? Number(1) : a.size(x, 2);
  at(v, Field::w) = a.size(x, -1);
  at(v, Field::k) = transposed ? times(a.size(wt, 1), groups) : a.size(wt, 0);
  at(v, Field::r) = line ? Number(1) : a.size(wt, 2);
  at(v, Field::s) = a.size(wt, -1);
  at(v, Field::stride) = a.scalar(0) ? larger(a.scalar(0), a.scalar(1)) : Number(1);
  at(v, Field::padding) = a.scalar(2) ? larger(a.scalar(2), a.scalar(3)) : Number(0);
  at(v, Field::dilation) = a.scalar(4) ? larger(a.scalar(4), a.scalar(5)) : Number(1);
  at(v, Field::groups) = groups;
  at(v, Field::transposed) = transposed;
  at(v, Field::bias) = !backward && a.has(2);
}

void poolFacts(const Args& a, std::string_view base, Numbers& v) {
  const int x = base.find("backward") != std::string_view::npos ? 1 : 0;
  const bool planes = a.rank(x) == 3;  // [C, H, W]
  at(v, Field::n) = planes ? Number(1) : a.size(x, 0);
  at(v, Field::c) = planes ? a.size(x, 0) : a.size(x, 1);
  at(v, Field::h) = a.size(x, -2);
  at(v, Field::w) = a.size(x, -1);
  at(v, Field::r) = a.scalar(0);
  at(v, Field::s) = a.scalar(1) ? a.scalar(1) : a.scalar(0);
  at(v, Field::stride) = a.scalar(2) ? larger(a.scalar(2), a.scalar(3)) : larger(a.scalar(0), a.scalar(1));
  at(v, Field::padding) = a.scalar(4) ? larger(a.scalar(4), a.scalar(5)) : Number(0);
}

void familyFacts(Family f, const Args& a, std::string_view base, Numbers& v) {
  const Number first = a.has(0) ? numelOf(a.at(0)) : Number();
  switch (f) {
    case Family::gemm: return gemmFacts(a, base, v);
    case Family::conv: return convFacts(a, base, v);
    case Family::pool: return poolFacts(a, base, v);
    case Family::reduce: {
      Number reduced = a.scalar(0);
      if (!reduced || *reduced == 0) reduced = first;
      at(v, Field::reduced) = reduced;
      if (first && reduced && *reduced > 0) at(v, Field::outputs) = *first / *reduced;
      return;
    }
    case Family::softmax: {
      const int rank = a.rank(0);
      const Number dim = a.scalar(0);
      const int d = dim && *dim >= 0 && *dim < rank ? static_cast<int>(*dim) : rank - 1;
      at(v, Field::n) = rank == 0 ? Number(1) : a.size(0, d);
      at(v, Field::inner) = product(a, 0, d + 1, rank);
      at(v, Field::rows) = times(product(a, 0, 0, d), at(v, Field::inner));
      return;
    }
    case Family::loss:
      at(v, Field::rows) = a.rank(0) >= 2 ? a.size(0, 0) : Number(1);
      at(v, Field::c) = a.rank(0) >= 2 ? a.size(0, 1) : a.size(0, 0);
      return;
    case Family::index:
      for (int i = 1; i < a.s.nargs; ++i)
        if (a.has(i) && (a.at(i).dtype == DType::int64 || a.at(i).dtype == DType::int32)) {
          at(v, Field::indices) = numelOf(a.at(i));
          return;
        }
      return;
    case Family::foreach:
      at(v, Field::tensors) = a.scalar(0) ? a.scalar(0) : Number(1);
      if (a.scalar(1)) at(v, Field::numel) = a.scalar(1);
      return;
    case Family::attention: {
      const int q = base.find("backward") != std::string_view::npos ? 1 : 0;  // the gradient comes first there
      at(v, Field::batch) = a.size(q, 0);
      at(v, Field::c) = a.size(q, 1);
      at(v, Field::m) = a.size(q, 2);
      at(v, Field::n) = a.size(q + 1, 2);
      at(v, Field::k) = a.size(q, 3);
      return;
    }
    case Family::resample:
    case Family::norm:
      at(v, Field::n) = a.size(0, 0);
      at(v, Field::c) = a.size(0, 1);
      return;
    default: return;
  }
}

}  // namespace

bool isFloating(DType t) noexcept {
  return t == DType::float32 || t == DType::float64 || t == DType::float16 || t == DType::bfloat16;
}
bool isComplex(DType t) noexcept {
  return t == DType::complex32 || t == DType::complex64 || t == DType::complex128;
}

std::optional<int64_t> numelOf(const ArgSig& a) noexcept {
  if (a.rank > kMaxRank) return std::nullopt;
  int64_t n = 1;
  for (int d = 0; d < a.rank; ++d)
    if (__builtin_mul_overflow(n, a.sizes[static_cast<size_t>(d)], &n)) return std::nullopt;
  return n;
}

Facts Facts::of(const Signature& s, const dal::DeviceDescription& device) {
  Facts f;
  f.signature_ = s;
  f.device_ = &device;
  f.op_ = nameText(s.op);
  f.family_ = familyOf(f.op_);
  const std::string_view base = baseName(f.op_);
  const Args a{f.signature_};
  const int nargs = std::min<int>(s.nargs, kMaxArgs);
  const bool in_place = base.size() > 1 && base.back() == '_' && base[base.size() - 2] != '_';

  int64_t rank = 0;
  Number numel = nargs ? Number(0) : Number(), bytes = numel;
  bool contiguous = true, seen = false;
  double total = 0;
  for (int i = 0; i < nargs; ++i) {
    if (!a.has(i)) continue;
    const ArgSig& x = a.at(i);
    seen = true;
    rank = std::max<int64_t>(rank, x.rank);
    const Number n = numelOf(x);
    numel = n && numel ? Number(std::max(*numel, *n)) : Number();
    const Number b = times(n, static_cast<int64_t>(dtypeBytes(x.dtype)));
    if (bytes && b) { if (__builtin_add_overflow(*bytes, *b, &*bytes)) bytes = {}; } else { bytes = {}; }
    if (x.layout != Layout::contiguous) contiguous = false;
    if (b) total += static_cast<double>(*b);
    if (f.dtype_ == DType::other && x.on_device) f.dtype_ = x.dtype;
    if (isFloating(x.dtype) && !isFloating(f.dtype_) && x.on_device) f.dtype_ = x.dtype;
  }
  if (f.dtype_ == DType::other && a.has(0)) f.dtype_ = a.at(0).dtype;
  if (seen) {
    at(f.numbers_, Field::rank) = rank;
    at(f.numbers_, Field::numel) = numel;
    at(f.numbers_, Field::bytes) = bytes;
    at(f.numbers_, Field::contiguous) = contiguous;
  }
  if (device.memory_bytes) at(f.numbers_, Field::device_memory) = static_cast<int64_t>(device.memory_bytes);
  familyFacts(f.family_, a, base, f.numbers_);

  // Signatures leave `out=` arguments away; a result has the size of the largest operand unless the family knows better.
  f.overlapping_self = in_place && a.has(0) && a.at(0).layout == Layout::overlapping;
  if (bytes && numel) {
    f.bytes_in = total;
    f.bytes_out = static_cast<double>(*numel) * static_cast<double>(dtypeBytes(f.dtype_));
  }
  return f;
}

std::string_view Facts::text(Field f) const noexcept {
  switch (f) {
    case Field::op: return op_;
    case Field::dtype: return dtype_ == DType::other ? std::string_view() : dtypeName(dtype_);
    case Field::device_kind: return dal::kindName(device_->kind);
    case Field::device_vendor: return device_->vendor;
    case Field::device_name: return device_->name;
    case Field::device_firmware: return device_->firmware;
    default: return {};
  }
}

bool Facts::known(Field f) const noexcept {
  switch (fieldInfo(f).type) {
    case FieldType::text:
    case FieldType::dtype:
    case FieldType::kind: return !text(f).empty();
    default: return number(f).has_value();
  }
}

std::string Facts::whyUnknown(Field f) const {
  const FieldInfo& i = fieldInfo(f);
  if (known(f)) return {};
  if (!familyHas(family_, f))
    return std::string(op_) + " (family " + std::string(familyName(family_)) + ") has no operand " + std::string(i.name);
  if (f >= Field::device_kind) return std::string(i.name) + " is not known for this device";
  for (int k = 0; k < std::min<int>(signature_.nargs, kMaxArgs); ++k)
    if (signature_.args[static_cast<size_t>(k)].rank > kMaxRank)
      return std::string(i.name) + " is unknown: a signature keeps " + std::to_string(kMaxRank) + " sizes of a tensor";
  return std::string(i.name) + " does not follow from the given operands";
}

std::string Facts::show(Field f) const {
  if (!known(f)) return "unknown";
  switch (fieldInfo(f).type) {
    case FieldType::boolean: return *number(f) ? "true" : "false";
    case FieldType::integer:
    case FieldType::bytes: return std::to_string(*number(f));
    default: return std::string(text(f));
  }
}

Facts Facts::with(Field f, int64_t value) const {
  Facts out = *this;
  Number& v = at(out.numbers_, f);
  if (f == Field::numel && v && *v > 0 && bytes_in >= 0) {
    const double scale = static_cast<double>(value) / static_cast<double>(*v);
    out.bytes_in *= scale;
    out.bytes_out *= scale;
  }
  v = value;
  return out;
}

}  // namespace flagos::kde
