// Every contract header compiles alone and beside the others, without torch.
#include "runtime/dal/inventory.h"
#include "runtime/kde/router.h"
#include "runtime/mou/pool.h"
#include "runtime/telemetry/client.h"
#include "runtime/telemetry/model.h"
#include "runtime/telemetry/recorder.h"
#include "runtime/telemetry/server.h"
#include "tests/unit/catch.h"

TEST_CASE("an empty signature has no arguments and no operator") {
  flagos::kde::Signature s;
  CHECK(s.op == 0);
  CHECK(s.nargs == 0);
}
