// Tensors for kernel tests: host data in float64 (exact for everything tested), a block of the device's pool, a view.
#pragma once
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runtime/opencl/device.h"
#include "runtime/opencl/ops/half.h"
#include "runtime/opencl/ops/variant.h"
#include "runtime/opencl/queue.h"
#include "runtime/opencl/tensor_ref.h"
#include "tests/unit/catch.h"

namespace flagos::ocl::test {

inline Queue& queue() {
  Result<Device*> d = device(0);
  INFO((d ? std::string() : d.error().text()));
  REQUIRE(d);
  return (*d)->queue();
}

inline constexpr Variant kVariants[] = {Variant::wide, Variant::tiled};
inline const char* name(Variant v) { return v == Variant::wide ? "wide" : "tiled"; }

inline void ok(const Result<void>& r) {
  INFO((r ? std::string() : r.error().text()));
  REQUIRE(r);
}

inline void encode(DType t, double v, char* to) {
  const auto put = [&](auto x) { std::memcpy(to, &x, sizeof x); };
  switch (t) {
    case DType::float32: return put(static_cast<float>(v));
    case DType::float64: return put(v);
    case DType::float16: return put(floatToHalf(static_cast<float>(v)));
    case DType::bfloat16: return put(floatToBfloat16(static_cast<float>(v)));
    case DType::int8: return put(static_cast<int8_t>(v));
    case DType::int16: return put(static_cast<int16_t>(v));
    case DType::int32: return put(static_cast<int32_t>(v));
    case DType::int64: return put(static_cast<int64_t>(v));
    case DType::uint8: return put(static_cast<uint8_t>(v));
    case DType::bool_: return put(static_cast<uint8_t>(v != 0));
    default: FAIL("dtype not in the fixture");
  }
}

inline double decode(DType t, const char* from) {
  const auto get = [&](auto x) { std::memcpy(&x, from, sizeof x); return x; };
  switch (t) {
    case DType::float32: return static_cast<double>(get(float{}));
    case DType::float64: return get(double{});
    case DType::float16: return static_cast<double>(halfToFloat(get(uint16_t{})));
    case DType::bfloat16: return static_cast<double>(bfloat16ToFloat(get(uint16_t{})));
    case DType::int8: return get(int8_t{});
    case DType::int16: return get(int16_t{});
    case DType::int32: return get(int32_t{});
    case DType::int64: return static_cast<double>(get(int64_t{}));
    case DType::uint8: case DType::bool_: return get(uint8_t{});
    default: FAIL("dtype not in the fixture"); return 0;
  }
}

// What a value becomes when stored in a dtype.
inline double rounded(DType t, double v) {
  char b[8];
  encode(t, v, b);
  return decode(t, b);
}

// A layout of `storage` elements; filled with a sentinel so that writes outside the view are seen.
struct Shape {
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;

  Shape(std::vector<int64_t> s) : sizes(std::move(s)), strides(sizes.size()) {
    int64_t step = 1;
    for (size_t d = sizes.size(); d-- > 0;) {
      strides[d] = step;
      step *= sizes[d];
    }
  }
  Shape(std::vector<int64_t> s, std::vector<int64_t> st, int64_t off = 0) : sizes(std::move(s)), strides(std::move(st)), offset(off) {}
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  int64_t reach() const {  // storage elements needed
    if (numel() == 0) return offset + 1;
    int64_t r = offset + 1;
    for (size_t d = 0; d < sizes.size(); ++d) r += (sizes[d] - 1) * strides[d];
    return r;
  }
  int64_t at(int64_t row_major) const {
    int64_t a = offset;
    for (size_t d = sizes.size(); d-- > 0;) {
      a += row_major % sizes[d] * strides[d];
      row_major /= sizes[d];
    }
    return a;
  }
  std::string text() const {
    std::string s = "sizes";
    for (int64_t v : sizes) s += " " + std::to_string(v);
    s += " strides";
    for (int64_t v : strides) s += " " + std::to_string(v);
    return s + " offset " + std::to_string(offset);
  }
};

class Tensor {
 public:
  Tensor(const Shape& shape, DType dtype) : shape_(shape), dtype_(dtype), count_(shape.reach() + 3) {
    Result<mou::Block*> b = queue().device().pool().allocate(static_cast<size_t>(count_) * dtypeBytes(dtype), 0, 0);
    REQUIRE(b);
    block_ = *b;
    std::vector<char> raw(static_cast<size_t>(count_) * dtypeBytes(dtype), char{0x5a});
    write(raw);
  }
  Tensor(const Shape& shape, DType dtype, const std::vector<double>& values) : Tensor(shape, dtype) { set(values); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { queue().device().pool().release(block_); }

  // Row-major values of the view.
  void set(const std::vector<double>& values) {
    std::vector<char> raw = storage();
    for (int64_t i = 0; i < shape_.numel(); ++i)
      encode(dtype_, values[static_cast<size_t>(i)], raw.data() + static_cast<size_t>(shape_.at(i)) * dtypeBytes(dtype_));
    write(raw);
  }
  std::vector<double> get() {
    const std::vector<char> raw = storage();
    std::vector<double> v(static_cast<size_t>(shape_.numel()));
    for (int64_t i = 0; i < shape_.numel(); ++i)
      v[static_cast<size_t>(i)] = decode(dtype_, raw.data() + static_cast<size_t>(shape_.at(i)) * dtypeBytes(dtype_));
    return v;
  }
  // True if nothing outside the view was written.
  bool untouchedOutside() {
    const std::vector<char> raw = storage();
    std::vector<bool> inside(static_cast<size_t>(count_));
    for (int64_t i = 0; i < shape_.numel(); ++i) inside[static_cast<size_t>(shape_.at(i))] = true;
    for (size_t e = 0; e < inside.size(); ++e)
      for (size_t b = 0; !inside[e] && b < dtypeBytes(dtype_); ++b)
        if (raw[e * dtypeBytes(dtype_) + b] != char{0x5a}) return false;
    return true;
  }
  std::vector<char> storage() {
    std::vector<char> raw(static_cast<size_t>(count_) * dtypeBytes(dtype_));
    ok(queue().read(raw.data(), buffer(), block_->offset, raw.size(), true));
    return raw;
  }
  void write(const std::vector<char>& raw) { ok(queue().write(buffer(), block_->offset, raw.data(), raw.size(), true)); }
  cl_mem buffer() const { return static_cast<cl_mem>(mou::slabHandle(*block_)); }

  TensorRef ref() const {
    TensorRef t;
    t.buffer = buffer();
    t.base = static_cast<char*>(block_->address) - block_->offset;
    t.dtype = dtype_;
    t.offset = static_cast<int64_t>(block_->offset / dtypeBytes(dtype_)) + shape_.offset;
    t.ndim = static_cast<int>(shape_.sizes.size());
    for (size_t d = 0; d < shape_.sizes.size(); ++d) {
      t.sizes[d] = shape_.sizes[d];
      t.strides[d] = shape_.strides[d];
    }
    return t;
  }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }

 private:
  Shape shape_;
  DType dtype_;
  int64_t count_;
  mou::Block* block_ = nullptr;
};

// Repeatable values in [low, high], rounded to the dtype.
inline std::vector<double> values(int64_t n, DType t, double low, double high, uint32_t seed = 1) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<double> dist(low, high);
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) x = rounded(t, dist(gen));
  return v;
}

// |got - want| <= absolute + relative * |want|; NaN equals NaN, infinities must match.
inline bool close(double got, double want, double relative, double absolute) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= absolute + relative * std::fabs(want);
}
inline void checkClose(const std::vector<double>& got, const std::vector<double>& want, double relative, double absolute) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (!close(got[i], want[i], relative, absolute)) {
      INFO("element " << i << ": got " << got[i] << ", want " << want[i]);
      REQUIRE(false);
    }
  REQUIRE(true);
}

// What ops_special_test.cpp compares with values computed elsewhere.
std::vector<std::string> specialFunctionsTested();

// Tolerances by dtype: {relative, absolute} of PyTorch's own op tests, a little tighter for float32.
inline double relativeFor(DType t) {
  switch (t) {
    case DType::float32: return 2e-6;
    case DType::float64: return 1e-12;
    case DType::float16: return 1.1e-3;
    case DType::bfloat16: return 8.5e-3;
    default: return 0;
  }
}

}  // namespace flagos::ocl::test
