// The validator: the shipped files pass, and each rule of the notes rejects its counter-example at the right line.
#include "runtime/dal/fingerprint/check.h"
#include "runtime/dal/fingerprint/database.h"
#include "tests/unit/catch.h"

using namespace flagos;

namespace {

// A good file whose entry on lines 6 to 9 is varied by replacing text.
std::string file(const std::string& from = {}, const std::string& to = {}) {
  std::string s =
      "{\n"
      "  \"version\": 1,\n"
      "  \"vendor\": {\"id\": \"10de\", \"name\": \"NVIDIA\"},\n"
      "  \"devices\": [\n"
      "    {\"id\": \"27b8\", \"model\": \"L4\", \"kind\": \"discrete\", \"arch\": \"sm89\",\n"
      "     \"memory\": {\"gib\": [24], \"type\": \"GDDR6\", \"bus_bits\": 192, \"gbit_per_pin\": 12.5, "
      "\"bandwidth_gbps\": 300, \"confidence\": \"A\"},\n"
      "     \"pcie\": {\"link\": \"4x16\", \"confidence\": \"C\"},\n"
      "     \"compute\": {\"dense_fp16_tflops\": 121, \"sparse_fp16_tflops\": 242, \"confidence\": \"B\"}, "
      "\"vector\": {\"fp32_tflops\": 30.3, \"lanes\": 7424, \"boost_mhz\": 2040, \"confidence\": \"C\", "
      "\"source\": \"data sheet\", \"date\": \"2026-11-30\"},\n"
      "     \"sources\": {\"id\": \"data sheet\", \"figures\": \"data sheet\", \"date\": \"2026-08-22\"}}\n"
      "  ]\n"
      "}\n";
  if (!from.empty()) {
    const auto p = s.find(from);
    if (p == std::string::npos) return "test is wrong: " + from;
    s.replace(p, from.size(), to);
  }
  return s;
}

}  // namespace

TEST_CASE("the shipped fingerprint files pass their own validator") {
  std::vector<std::pair<std::string, std::string>> files;
  size_t models = 0;
  for (const std::string& n : dal::builtinNames()) {
    files.emplace_back(n, std::string(dal::builtinText(n)));
    for (const auto& e : dal::checkFingerprints(files.back().second, n))
      FAIL_CHECK(e.file << ":" << e.line << ": " << e.reason);
    dal::Database db;
    REQUIRE(db.add(files.back().second, n));
    models += db.models().size();
  }
  for (const auto& e : dal::checkTogether(files)) FAIL_CHECK(e.file << ":" << e.line << ": " << e.reason);
  CHECK(files.size() == 19);
  CHECK(models == 226);
  CHECK(dal::database().models().size() == 226);
  CHECK(dal::database().problems().empty());
}

TEST_CASE("each rule rejects its counter-example, by line") {
  CHECK(dal::checkFingerprints(file(), "f.json").empty());
  struct Row { const char* from; const char* to; int line; const char* reason; };
  const Row rows[] = {
      // the errors found in public tables (device notes, section 4)
      {"\"bandwidth_gbps\": 300", "\"bandwidth_gbps\": 3350", 6, "more than bus_bits x gbit_per_pin"},
      {"\"dense_fp16_tflops\": 121", "\"dense_fp16_tflops\": 242", 8, "at most half of the sparse"},
      {"\"fp32_tflops\": 30.3", "\"fp32_tflops\": 121", 8, "more than 2 x lanes x boost_mhz"},
      {"\"fp32_tflops\": 30.3", "\"fp32_tflops\": 0", 8, "above 0"},
      {"\"source\": \"data sheet\", ", "", 8, "\"vector\" needs \"source\""},
      {"\"figures\": \"data sheet\", ", "", 9, "needs \"figures\""},
      {"\"date\": \"2026-08-22\"", "\"date\": \"last year\"", 9, "YYYY-MM-DD"},
      {"\"id\": \"data sheet\", ", "", 9, "needs \"id\""},
      {"\"27b8\"", "\"27B8\"", 5, "lower-case hex"},
      {"\"27b8\"", "\"unknown\"", 5, "null where no public id"},
      {"\"10de\"", "\"10d\"", 3, "four lower-case hex"},
      {"\"confidence\": \"A\"", "\"confidence\": \"D\"", 6, "needs \"confidence\""},
      {"\"gib\": [24]", "\"gib\": 24", 6, "list of sizes"},
      {"\"gib\": [24]", "\"gib\": [0]", 6, "list of sizes"},
      {"\"bus_bits\": 192", "\"bus_bits\": -1", 6, "above 0"},
      {"\"4x16\"", "\"4x3\"", 7, "generation x width"},
      {"\"discrete\"", "\"gpu\"", 5, "\"kind\" must be"},
      {"\"model\": \"L4\"", "\"modle\": \"L4\"", 5, "did you mean \"model\"?"},
      {"\"version\": 1", "\"version\": 2", 2, "must be 1"},
      {"\"arch\": \"sm89\",\n", "\"arch\": \"sm89\"\n", 6, "syntax error"},
  };
  for (const Row& r : rows) {
    INFO(r.from << " -> " << r.to);
    const auto errors = dal::checkFingerprints(file(r.from, r.to), "f.json");
    REQUIRE_FALSE(errors.empty());
    bool found = false;
    for (const auto& e : errors)
      found = found || (e.line == r.line && e.reason.find(r.reason) != std::string::npos && e.file == "f.json");
    INFO(errors[0].line << ": " << errors[0].reason);
    CHECK(found);
  }
  // Rounded pin rates exceed the product by up to 0.2 %: good rows stay good.
  CHECK(dal::checkFingerprints(file("\"bandwidth_gbps\": 300", "\"bandwidth_gbps\": 300.6"), "f").empty());
  CHECK(dal::checkFingerprints("", "f").size() == 1);
  CHECK(dal::checkFingerprints("[]", "f").size() == 1);
}

TEST_CASE("entries of one id must be told apart, and files must agree") {
  std::string twice = file();
  const auto at = twice.find("    {\"id\": \"27b8\"");
  const std::string entry = twice.substr(at, twice.find("\n  ]") - at);
  std::string other = entry;
  other.replace(other.find("\"L4\""), 4, "\"L4b\"");
  twice.insert(at, other + ",\n");
  const auto errors = dal::checkFingerprints(twice, "f");
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].line == 10);
  CHECK_THAT(errors[0].reason, Catch::Contains("told_by"));
  const auto together = dal::checkTogether({{"a.json", file()}, {"b.json", file("\"gib\": [24]", "\"gib\": [16]")}});
  REQUIRE(together.size() == 2);
  CHECK_THAT(together[0].reason, Catch::Contains("already has a file: a.json"));
  CHECK_THAT(together[1].reason, Catch::Contains("one name, one product"));
}

TEST_CASE("an id that claims pci.ids must be in its vendor's list there") {
  const std::string ids =
      "# comment\n10dd  Other\n\t27b8  Not ours\n10de  NVIDIA Corporation\n\t2684  AD102\n\t\t10de 16f3  sub\n10df  "
      "Next\n\t27b8  Not ours\n";
  const std::string claims = file("\"id\": \"data sheet\"", "\"id\": \"pci.ids\"");
  const auto errors = dal::checkFingerprints(claims, "f", ids);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].reason == "pci.ids does not list 10de:27b8");
  CHECK(dal::checkFingerprints(claims, "f", ids + "10de  NVIDIA Corporation\n").size() == 1);
  CHECK(dal::checkFingerprints(claims, "f", "\n10de  NVIDIA Corporation\n\t27b8  AD104GL [L4]\n").empty());
  CHECK(dal::checkFingerprints(file(), "f", ids).empty());
}
