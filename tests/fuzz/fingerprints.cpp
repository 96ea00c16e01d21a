// Fingerprint files and boards: any bytes give entries, errors with a line, or an answer; never a crash, never exact
// without a model.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "runtime/dal/fingerprint/check.h"
#include "runtime/dal/fingerprint/match.h"

using namespace flagos;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto& e : dal::checkFingerprints(text, "f.json", text))
    if (e.line < 1 || e.reason.empty()) std::abort();
  (void)dal::checkTogether({{"a", std::string(text)}, {"b", std::string(text)}});
  dal::Database db;
  (void)db.add(text, "f.json");
  const auto document = parseJson(text, "line", {1u << 20, 16});
  if (!document) return 0;
  const auto board = dal::boardFromJson(*document);
  if (!board) return 0;
  for (const dal::Database* d : {static_cast<const dal::Database*>(&db), &dal::database()}) {
    const dal::Fingerprint f = dal::match(*d, *board);
    if ((f.result == "exact") == f.model.empty()) std::abort();
    (void)dump(dal::toJson(f));
    (void)dal::matchMeasured(*d, *board, 500);
  }
  return 0;
}
