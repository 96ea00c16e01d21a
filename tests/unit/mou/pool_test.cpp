// The allocator against plain truth: sizes, counters, addresses, reuse and errors.
#include "runtime/base/bytes.h"
#include "runtime/mou/pool.h"
#include "runtime/mou/trial.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "runtime/mou/pool_impl.h"
#include "runtime/mou/size_class.h"
#include "tests/unit/catch.h"
#include "tests/unit/mou/fake_memory.h"

using namespace flagos;
using namespace flagos::mou;

namespace {

std::unique_ptr<Pool> make(FakeMemory& memory, PoolOptions options = smallPool()) {
  auto p = Pool::create(memory, options);
  REQUIRE(p.ok());
  return std::move(*p);
}

Block* take(Pool& pool, size_t bytes, uint32_t queue = 0, uint32_t site = 0) {
  auto b = pool.allocate(bytes, queue, site);
  if (!b) FAIL(b.error().text());
  return *b;
}

}  // namespace

TEST_CASE("size classes round little and keep order", "[mou]") {
  uint64_t last = 0;
  for (uint64_t u = 1; u < 200000; ++u) {
    const uint64_t r = roundUnits(u);
    REQUIRE(r >= u);
    REQUIRE(r >= last);
    REQUIRE((u <= 32 || (r - u) * 32 < u));        // under 1/32 of the request
    REQUIRE(roundUnits(r) == r);
    REQUIRE(classOf(r) == (u == r ? classOf(u) : classOf(u) + 1));
    if (r != last) REQUIRE(classOf(r) > (last ? classOf(last) : 0));
    last = r;
  }
  REQUIRE(classOf(uint64_t{1} << 40) < kClasses);
}

TEST_CASE("sizes and counters are exact", "[mou]") {
  struct Row { size_t asked, given; };
  const Row rows[] = {{0, 0}, {1, 128}, {128, 128}, {129, 256}, {1000, 1024}, {4096, 4096}, {4097, 4224},
                      {100000, 100352}, {1 << 20, 1 << 20}, {(1 << 20) + 1, (1 << 20) + (1 << 15)}, {40000000, 40894464}};
  FakeMemory memory;
  auto pool = make(memory);
  uint64_t allocated = 0, requested = 0;
  std::vector<Block*> blocks;
  for (const Row& r : rows) {
    Block* b = take(*pool, r.asked);
    INFO(r.asked);
    CHECK(b->bytes == r.given);
    CHECK(b->requested == r.asked);
    CHECK((r.asked <= 1024 || double(b->bytes) <= 1.125 * double(r.asked)));
    CHECK(reinterpret_cast<uintptr_t>(b->address) % 128 == 0);
    CHECK(b->pool == pool.get());
    CHECK(slabHandle(*b) != nullptr);
    CHECK(static_cast<char*>(slabHandle(*b)) + b->offset == b->address);
    allocated += r.given;
    requested += r.asked;
    blocks.push_back(b);
  }
  PoolStats s = pool->stats();
  CHECK(s.allocated == allocated);
  CHECK(s.requested == requested);
  CHECK(s.allocations == std::size(rows));
  CHECK(s.reserved >= allocated);
  CHECK(s.ooms == 0);
  for (Block* b : blocks) pool->release(b);
  s = pool->stats();
  CHECK(s.allocated == 0);
  CHECK(s.requested == 0);
  CHECK(s.allocated_peak == allocated);
  CHECK(s.frees == std::size(rows));
  pool->resetPeaks();
  CHECK(pool->stats().allocated_peak == 0);
  pool->emptyCache();
  CHECK(pool->stats().reserved == 0);
  CHECK(pool->stats().slabs == 0);
  CHECK(memory.live == 0);
}

TEST_CASE("zero bytes have unique addresses", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  std::set<void*> seen;
  for (int i = 0; i < 100; ++i) CHECK(seen.insert(take(*pool, 0)->address).second);
  CHECK(pool->stats().allocated == 0);
}

TEST_CASE("freed neighbours become one block again", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  const int orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}};
  for (const auto& order : orders) {
    Block* b[4];
    for (auto& x : b) x = take(*pool, 256 << 10);  // exactly one slab
    CHECK(pool->stats().slabs == 1);
    for (int i : order) pool->release(b[i]);
    CHECK(pool->stats().largest_free == 1 << 20);
    Block* whole = take(*pool, 1 << 20);
    CHECK(whole->address == b[0]->address);
    pool->release(whole);
  }
  CHECK(memory.created == 1);
}

TEST_CASE("a block never spans slabs, a big one gets its own", "[mou]") {
  FakeMemory memory(size_t{64} << 20);
  auto pool = make(memory);
  Block* small = take(*pool, 1000);
  Block* big = take(*pool, size_t{30} << 20);
  CHECK(slabHandle(*small) != slabHandle(*big));
  CHECK(big->offset == 0);
  CHECK(memory.largest <= size_t{64} << 20);
  for (int i = 0; i < 40; ++i) take(*pool, size_t{5} << 20);
  CHECK(memory.largest <= size_t{64} << 20);
}

TEST_CASE("addresses find their block", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  std::vector<Block*> blocks;
  for (size_t n : {1, 128, 700, 5000, 300000, 3000000}) blocks.push_back(take(*pool, n));
  for (Block* b : blocks) {
    auto* p = static_cast<char*>(b->address);
    CHECK(pool->find(p) == b);
    CHECK(pool->find(p + b->bytes / 2) == b);
    CHECK(pool->find(p + b->bytes - 1) == b);
    CHECK(pool->contains(p));
  }
  int local = 0;
  CHECK(pool->find(&local) == nullptr);
  CHECK_FALSE(pool->contains(&local));
  void* was = blocks[2]->address;
  pool->release(blocks[2]);
  CHECK(pool->find(was) == nullptr);
  CHECK(pool->contains(was));
}

TEST_CASE("grow uses the free neighbour or says no", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  Block* a = take(*pool, 1024);
  CHECK(pool->grow(a, 100 << 10));
  CHECK(a->bytes == 100 << 10);
  CHECK(a->requested == 100 << 10);
  CHECK(pool->stats().allocated == 100 << 10);
  CHECK(pool->grow(a, 1000));             // within what it has
  CHECK(a->requested == 1000);
  Block* wall = take(*pool, 128);
  CHECK_FALSE(pool->grow(a, 200 << 10));
  pool->release(wall);
  CHECK(pool->grow(a, 200 << 10));
  CHECK_FALSE(pool->grow(a, size_t{2} << 20));  // past the slab
  pool->release(a);
  CHECK(pool->stats().allocated == 0);
  CHECK(pool->stats().largest_free == 1 << 20);
}

TEST_CASE("a block used by another queue comes back when that queue is past it", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  Block* a = take(*pool, 1 << 20, 0);
  void* where = a->address;
  memory.sent[3] = 10;
  pool->recordQueue(a, 3);
  pool->release(a);
  CHECK(pool->stats().allocated == 0);
  Block* b = take(*pool, 1 << 20, 0);
  CHECK(b->address != where);
  memory.sent[3] = 20;   // queue 3 goes on, but has passed the block's ticket
  memory.done[3] = 10;
  Block* c = take(*pool, 1 << 20, 0);
  CHECK(c->address == where);
  CHECK(memory.finishes == 0);
  pool->release(b);
  pool->release(c);
}

TEST_CASE("freed memory of a busy queue stays with it", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  Block* a = take(*pool, 1 << 20, 1);
  void* where = a->address;
  memory.sent[1] = 1;
  pool->release(a);
  Block* other = take(*pool, 1 << 20, 0);
  CHECK(other->address != where);
  Block* same = take(*pool, 1 << 20, 1);  // in-order: safe at once
  CHECK(same->address == where);
  pool->release(same);
  memory.done[1] = 1;
  Block* moved = take(*pool, 1 << 20, 0);
  CHECK(moved->address == where);
  CHECK(moved->queue == 0);
  pool->release(other);
  pool->release(moved);
}

TEST_CASE("neighbours of a busy queue are not merged", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  Block* a = take(*pool, 512 << 10, 0);
  Block* b = take(*pool, 512 << 10, 1);
  memory.sent[1] = 1;
  pool->release(b);
  pool->release(a);
  CHECK(pool->stats().largest_free == 512 << 10);
  CHECK(memory.finishes == 0);
  pool->emptyCache();  // waits for the queue before it takes the pages away
  CHECK(memory.finishes == 1);
  CHECK(memory.live == 0);
}

TEST_CASE("out of memory says everything", "[mou]") {
  FakeMemory memory(size_t{2} << 20, size_t{4} << 20);
  PoolOptions options = smallPool();
  options.device = 3;
  auto pool = make(memory, options);
  auto too_big = pool->allocate(size_t{3} << 20, 0, 0);
  REQUIRE_FALSE(too_big.ok());
  CHECK(too_big.error().text().find("npu:3: one tensor of 3 MiB is more than this device's limit for one buffer, 2 MiB") == 0);
  std::vector<Block*> held;
  for (int i = 0; i < 8; ++i) held.push_back(take(*pool, 512 << 10, 0, i < 6 ? 7 : 9));
  pool->release(held[0]);
  pool->release(held[5]);
  auto none = pool->allocate(1 << 20, 0, 0);
  REQUIRE_FALSE(none.ok());
  const std::string text = none.error().text();
  for (const char* part : {"npu:3 is out of memory", "requested 1 MiB", "allocated 3 MiB", "reserved 4 MiB of 4 MiB", "free 1 MiB",
                           "largest free block 512 KiB", "fragmentation 50 %", "limit for one buffer 2 MiB", "empty_cache"}) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(pool->stats().ooms == 2);
  const auto top = pool->holders(5);
  REQUIRE(top.size() == 2);
  CHECK((top[0].site == 7 && top[0].bytes == 4u * (512 << 10) && top[0].blocks == 4));
  CHECK((top[1].site == 9 && top[1].bytes == 2u * (512 << 10) && top[1].blocks == 2));
  CHECK(pool->holders(1).size() == 1);
}

TEST_CASE("unused slabs make room for one that fits", "[mou]") {
  FakeMemory memory(size_t{4} << 20, size_t{4} << 20);
  auto pool = make(memory);
  std::vector<Block*> small;
  for (int i = 0; i < 4; ++i) small.push_back(take(*pool, 1 << 20));
  for (Block* b : small) pool->release(b);
  Block* big = take(*pool, size_t{4} << 20);
  CHECK(pool->stats().reserved == size_t{4} << 20);
  CHECK(pool->stats().slabs == 1);
  pool->release(big);
}

TEST_CASE("every refused slab is survived", "[mou]") {
  // Loop the n-th failure until the work runs through untouched.
  for (int n = 1;; ++n) {
    FakeMemory memory(size_t{8} << 20, size_t{64} << 20);
    memory.fail_at = n;
    auto pool = make(memory);
    std::vector<Block*> held;
    for (size_t bytes : {size_t{1000}, size_t{3} << 20, size_t{1} << 19, size_t{7} << 20, size_t{2} << 20}) {
      auto b = pool->allocate(bytes, 0, 0);
      REQUIRE(b.ok());  // one failure always leaves a way
      held.push_back(*b);
    }
    uint64_t bytes = 0;
    for (Block* b : held) bytes += b->bytes;
    CHECK(pool->stats().allocated == bytes);
    for (Block* b : held) pool->release(b);
    pool->emptyCache();
    CHECK(memory.live == 0);
    CHECK(pool->stats().reserved == 0);
    if (memory.created < n) break;
  }
  FakeMemory never;
  never.fail_from = 1;
  auto pool = make(never);
  auto none = pool->allocate(100, 0, 0);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().what.find("the driver said: slab ") != std::string::npos);
  CHECK(pool->stats().ooms == 1);
  never.fail_from = 0;
  CHECK(pool->allocate(100, 0, 0).ok());
}

TEST_CASE("the memory limit is read and obeyed", "[mou]") {
  struct Row { const char* text; size_t bytes; };
  for (const Row& r : {Row{"1048576", 1 << 20}, {"512K", 512 << 10}, {"8G", size_t{8} << 30}, {"1.5GiB", size_t{3} << 29},
                       {"2 M", 2 << 20}, {"1t", size_t{1} << 40}, {"100B", 100}}) {
    auto b = parseBytes(r.text);
    INFO(r.text);
    REQUIRE(b.ok());
    CHECK(*b == r.bytes);
  }
  for (const char* bad : {"lots", "-1", "0", "8X", "8Gb2", "G", "1e300", "nan", "0.1", "99999999T"}) {
    INFO(bad);
    CHECK_FALSE(parseBytes(bad).ok());
  }
  ::setenv("FLAGOS_MEMORY_LIMIT", "3M", 1);
  FakeMemory memory;
  auto pool = make(memory);
  for (int i = 0; i < 3; ++i) take(*pool, 1 << 20);
  auto none = pool->allocate(1, 0, 0);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().text().find("FLAGOS_MEMORY_LIMIT") != std::string::npos);
  CHECK(pool->stats().reserved == 3 << 20);
  ::setenv("FLAGOS_MEMORY_LIMIT", "many", 1);
  auto refused = Pool::create(memory, smallPool());
  CHECK_FALSE(refused.ok());
  ::unsetenv("FLAGOS_MEMORY_LIMIT");
}

TEST_CASE("gaps between slabs and closed pages are inaccessible, open ones hold data", "[mou]") {
  FakeMemory memory;
  PoolOptions options = smallPool();
  options.guard_gaps = true;
  auto pool = make(memory, options);
  Block* a = take(*pool, 1 << 20);
  Block* b = take(*pool, 1 << 20);
  CHECK(std::abs(static_cast<char*>(b->address) - static_cast<char*>(a->address)) >= (2 << 20));
  std::memset(a->address, 7, a->bytes);
  CHECK(static_cast<char*>(a->address)[a->bytes - 1] == 7);
  // mincore tells mapped pages; write(2) tells accessible ones without a signal.
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  CHECK(::write(fds[1], a->address, 1) == 1);
  CHECK(::write(fds[1], static_cast<char*>(a->address) + (1 << 20), 1) == -1);
  void* was = a->address;
  pool->release(a);
  pool->release(b);
  pool->emptyCache();
  CHECK(::write(fds[1], was, 1) == -1);
  ::close(fds[0]);
  ::close(fds[1]);
}

TEST_CASE("observers see every block once", "[mou]") {
  static std::atomic<int64_t> live{0};
  static std::atomic<uint32_t> device{0};
  live = 0;
  setPoolObserver({[](uint32_t d, uint32_t, uint64_t n) noexcept { live += int64_t(n); device = d; },
                   [](uint32_t, uint32_t, uint64_t n) noexcept { live -= int64_t(n); }});
  FakeMemory memory;
  PoolOptions options = smallPool();
  options.device = 5;
  auto pool = make(memory, options);
  Block* a = take(*pool, 1000);
  Block* b = take(*pool, 5000);
  CHECK(pool->grow(b, 9000));
  CHECK(live == int64_t(pool->stats().allocated));
  CHECK(device == 5);
  pool->release(a);
  pool->release(b);
  CHECK(live == 0);
  setPoolObserver({});
}

TEST_CASE("random work keeps blocks apart and the books balanced", "[mou]") {
  std::mt19937_64 random(7);
  FakeMemory memory(size_t{16} << 20, size_t{256} << 20);
  auto pool = make(memory);
  std::map<char*, Block*> live;
  uint64_t bytes = 0;
  for (int step = 0; step < 20000; ++step) {
    const uint32_t queue = random() % 3;
    if (random() % 4 == 0) memory.sent[queue]++;
    if (random() % 4 == 0) memory.done[queue] = memory.sent[queue].load();
    if (random() % 5 < 3 || live.empty()) {
      const size_t n = size_t{1} << (random() % 22);
      auto r = pool->allocate(1 + random() % n, queue, 0);
      if (!r) continue;
      Block* b = *r;
      auto* p = static_cast<char*>(b->address);
      auto next = live.lower_bound(p);
      if (next != live.end()) REQUIRE(p + b->bytes <= next->first);
      if (next != live.begin()) {
        auto before = std::prev(next);
        REQUIRE(before->first + before->second->bytes <= p);
      }
      live[p] = b;
      bytes += b->bytes;
    } else {
      auto it = live.begin();
      std::advance(it, static_cast<long>(random() % live.size()));
      if (random() % 5 == 0) pool->recordQueue(it->second, random() % 3);
      bytes -= it->second->bytes;
      pool->release(it->second);
      live.erase(it);
    }
    if (step % 97 == 0) REQUIRE(pool->stats().allocated == bytes);
  }
  for (auto& [p, b] : live) {
    REQUIRE(pool->find(p) == b);
    pool->release(b);
  }
  pool->emptyCache();
  const PoolStats s = pool->stats();
  CHECK(s.allocated == 0);
  CHECK(s.reserved == 0);
  CHECK(s.allocations == s.frees);
  CHECK(memory.live == 0);
}

TEST_CASE("memory of a trial leaves no peak, what stays of it does", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  Block* held = *pool->allocate(1000, 0, 1);
  pool->release(*pool->allocate(5000, 0, 1));
  const PoolStats before = pool->stats();
  {
    const TrialMemory trial(*pool);
    pool->release(*pool->allocate(1 << 20, 0, 0));
    CHECK(pool->stats().allocated_peak >= (1 << 20));
  }
  CHECK(pool->stats().allocated_peak == before.allocated_peak);
  CHECK(pool->stats().requested_peak == 6000);
  CHECK(pool->stats().reserved_peak == pool->stats().reserved);
  Block* kept = nullptr;
  {
    const TrialMemory trial(*pool);
    kept = *pool->allocate(1 << 20, 0, 1);
    pool->release(*pool->allocate(1 << 21, 0, 0));
  }
  CHECK(pool->stats().requested_peak == (1 << 20) + 1000);
  CHECK(pool->stats().allocated_peak == pool->stats().allocated);
  pool->release(kept);
  pool->release(held);
}

TEST_CASE("many threads allocate, hand over and release", "[mou]") {
  FakeMemory memory;
  auto pool = make(memory);
  std::atomic<Block*> handed[4] = {};
  std::atomic<int> bad{0};
  auto work = [&](int me) {
    std::mt19937 random(static_cast<unsigned>(me));
    for (int i = 0; i < 3000; ++i) {
      auto r = pool->allocate(1 + random() % 5000, static_cast<uint32_t>(me % 2), static_cast<uint32_t>(me));
      if (!r) { ++bad; continue; }
      Block* b = *r;
      std::memset(b->address, me, b->requested);
      if (static_cast<unsigned char*>(b->address)[b->requested - 1] != me) ++bad;
      if (pool->find(b->address) != b) ++bad;
      if (Block* old = handed[random() % 4].exchange(b)) pool->release(old);  // another thread's, most times
      if (i % 500 == 0) pool->emptyCache();
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back(work, t + 1);
  for (auto& t : threads) t.join();
  for (auto& h : handed)
    if (Block* b = h.load()) pool->release(b);
  CHECK(bad == 0);
  const PoolStats s = pool->stats();
  CHECK(s.allocated == 0);
  CHECK(s.requested == 0);
  CHECK(s.allocations == 12000);
  CHECK(s.frees == 12000);
}
