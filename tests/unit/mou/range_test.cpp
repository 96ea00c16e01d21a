// The reserved range: placement, gaps, reuse, and what happens when addresses are scarce.
#include "runtime/mou/range.h"

#include <sys/mman.h>

#include <cerrno>

#include "runtime/mou/slab.h"
#include "tests/unit/catch.h"

using namespace flagos::mou;

TEST_CASE("granules are handed out lowest first and taken back", "[mou]") {
  auto r = AddressRange::reserve(size_t{16} << 20, size_t{1} << 20);
  REQUIRE(r.ok());
  AddressRange& range = **r;
  Slab a, b, c;
  char* pa = range.take(&a, size_t{3} << 20, false);
  char* pb = range.take(&b, 1, false);
  CHECK(pa == range.base());
  CHECK(pb == range.base() + (3 << 20));
  CHECK(range.slabAt(pa) == &a);
  CHECK(range.slabAt(pa + (3 << 20) - 1) == &a);
  CHECK(range.slabAt(pb) == &b);
  CHECK(range.slabAt(pb + (1 << 20)) == nullptr);
  CHECK(range.take(&c, size_t{13} << 20, false) == nullptr);
  range.give(pa);
  CHECK(range.slabAt(pa) == nullptr);
  CHECK(range.slabAt(pb) == &b);
  CHECK(range.take(&c, size_t{3} << 20, true) == range.base() + (4 << 20));  // with its gap it needs four
  CHECK(range.take(&a, size_t{3} << 20, false) == range.base());
}

TEST_CASE("a process short of addresses gets a smaller range or a reason", "[mou]") {
  static size_t most = 0;
  const auto limited = [](size_t bytes) -> void* {
    if (bytes <= most) return AddressRange::mapInaccessible(bytes);
    errno = ENOMEM;
    return MAP_FAILED;
  };
  struct Row { size_t most, given; };  // of 1 GiB asked, in granules of 64 MiB
  for (const Row& row : {Row{size_t{2} << 30, size_t{1} << 30}, {size_t{600} << 20, size_t{512} << 20},
                         {size_t{256} << 20, size_t{256} << 20}, {size_t{255} << 20, 0}}) {
    most = row.most;
    auto r = AddressRange::reserve(size_t{1} << 30, size_t{64} << 20, limited);
    INFO(row.most);
    REQUIRE(r.ok() == (row.given != 0));
    if (r.ok()) CHECK((*r)->bytes() == row.given);
    else CHECK(r.error().text().find("ulimit -v") != std::string::npos);
  }
}

TEST_CASE("the start index finds the block below any unit", "[mou]") {
  StartIndex index;
  REQUIRE(StartIndex::open(index, 100000));
  CHECK(index.below(5) == nullptr);
  Node nodes[4];
  const size_t at[4] = {0, 63, 64, 70000};
  for (int i = 0; i < 4; ++i) index.set(at[i], &nodes[i]);
  struct Row { size_t unit; Node* found; };
  for (const Row& r : {Row{0, &nodes[0]}, {62, &nodes[0]}, {63, &nodes[1]}, {64, &nodes[2]}, {69999, &nodes[2]},
                       {70000, &nodes[3]}, {99999, &nodes[3]}, {100000, nullptr}}) {
    INFO(r.unit);
    CHECK(index.below(r.unit) == r.found);
  }
  index.clear(64);
  CHECK(index.below(69999) == &nodes[1]);
  index.close();
}
