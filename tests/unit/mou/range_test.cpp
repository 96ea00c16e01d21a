// The reserved range: placement, gaps, reuse, and what happens when addresses are scarce.
#include "runtime/mou/range.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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
  struct Row { rlim_t limit; bool works; };
  for (const Row& row : {Row{rlim_t{4} << 30, true}, Row{rlim_t{1} << 20, false}}) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const rlimit limit{row.limit, row.limit};
      ::setrlimit(RLIMIT_AS, &limit);
      auto r = AddressRange::reserve(size_t{1} << 40, size_t{64} << 20);
      const bool right = row.works ? r.ok() && (*r)->bytes() >= (size_t{256} << 20) && (*r)->bytes() < (size_t{4} << 30)
                                   : !r.ok() && r.error().text().find("ulimit -v") != std::string::npos;
      ::_exit(right ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
#endif
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
