// This machine's own devices. The reference machine has PoCL and no card; elsewhere the same promises hold.
#include <algorithm>

#include "runtime/dal/inventory.h"
#include "tests/unit/catch.h"

using namespace flagos;

TEST_CASE("the live machine's indexed devices come first and count from zero") {
  const dal::Inventory inventory = dal::enumerate({});
  int next = 0;
  bool ended = false;
  for (const dal::Device& d : inventory.devices) {
    INFO(d.name);
    if (d.index) {
      CHECK_FALSE(ended);
      CHECK(*d.index == next++);
      CHECK(d.usable);
      REQUIRE(d.opencl.has_value());
      CHECK(d.description.memory_bytes > 0);
      CHECK(d.description.max_alloc_bytes > 0);
      CHECK(d.description.compute_units > 0);
    } else {
      ended = true;
      CHECK((!d.why_unusable.empty() || !d.why_no_index.empty()));
    }
    CHECK_FALSE(d.stable_id.empty());
  }
  for (const dal::ProbeReport& p : inventory.probes) {
    INFO(p.name);
    CHECK((p.found > 0) == p.why_nothing.empty());
  }
}

TEST_CASE("a processor under PoCL is one shared-memory device of type cpu") {
  const dal::Inventory inventory = dal::enumerate({});
  const auto cpu = std::find_if(inventory.devices.begin(), inventory.devices.end(),
                                [](const dal::Device& d) { return d.kind == dal::Kind::cpu; });
  REQUIRE(cpu != inventory.devices.end());
  CHECK(cpu->usable);
  CHECK(cpu->description.shared_memory);
  CHECK(cpu->pci.empty());
  CHECK(cpu->memory_shared.source == "opencl");
  CHECK_FALSE(cpu->memory_dedicated.value.has_value());
  REQUIRE(cpu->drivers.size() >= 1);
  CHECK(cpu->drivers[0].chosen);
  const bool others = std::any_of(inventory.devices.begin(), inventory.devices.end(),
                                  [](const dal::Device& d) { return d.usable && d.kind != dal::Kind::cpu; });
  CHECK(cpu->index.has_value() == !others);
  CHECK(cpu->stable_id.rfind("cpu.", 0) == 0);
}
