// The cost model: arithmetic on stated rates, unknown where a rate is missing, and what is kept on disk.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/base/json.h"
#include "runtime/kde/catalog/kernel_factors.h"
#include "runtime/kde/cost.h"
#include "runtime/dal/rates.h"
#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {
Cost cost(const char* name, const Signature& s, const dal::DeviceDescription& d, bool busy = true) {
  return predict(candidate(candidateId(name)), Facts::of(s, d), busy);
}
// A folder that goes away with the test, and FLAGOS_CACHE_DIR in it.
struct Cache {
  std::string dir = std::filesystem::temp_directory_path() / ("flagos-kde-" + std::to_string(::getpid()));
  Cache() { std::filesystem::remove_all(dir); ::setenv("FLAGOS_CACHE_DIR", dir.c_str(), 1); }
  ~Cache() { ::unsetenv("FLAGOS_CACHE_DIR"); std::filesystem::remove_all(dir); }
};
}  // namespace

TEST_CASE("kernels that take longer than their work says are predicted so, on CPU cores") {
  CHECK(kernelFactor("aten::add.out").kernel == 1);
  CHECK(kernelFactor("aten::index_select").host == 1);
  CHECK(kernelFactor("aten::max_pool2d_with_indices.out").kernel == kernelFactor("aten::max_pool2d").kernel);
  CHECK(kernelFactor("aten::max_pool2d_with_indices_backward.grad_input").kernel == 1);
  CHECK(kernelFactor("aten::_adaptive_avg_pool2d").kernel == kernelFactor("aten::adaptive_avg_pool2d").kernel);
  CHECK(kernelFactor("aten::pow.Tensor_Scalar_out").kernel == 1);
  CHECK(kernelFactor("aten::pow.Tensor_Tensor_out").kernel > 1);
  const auto pool = [](int64_t window, int64_t stride, int64_t padding) {
    const auto d = cpuDevice();
    return kernelFactor(Facts::of(call("aten::max_pool2d_with_indices.out", {arg({8, 32, 56, 56})}, {window, window, stride, stride, padding, padding}), d));
  };
  CHECK(pool(2, 2, 0).kernel < 2);
  CHECK(pool(2, 2, 0).host == 17);
  CHECK(pool(3, 1, 1).kernel == 17 * 9);
  CHECK(pool(3, 2, 1).kernel == Approx(17 * 9 / 4.0));
  // tril reads and writes its elements: 12 times its bytes' time as a kernel, once on the host, and never on a card.
  const Signature s = call("aten::tril.out", {arg({512, 512})});
  const auto cpu = cpuDevice();
  const double bytes_s = cost("opencl.index.wide", s, cpu, false).work.bytes / (cpu.bandwidth_bps * efficiency(Family::index, Shape::wide, cpu.kind).memory);
  CHECK(cost("opencl.index.wide", s, cpu, false).seconds == Approx(12 * bytes_s + cpu.launch_s));
  CHECK(cost("opencl.index.wide", s, cpu, false).bound == "compute");
  CHECK(cost("host.aten", s, cpu, false).seconds == Approx(bytes_s + kHostCallSeconds));
  const auto card = cardDevice();
  CHECK(cost("opencl.index.tiled", s, card, false).seconds ==
        Approx(cost("opencl.index.tiled", s, card, false).memory_s + card.launch_s));
}

TEST_CASE("work is counted from the operands") {
  struct Case { Signature s; double flops, bytes; int launches; };
  const Case cases[] = {
      {mm(256, 64, 10), 2.0 * 256 * 64 * 10, 4.0 * (256 * 64 + 64 * 10 + 256 * 10), 1},
      {call("aten::addmm.out", {arg({10}), arg({256, 64}), arg({64, 10})}), 2.0 * 256 * 64 * 10 + 256 * 10, 4.0 * (256 * 64 + 64 * 10 + 256 * 10 + 10), 1},
      {call("aten::bmm.out", {arg({7, 2, 3}), arg({7, 3, 5})}), 2.0 * 7 * 2 * 3 * 5, 4.0 * 7 * (6 + 15 + 10), 1},
      {call("aten::add.out", {arg({100, 10}), arg({10})}), 1000, 4.0 * (1000 + 10 + 1000), 1},
      {call("aten::exp.out", {arg({1000})}), 20000, 8000, 1},
      {call("aten::fill_.Scalar", {arg({1000})}), 0, 4000, 1},
      {call("aten::_copy_from", {arg({1000}, DType::float16), arg({1000})}), 0, 2000 + 4000, 1},
      {call("aten::sum.IntList_out", {arg({6, 5})}, {5}), 30, 4.0 * 36, 1},
      {call("aten::sum.IntList_out", {arg({1 << 20})}), 1 << 20, 4.0 * ((1 << 20) + 1), 2},
      // 3x3, padding 1, stride 1: each of 8*8 pixels meets 9 taps of 16 channels for 32 outputs, 4 images.
      {call("aten::convolution_overrideable", {arg({4, 16, 8, 8}), arg({32, 16, 3, 3})}, {1, 1, 1, 1, 1, 1, 0, 1}),
       2.0 * 4 * 32 * 16 * 9 * 64, 4.0 * (4 * 16 * 64 + 4 * 32 * 64 + 32 * 16 * 9), 1},
      {call("aten::convolution_overrideable", {arg({4, 16, 8, 8}), arg({32, 4, 3, 3})}, {2, 2, 1, 1, 1, 1, 0, 4}),
       2.0 * 4 * 32 * 4 * 9 * 16, 4.0 * (4 * 16 * 64 + 4 * 32 * 16 + 32 * 4 * 9), 1},
      // Backward with both gradients costs the forward twice.
      {call("aten::convolution_backward_overrideable", {arg({4, 32, 8, 8}), arg({4, 16, 8, 8}), arg({32, 16, 3, 3})}, {1, 1, 1, 1, 1, 1, 14, 1}),
       2 * 2.0 * 4 * 32 * 16 * 9 * 64, 2 * 4.0 * (4 * 16 * 64 + 4 * 32 * 64 + 32 * 16 * 9), 2},
  };
  const auto d = cpuDevice();
  for (const Case& c : cases) {
    const Facts f = Facts::of(c.s, d);
    INFO(text(c.s));
    const Work w = familyRow(f.family()).work(f);
    CHECK(w.flops == Approx(c.flops));
    CHECK(w.bytes == Approx(c.bytes));
    CHECK(w.launches == c.launches);
  }
}

TEST_CASE("seconds are the larger of compute and memory, plus launch, copy and host") {
  const auto d = cpuDevice();
  const Cost big = cost("opencl.gemm.wide", mm(2048, 2048, 2048), d);
  CHECK(big.compute_s == Approx(2.0 * 2048 * 2048 * 2048 / (200e9 * 0.8)));
  CHECK(big.seconds == Approx(big.compute_s + 2e-6));
  CHECK(big.bound == "compute");
  const Cost stream = cost("opencl.pointwise.wide", call("aten::add.out", {arg({1 << 22}), arg({1 << 22})}), d);
  CHECK(stream.memory_s == Approx(3 * 4.0 * (1 << 22) / (20e9 * 0.8)));
  CHECK(stream.bound == "memory");
  CHECK(cost("opencl.pointwise.wide", call("aten::add.out", {arg({16}), arg({16})}), d).bound == "launch");
  const Cost host = cost("host.aten", mm(16, 16, 16), d);
  CHECK(host.host_s == Approx(2e-6 + 40e-6));
  CHECK(host.bound == "host");
  CHECK(cost("host.aten", mm(16, 16, 16), d, false).host_s == Approx(2e-6));
  const Cost copied = cost("cpu.fallback", call("aten::add.out", {arg({1 << 22}), arg({1 << 22})}), d);
  CHECK(copied.copy_s == Approx(3 * 4.0 * (1 << 22) / 10e9));
  CHECK(copied.bound == "copy");
  const double wide = cost("opencl.gemm.wide", mm(512, 512, 512), d).compute_s, tiled = cost("opencl.gemm.tiled", mm(512, 512, 512), d).compute_s;
  CHECK(tiled / wide == Approx(10));
  const auto card = cardDevice();
  CHECK(cost("opencl.gemm.wide", mm(512, 512, 512), card).compute_s / cost("opencl.gemm.tiled", mm(512, 512, 512), card).compute_s == Approx(10));
}

TEST_CASE("a missing rate makes the prediction unknown and says which") {
  struct Case { double dal::DeviceDescription::*rate; const char* candidate; const char* why; };
  const Case cases[] = {
      {&dal::DeviceDescription::bandwidth_bps, "opencl.gemm.wide", "the device's memory bandwidth is not known"},
      {&dal::DeviceDescription::flops_f32, "opencl.gemm.wide", "the device's arithmetic rate is not known"},
      {&dal::DeviceDescription::launch_s, "opencl.gemm.wide", "the time of one kernel launch is not known"},
      {&dal::DeviceDescription::copy_bps, "cpu.fallback", "the copy rate between host and device is not known"},
  };
  for (const Case& c : cases) {
    auto d = cpuDevice();
    d.*c.rate = 0;
    const Cost cost_ = cost(c.candidate, mm(64, 64, 64), d);
    CHECK(cost_.seconds < 0);
    CHECK(cost_.bound.empty());
    CHECK(cost_.why == c.why);
  }
  CHECK(cost("cpu.fallback", mm(64, 64, 64), cardDevice()).why == "the host's own rates are not part of this device's description");
  CHECK(cost("host.aten", call("aten::linalg_svd.U", {arg({8, 8})}), cpuDevice()).why == "the work of aten::linalg_svd.U is not known");
  CHECK(cost("opencl.gemm.wide", call("aten::mm.out", {}), cpuDevice()).why == "m does not follow from the given operands");
}

TEST_CASE("a device's rates are stored once and read by everyone") {
  const Cache cache;
  dal::DeviceDescription blank = cpuDevice(), read = cpuDevice();
  CHECK_FALSE(loadRates(read, "id"));
  blank.wait_s = 0;
  REQUIRE(storeRates(blank, "id").ok());
  dal::DeviceDescription later = cpuDevice();
  later.bandwidth_bps = 1;
  REQUIRE(storeRates(later, "id").ok());   // already known: the same numbers in every run
  read = dal::DeviceDescription{};
  read.wait_s = 7;
  REQUIRE(loadRates(read, "id"));
  CHECK(read.bandwidth_bps == 20e9);
  CHECK(read.flops_f32 == 200e9);
  CHECK(read.launch_s == 2e-6);
  CHECK(read.wait_s == 7);
  CHECK(read.rates_source == "measured");
  CHECK_FALSE(loadRates(read, "other"));
}
