// Signatures: what is part of the identity, how they read, and that a hit allocates nothing.
#include <atomic>
#include <cstdlib>
#include <new>

#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {
std::atomic<uint64_t> allocations{0};
}
// Counts every allocation of this test program; only differences around a measured piece are looked at.
void* operator new(std::size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

TEST_CASE("each part of a signature tells two calls apart, and the queue's state does not") {
  const Signature base = call("aten::mm.out", {arg({256, 64}), arg({64, 10})}, {3});
  auto changed = [&](auto change) { Signature s = base; change(s); return s; };
  const Signature different[] = {
      changed([](Signature& s) { s.op = internName("aten::bmm.out"); }),
      changed([](Signature& s) { s.device = 1; }),
      changed([](Signature& s) { s.native = false; }),
      changed([](Signature& s) { s.nargs = 1; }),
      changed([](Signature& s) { s.nscalars = 0; }),
      changed([](Signature& s) { s.scalars[0] = 4; }),
      changed([](Signature& s) { s.args[1].dtype = DType::float16; }),
      changed([](Signature& s) { s.args[0].layout = Layout::strided; }),
      changed([](Signature& s) { s.args[0].on_device = false; }),
      changed([](Signature& s) { s.args[0].sizes[1] = 65; }),
      changed([](Signature& s) { s.args[0].rank = 1; }),
  };
  for (const Signature& s : different) {
    INFO(text(s));
    CHECK_FALSE(s == base);
    CHECK(s.hash() != base.hash());
  }
  const Signature same[] = {
      changed([](Signature& s) { s.queue_idle = false; }),
      changed([](Signature& s) { s.args[0].sizes[5] = 9; }),   // beyond the rank
      changed([](Signature& s) { s.args[3].rank = 2; }),       // beyond nargs
      changed([](Signature& s) { s.scalars[7] = 1; }),
  };
  for (const Signature& s : same) {
    CHECK(s == base);
    CHECK(s.hash() == base.hash());
  }
}

TEST_CASE("a signature reads as the call it stands for") {
  CHECK(text(call("aten::mm", {arg({256, 64}), arg({64, 10}, DType::float32, Layout::strided)})) ==
        "aten::mm(float32[256,64] contiguous, float32[64,10] strided)");
  Signature s = call("aten::add.out", {arg({}), arg({2, 1, 1, 1, 1, 1, 7}, DType::int64)}, {5});
  s.args[0].on_device = false;
  CHECK(text(s) == "aten::add.out(float32[] contiguous cpu, int64[2,1,1,1,1,1,... rank 7] contiguous; 5)");
  Signature absent = call("aten::x", {ArgSig{}, arg({1})});
  CHECK(text(absent) == "aten::x(none, float32[1] contiguous)");
}

TEST_CASE("hashes of near shapes spread") {
  // Linear probing lives from this: sizes that differ by one must not fall into neighbouring slots.
  std::vector<bool> used(4096);
  int collisions = 0;
  for (int64_t m = 1; m <= 1024; ++m) {
    const auto slot = mm(m, 64, 10).hash() & 4095;
    collisions += used[slot];
    used[slot] = true;
  }
  CHECK(collisions < 200);   // 1,024 balls in 4,096 bins: about 118 by chance
}

TEST_CASE("a hit allocates nothing") {
  auto r = router(cpuDevice());
  const Signature calls[] = {mm(256, 64, 10), call("aten::_copy_from", {arg({16}), arg({16})}), mm(8, 8, 8, DType::int64)};
  for (const Signature& s : calls) r->choose(s);
  const uint64_t before = allocations.load();
  uint64_t sum = 0;
  for (int i = 0; i < 1000; ++i)
    for (Signature s : calls) {
      s.queue_idle = i % 2 != 0;
      sum += r->choose(s).id;
    }
  const uint64_t made = allocations.load() - before;
  CHECK(made == 0);
  CHECK(sum > 0);
}
