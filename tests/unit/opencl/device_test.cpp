// A live device: opening, memory in both modes, launches over several slabs.
#include "runtime/opencl/device.h"

#include <cstring>

#include "tests/unit/catch.h"

using namespace flagos;
using namespace flagos::ocl;

TEST_CASE("a kernel adds two blocks of the pool", "[opencl]") {
  REQUIRE(deviceCount() >= 1);
  auto d = device(0);
  REQUIRE(d.ok());
  Device& dev = **d;
  auto k = dev.programs().kernelFromText("test.add",
      "kernel void add(global const float* a, ulong ao, global const float* b, ulong bo, global float* c, ulong co) {\n"
      "  size_t i = get_global_id(0); c[co + i] = a[ao + i] + b[bo + i]; }", "add");
  REQUIRE(k.ok());
  constexpr size_t n = 1000;
  auto a = dev.pool().allocate(n * 4, 0, 0), b = dev.pool().allocate(n * 4, 0, 0), c = dev.pool().allocate(n * 4, 0, 0);
  REQUIRE((a.ok() && b.ok() && c.ok()));
  std::vector<float> x(n), y(n), z(n);
  for (size_t i = 0; i < n; ++i) { x[i] = float(i); y[i] = 2 * float(i); }
  auto mem = [](mou::Block* blk) { return static_cast<cl_mem>(mou::slabHandle(*blk)); };
  Queue& q = dev.queue();
  REQUIRE(q.write(mem(*a), (*a)->offset, x.data(), n * 4, true).ok());
  REQUIRE(q.write(mem(*b), (*b)->offset, y.data(), n * 4, true).ok());
  auto off = [](mou::Block* blk) { return Arg::of<cl_ulong>(blk->offset / 4); };
  Range r; r.global[0] = n;
  REQUIRE(q.launch(**k, r, {Arg::buffer(mem(*a)), off(*a), Arg::buffer(mem(*b)), off(*b), Arg::buffer(mem(*c)), off(*c)}).ok());
  REQUIRE(q.read(z.data(), mem(*c), (*c)->offset, n * 4, true).ok());
  for (size_t i = 0; i < n; ++i) REQUIRE(z[i] == 3 * float(i));
  CHECK(q.idle());
  for (auto* p : {*a, *b, *c}) dev.pool().release(p);
  CHECK(dev.pool().stats().allocated == 0);
}
