// Families and the named operands that rules and cost models read.
#include "runtime/kde/catalog/native_ops.h"
#include "runtime/kde/facts.h"
#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {
// "m=256 n=10 ...": the family's own operands, unknown ones as ?.
std::string operands(const Signature& s) {
  static const auto device = cpuDevice();
  const Facts f = Facts::of(s, device);
  std::string out;
  for (const FieldUse& u : familyFields(f.family()))
    out += (out.empty() ? "" : " ") + std::string(fieldInfo(u.field).name) + "=" + (f.known(u.field) ? f.show(u.field) : "?");
  return out;
}
}  // namespace

TEST_CASE("operators fall into families by name, overloads aside") {
  struct Case { const char* op; const char* family; };
  const Case cases[] = {
      {"aten::add.out", "pointwise"}, {"aten::add", "pointwise"}, {"aten::mm", "gemm"}, {"aten::addmm.out", "gemm"},
      {"aten::linear", "gemm"}, {"aten::baddbmm.out", "gemm"}, {"aten::convolution_overrideable", "conv"},
      {"aten::convolution_backward_overrideable", "conv"}, {"aten::conv2d", "conv"}, {"aten::max_pool2d_with_indices.out", "pool"},
      {"aten::_log_softmax.out", "softmax"}, {"aten::nll_loss_forward.output", "loss"}, {"aten::_copy_from", "copy"},
      {"aten::zero_", "fill"}, {"aten::normal_", "random"}, {"aten::gather.out", "index"}, {"aten::_foreach_add.List", "foreach"},
      {"aten::native_batch_norm", "norm"}, {"aten::sum.IntList_out", "reduce"}, {"aten::linalg_svd.U", "other"}, {"my::op", "other"},
  };
  for (const Case& c : cases) CHECK(std::string(c.op) + " " + std::string(familyName(familyOf(c.op))) == std::string(c.op) + " " + c.family);
}

TEST_CASE("operands follow from shapes and scalars") {
  struct Case { Signature s; const char* expected; };
  const Case cases[] = {
      {mm(256, 64, 10), "m=256 n=10 k=64 batch=256 bias=false"},
      {call("aten::addmm.out", {arg({10}), arg({256, 64}), arg({64, 10})}), "m=256 n=10 k=64 batch=256 bias=true"},
      {call("aten::bmm.out", {arg({7, 2, 3}), arg({7, 3, 5})}), "m=2 n=5 k=3 batch=7 bias=false"},
      {call("aten::baddbmm.out", {arg({7, 2, 5}), arg({7, 2, 3}), arg({7, 3, 5})}), "m=2 n=5 k=3 batch=7 bias=true"},
      {call("aten::addmv.out", {arg({4}), arg({4, 6}), arg({6})}), "m=4 n=1 k=6 batch=4 bias=true"},
      {call("aten::mv", {arg({4, 6}), arg({6})}), "m=4 n=1 k=6 batch=4 bias=false"},
      {call("aten::dot", {arg({9}), arg({9})}), "m=1 n=1 k=9 batch=1 bias=false"},
      {call("aten::linear", {arg({8, 16, 32}), arg({64, 32}), arg({64})}), "m=128 n=64 k=32 batch=128 bias=true"},
      {call("aten::convolution_overrideable", {arg({8, 16, 9, 7}), arg({32, 4, 3, 5}), arg({32})}, {2, 1, 1, 0, 1, 1, 0, 4}),
       "n=8 c=16 h=9 w=7 k=32 r=3 s=5 stride=2 padding=1 dilation=1 groups=4 transposed=false bias=true"},
      {call("aten::conv2d", {arg({8, 16, 9, 7}), arg({32, 4, 3, 5})}),
       "n=8 c=16 h=9 w=7 k=32 r=3 s=5 stride=1 padding=0 dilation=1 groups=4 transposed=false bias=false"},
      {call("aten::convolution_backward_overrideable", {arg({8, 32, 9, 7}), arg({8, 16, 9, 7}), arg({32, 16, 3, 3})}, {1, 1, 1, 1, 1, 1, 14, 1}),
       "n=8 c=16 h=9 w=7 k=32 r=3 s=3 stride=1 padding=1 dilation=1 groups=1 transposed=false bias=false"},
      {call("aten::convolution_overrideable", {arg({8, 16, 9, 7}), arg({16, 4, 3, 3})}, {2, 2, 0, 0, 1, 1, 1, 2}),
       "n=8 c=16 h=9 w=7 k=8 r=3 s=3 stride=2 padding=0 dilation=1 groups=2 transposed=true bias=false"},
      {call("aten::convolution_overrideable", {arg({8, 16, 7}), arg({32, 16, 5})}, {1, 1, 0, 2, 1, 1, 0, 1}),
       "n=8 c=16 h=1 w=7 k=32 r=1 s=5 stride=1 padding=2 dilation=1 groups=1 transposed=false bias=false"},
      {call("aten::max_pool2d_with_indices.out", {arg({8, 16, 9, 7})}, {2, 3, 2, 2, 0, 1}), "n=8 c=16 h=9 w=7 r=2 s=3 stride=2 padding=1"},
      {call("aten::avg_pool2d.out", {arg({16, 9, 7})}, {2, 2}), "n=1 c=16 h=9 w=7 r=2 s=2 stride=2 padding=0"},
      {call("aten::max_pool2d_with_indices_backward.grad_input", {arg({8, 16, 4, 3}), arg({8, 16, 9, 7})}, {2, 2, 2, 2, 0, 0}),
       "n=8 c=16 h=9 w=7 r=2 s=2 stride=2 padding=0"},
      {call("aten::sum.IntList_out", {arg({6, 5})}, {5}), "outputs=6 reduced=5"},
      {call("aten::sum.IntList_out", {arg({6, 5})}), "outputs=1 reduced=30"},
      {call("aten::_softmax.out", {arg({6, 5, 2})}, {1}), "rows=12 n=5 inner=2"},
      {call("aten::_softmax.out", {arg({6, 5})}), "rows=6 n=5 inner=1"},
      {call("aten::nll_loss_forward.output", {arg({256, 10}), arg({256}, DType::int64)}), "rows=256 c=10"},
      {call("aten::gather.out", {arg({9, 9}), arg({3, 4}, DType::int64)}), "indices=12"},
      {call("aten::_foreach_add.List", {arg({9})}, {12, 5000}), "tensors=12"},
      {call("aten::mm.out", {}), "m=? n=? k=? batch=? bias=false"},
  };
  for (const Case& c : cases) {
    INFO(text(c.s));
    CHECK(operands(c.s) == c.expected);
  }
}

TEST_CASE("generic operands: largest rank and numel, all bytes, the floating dtype") {
  const auto device = cpuDevice();
  const Facts f = Facts::of(call("aten::where.self", {arg({4, 5}, DType::bool_), arg({5}), arg({1}, DType::float32, Layout::strided)}), device);
  CHECK(f.text(Field::dtype) == "float32");
  CHECK(f.number(Field::rank) == 2);
  CHECK(f.number(Field::numel) == 20);
  CHECK(f.number(Field::bytes) == 20 + 20 + 4);
  CHECK(f.number(Field::contiguous) == 0);
  CHECK(f.text(Field::device_kind) == "cpu");
  CHECK(f.number(Field::device_memory) == 8ll << 30);
}

TEST_CASE("what a signature cannot hold is unknown, with the reason") {
  const auto device = cpuDevice();
  const Facts f = Facts::of(call("aten::add.out", {arg({2, 2, 2, 2, 2, 2, 2})}), device);
  CHECK_FALSE(f.known(Field::numel));
  CHECK(f.whyUnknown(Field::numel) == "numel is unknown: a signature keeps 6 sizes of a tensor");
  CHECK(f.number(Field::rank) == 7);
  CHECK(f.whyUnknown(Field::m) == "aten::add.out (family pointwise) has no operand m");
  CHECK(f.whyUnknown(Field::device_firmware) == "device.firmware is not known for this device");
  const Facts big = Facts::of(call("aten::add.out", {arg({int64_t{1} << 40, int64_t{1} << 40})}), device);
  CHECK_FALSE(big.known(Field::numel));
  CHECK_FALSE(big.known(Field::bytes));
}

TEST_CASE("globs and overloads") {
  struct Case { const char* pattern; const char* op; bool matches; };
  const Case cases[] = {
      {"aten::mm", "aten::mm.out", true}, {"aten::mm", "aten::mm", true}, {"aten::mm", "aten::addmm.out", false},
      {"aten::mm.out", "aten::mm", false}, {"aten::*mm", "aten::addmm.out", true}, {"aten::*mm", "aten::mm_x", false},
      {"*", "aten::mm.out", true}, {"aten::?m", "aten::mm", true}, {"aten::?m", "aten::m", false},
      {"aten::add.*", "aten::add.out", true}, {"aten::add.*", "aten::add", false}, {"", "aten::mm", false},
      {"*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
  };
  for (const Case& c : cases) {
    INFO(c.pattern << " " << c.op);
    CHECK(opMatches(c.pattern, c.op) == c.matches);
  }
}

TEST_CASE("the table of native operators is sound") {
  const auto table = nativeOpTable();
  REQUIRE(table.size() > 200);
  for (size_t i = 0; i < table.size(); ++i) {
    const NativeOp& row = table[i];
    INFO(row.op);
    CHECK(isAtenOp(row.op));
    CHECK(row.family != Family::other);
    CHECK(row.dtypes != 0);
    CHECK(row.max_rank >= 1);
    if (i) CHECK(table[i - 1].op < row.op);
    for (std::string_view target : row.runs_as) {
      const NativeOp* found = findNativeOpExact(target);
      CHECK(found != nullptr);
      if (found) CHECK(found->family == row.family);
    }
  }
  CHECK(findNativeOp("aten::mm")->op == "aten::mm.out");
  CHECK(findNativeOpExact("aten::mm") == nullptr);
  CHECK(dtypesText(dtypesFromText("float32,bool")) == "float32, bool");
  CHECK(dtypesFromText("float32,flaot16") == 0);
  CHECK(nearestOp("aten::lineer") == "aten::linear");
  CHECK(nearestOp("aten::mm.otu") == "aten::mm.out");
  CHECK(isAtenOp("aten::add"));
  CHECK_FALSE(isAtenOp("aten::ad"));
}

TEST_CASE("in a process the registrations decide, not the table") {
  struct Forget { ~Forget() { forgetDeclaredForTest(); } } forget;
  declareImplemented("aten::mm.out", "gemm");
  declareImplemented("aten::brand_new", "pointwise", "float32");
  auto r = router(cpuDevice());
  CHECK(chosen(*r, mm(8, 8, 8)) == "opencl.gemm.wide");
  CHECK(chosen(*r, call("aten::brand_new", {arg({4})})) == "opencl.pointwise.wide");
  CHECK(chosen(*r, call("aten::brand_new", {arg({4}, DType::int64)})) == "host.aten");
  CHECK(chosen(*r, call("aten::add.out", {arg({4}), arg({4})})) == "host.aten");
  CHECK(reason(*r, call("aten::add.out", {arg({4}), arg({4})})) == "aten::add.out has no OpenCL kernel");
  const auto differences = catalogDifferences();
  auto has = [&](const std::string& line) { return std::find(differences.begin(), differences.end(), line) != differences.end(); };
  CHECK(has("aten::add.out: in native_ops.txt, not registered"));
  CHECK(has("aten::brand_new: registered, not in native_ops.txt"));
  CHECK_FALSE(has("aten::mm.out: in native_ops.txt, not registered"));
  CHECK_FALSE(has("aten::linear: in native_ops.txt, not registered"));
}
