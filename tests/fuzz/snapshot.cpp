// Snapshots and deltas as a viewer gets them: any JSON gives a row or is ignored, and survives the way back to JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/telemetry/model.h"

using namespace flagos;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document = parseJson({reinterpret_cast<const char*>(data), size}, "peer", {1u << 20, 32});
  if (!document) return 0;
  const telemetry::ProcessRow row = telemetry::processFromJson(*document);
  Json snapshot = telemetry::toJson(row);
  (void)dump(snapshot);
  (void)telemetry::applyDelta(snapshot, *document);
  return 0;
}
