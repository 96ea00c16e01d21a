// Rule files: every mistake with its place, what conditions mean, and the decision tree against plain reading.
#include <random>

#include "runtime/base/json.h"
#include "runtime/kde/embedded.h"
#include "runtime/kde/explain.h"
#include "runtime/kde/rules/positions.h"
#include "runtime/kde/rules/tree.h"
#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {
std::string errors(std::string_view text) {
  std::string out;
  for (const Error& e : parseRules(text, "r.json", Level::user).errors) out += (out.empty() ? "" : "\n") + e.text();
  return out;
}
// A rule with this condition in `when`, on line 2.
std::string when(const std::string& entry, const std::string& op = "aten::mm") {
  return "{\"version\":1,\"rules\":[\n{\"op\":\"" + op + "\",\"when\":{" + entry + "},\"use\":\"host.aten\"}]}";
}
bool holds(const std::string& entry, const Signature& s, const dal::DeviceDescription& d = cpuDevice()) {
  const RuleFile file = parseRules(when(entry, "*"), "r.json", Level::user);
  INFO(entry);
  REQUIRE(file.errors.empty());
  REQUIRE(file.rules.size() == 1);
  return file.rules[0].when[0].holds(Facts::of(s, d));
}
}  // namespace

TEST_CASE("each mistake in a rule file is named with line and column") {
  struct Case { std::string text; const char* expected; };
  const Case cases[] = {
      {"{\"version\":1,\"rules\":[\n  {\"use\": }]}", "r.json:2:11: syntax error while parsing value - unexpected '}'; expected '[', '{', or a literal"},
      {"[]", "r.json:1:1: expected an object with \"version\" and \"rules\""},
      {"{\"rules\":[]}", "r.json:1:1: \"version\": 1 is missing"},
      {"{\"version\":2,\"rules\":[]}", "r.json:1:12: version 2 is not known; this program reads version 1"},
      {"{\"version\":1}", "r.json:1:1: \"rules\" is missing"},
      {"{\"version\":1,\n \"rules\":{}}", "r.json:2:10: \"rules\" must be a list"},
      {"{\"version\":1,\"rules\":[],\n \"ruels\":[]}", "r.json:2:2: unknown key 'ruels'; did you mean rules?"},
      {"{\"version\":1,\"rules\":[\n1]}", "r.json:2:1: a rule must be an object"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"aten::mm\"}]}", "r.json:2:1: a rule needs one of use, prefer, forbid"},
      {"{\"version\":1,\"rules\":[\n{\"use\":\"host.aten\",\n \"forbid\":\"host.aten\"}]}", "r.json:3:2: a rule has one of use, prefer, forbid"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"mm\",\"use\":\"host.aten\"}]}", "r.json:2:7: 'mm' is no operator name; did you mean aten::mm?"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"aten::matmull\",\"use\":\"host.aten\"}]}", "r.json:2:7: no operator is named 'aten::matmull'; did you mean aten::matmul?"},
      {"{\"version\":1,\"rules\":[\n{\"op\":1,\"use\":\"host.aten\"}]}", "r.json:2:7: 'op' must be a text"},
      {"{\"version\":1,\"rules\":[\n{\"usee\":\"host.aten\"}]}",
       "r.json:2:2: unknown key 'usee'; did you mean use?\nr.json:2:1: a rule needs one of use, prefer, forbid"},
      {"{\"version\":1,\"rules\":[\n{\"use\":\"opencl.gemm.wid\"}]}", "r.json:2:8: no candidate is named 'opencl.gemm.wid'; did you mean opencl.gemm.wide?"},
      {"{\"version\":1,\"rules\":[\n{\"use\":\"opencl.*\"}]}", "r.json:2:8: no candidate is named 'opencl.*'"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"aten::mm\",\"when\":[],\"use\":\"host.aten\"}]}", "r.json:2:25: \"when\" must be an object of field and condition"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"aten::mm\",\"use\":\"opencl.conv.tiled\"}]}",
       "r.json:2:24: opencl.conv.tiled runs conv operators; aten::mm is in family gemm, composed; did you mean opencl.gemm.tiled?"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"aten::mm\",\"forbid\":\"opencl.conv.*\"}]}",
       "r.json:2:27: opencl.conv.wide runs conv operators; aten::mm is in family gemm, composed"},
      {"{\"version\":1,\"rules\":[\n{\"op\":\"aten::*pool2d*\",\"prefer\":\"opencl.gemm.wide\"}]}",
       "r.json:2:33: opencl.gemm.wide runs gemm operators; aten::*pool2d* is in family pool, resample, composed; did you mean opencl.pool.wide?"},
      {when("\"batchh\":1"), "r.json:2:26: unknown field 'batchh'; did you mean batch?"},
      {when("\"frobnicate\":1"), "r.json:2:26: unknown field 'frobnicate'; `flagos explain --fields` lists them"},
      {when("\"groups\":1"), "r.json:2:26: aten::mm (family gemm) has no operand 'groups'; its operands are m n k batch bias"},
      {when("\"m\":\"big\""), "r.json:2:30: 'm' is a number, and 'big' is none"},
      {when("\"m\":\"1024 <\""), "r.json:2:30: 'm' is a number, and '1024 <' is none; a comparison begins with <, <=, >, >= or !="},
      {when("\"m\":\">\""), "r.json:2:30: a value is missing after the comparison"},
      {when("\"m\":\"> 5 GiB\""), "r.json:2:30: 'm' is a number, and '5 GiB' is none"},
      {when("\"m\":true"), "r.json:2:30: 'm' is not true or false"},
      {when("\"m\":[]"), "r.json:2:30: an empty list never holds"},
      {when("\"m\":[1,\n\"x\"]"), "r.json:3:1: 'm' is a number, and 'x' is none"},
      {when("\"m\":{}"), "r.json:2:30: a condition is a text, a number, true, false, or a list of these"},
      {when("\"m\":\"> nan\""), "r.json:2:30: 'm' is a number, and 'nan' is none"},
      {when("\"dtype\":\"flaot32\""), "r.json:2:34: 'flaot32' is no dtype; did you mean float32?"},
      {when("\"dtype\":\"> float32\""), "r.json:2:34: 'dtype' is a text; only != compares it"},
      {when("\"dtype\":3"), "r.json:2:34: 'dtype' is not a number"},
      {when("\"device.kind\":\"gpu\""), "r.json:2:40: 'gpu' is no device kind; did you mean npu?"},
      {when("\"device.kind\":\"tpu card\""), "r.json:2:40: 'tpu card' is no device kind; they are discrete, npu, integrated, other, cpu"},
      {when("\"contiguous\":\"yes\""), "r.json:2:39: 'contiguous' is true or false, not 'yes'"},
      {when("\"contiguous\":\"> true\""), "r.json:2:39: 'contiguous' has no order; only != compares it"},
      {when("\"m\":1,\"m\":2"), "r.json:2:32: the key 'm' is given twice"},
      {when("\"x\":1,\n\"y\":2"), "r.json:2:26: unknown field 'x'; `flagos explain --fields` lists them\n"
                                   "r.json:3:1: unknown field 'y'; `flagos explain --fields` lists them"},
  };
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK(errors(c.text) == c.expected);
    CHECK(parseRules(c.text, "r.json", Level::user).rules.empty());
  }
}

TEST_CASE("conditions: equal, any of, compared, negated, with units and wildcards") {
  struct Case { const char* entry; bool holds; };
  const Case cases[] = {
      {"\"m\":1024", true}, {"\"m\":\"1024\"", true}, {"\"m\":1025", false}, {"\"m\":\"> 1024\"", false}, {"\"m\":\">= 1024\"", true},
      {"\"m\":\">1023\"", true}, {"\"m\":\"< 1024\"", false}, {"\"m\":\"<= 1024\"", true}, {"\"m\":\"!= 1024\"", false}, {"\"m\":\"!= 7\"", true},
      {"\"m\":[1,\"> 1000\"]", true}, {"\"m\":[1,2]", false}, {"\"dtype\":\"float32\"", true}, {"\"dtype\":\"float\"", true},
      {"\"dtype\":\"!= float32\"", false}, {"\"dtype\":[\"float16\",\"float32\"]", true}, {"\"contiguous\":true", true}, {"\"contiguous\":\"false\"", false},
      {"\"bias\":false", true}, {"\"device.kind\":[\"discrete\",\"cpu\"]", true}, {"\"device.kind\":\"npu\"", false},
      {"\"device.name\":\"cpu-*\"", true}, {"\"device.name\":\"*card*\"", false}, {"\"device.memory\":\">= 8 GiB\"", true},
      {"\"device.memory\":\"> 8 GiB\"", false}, {"\"bytes\":\"< 1 MiB\"", false}, {"\"op\":\"aten::mm\"", true}, {"\"op\":\"aten::add*\"", false},
      {"\"groups\":1", false}, {"\"device.firmware\":\"*\"", false}, {"\"rank\":2", true},
  };
  for (const Case& c : cases) {
    INFO(c.entry);
    CHECK(holds(c.entry, mm(1024, 512, 256)) == c.holds);
  }
}

TEST_CASE("a rule reads back as the sentence a person would write") {
  const RuleFile f = parseRules(when("\"device.kind\":[\"discrete\",\"npu\"],\"m\":\">1024\",\"dtype\":\"half\""), "r.json", Level::user);
  REQUIRE(f.rules.size() == 1);
  CHECK(f.rules[0].predicate() == "device.kind = discrete or npu and dtype = float16 and m > 1024");
  CHECK(f.rules[0].label() == "rule #1 (r.json:2)");
  CHECK(parseRules("{\"version\":1,\"rules\":[{\"use\":\"host.aten\"}]}", "r", Level::user).rules[0].predicate() == "always");
}

TEST_CASE("the decision tree lists the same rules as plain reading") {
  std::mt19937 random(7);
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const char* fields[] = {"m", "n", "k"};
  const char* ops[] = {"<", "<=", ">", ">=", "!=", ""};
  const char* names[] = {"aten::mm", "aten::*mm", "*", "aten::add"};
  const auto device = cpuDevice();
  size_t compared = 0;
  for (int round = 0; round < 60; ++round) {
    std::string text = "{\"version\":1,\"rules\":[";
    const int rules = 1 + pick(round % 10 == 0 ? 30 : 8);   // some rounds are wide enough to meet the tree's size cap
    for (int i = 0; i < rules; ++i) {
      text += std::string(i ? "," : "") + "{\"op\":\"" + names[pick(3)] + "\",\"when\":{";
      bool first = true;
      for (const char* f : fields)
        if (pick(2)) {
          text += std::string(first ? "" : ",") + "\"" + f + "\":\"" + ops[pick(6)] + std::to_string(1 + pick(4)) + "\"";
          first = false;
        }
      text += "},\"prefer\":\"opencl.gemm.wide\"}";
    }
    const RuleFile file = parseRules(text + "]}", "r", Level::user);
    REQUIRE(file.errors.empty());
    const RuleTree tree = RuleTree::build(file.rules, Facts::of(mm(1, 1, 1), device));
    CHECK(tree.nodes() <= 4096);
    for (int64_t m = 1; m <= 4; ++m)
      for (int64_t n = 1; n <= 4; ++n)
        for (int64_t k = 1; k <= 4; ++k) {
          const Facts f = Facts::of(mm(m, k, n), device);
          REQUIRE(tree.matches(f) == rulesThatHold(file.rules, f));
          ++compared;
        }
  }
  CHECK(compared == 60 * 64);
}

TEST_CASE("rule texts with random damage are refused or accepted, never worse") {
  const std::string good = "{\"version\":1,\"rules\":[{\"name\":\"a\",\"op\":\"aten::mm\",\"when\":{\"m\":\"> 1024\",\"dtype\":[\"float16\"],"
                           "\"device.memory\":\">= 1 GiB\"},\"use\":\"opencl.gemm.tiled\"},{\"op\":\"*\",\"forbid\":\"opencl.*\"}]}";
  REQUIRE(errors(good).empty());
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = good;
    for (unsigned n = 1 + random() % 4; n > 0 && !text.empty(); --n) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random() % 256); break;
        case 1: text.erase(at, 1 + random() % 5); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 20)); break;
        default: text[at] = "{}[]\",:\\\n0"[random() % 10];
      }
    }
    const RuleFile f = parseRules(text, "r", Level::user);
    CHECK((f.errors.empty() || f.rules.empty()));
    for (const Error& e : f.errors) CHECK(e.where.substr(0, 2) == "r:");
    refused += !f.errors.empty();
  }
  CHECK(refused > 2000);
}

TEST_CASE("positions follow keys with escapes, nested values and line breaks") {
  const auto p = JsonPositions::of("{\n  \"a\\\"b\": [1,\n    {\"c/d~\": null}],\n  \"e\": \"x\\\"y\"}");
  auto at = [](LineColumn lc) { return std::to_string(lc.line) + ":" + std::to_string(lc.column); };
  CHECK(at(p.key("/a\"b")) == "2:3");
  CHECK(at(p.value("/a\"b/0")) == "2:12");
  CHECK(at(p.value("/a\"b/1")) == "3:5");
  CHECK(at(p.key("/a\"b/1/c~1d~0")) == "3:6");
  CHECK(at(p.value("/e")) == "4:8");
  CHECK(at(p.value("/e/missing/deeper")) == "4:8");
}

TEST_CASE("the built-in rules are right, and the schema names what the parser takes") {
  CHECK(parseRules(embedded("builtin"), "builtin.json", Level::builtin).errors.empty());
  auto schema = readJsonFile(std::string(FLAGOS_SOURCE_DIR) + "/runtime/kde/schema/rules.schema.json");
  REQUIRE(schema.ok());
  const Json& rule = (*schema)["properties"]["rules"]["items"]["properties"];
  for (const char* key : {"name", "op", "when", "use", "prefer", "forbid", "comment"}) CHECK(rule.contains(key));
  CHECK(rule.size() == 7);
  const Json& fields = rule["when"]["properties"];
  CHECK(fields.size() == static_cast<size_t>(Field::count_));
  for (size_t i = 0; i < static_cast<size_t>(Field::count_); ++i) {
    const FieldInfo& f = fieldInfo(static_cast<Field>(i));
    INFO(f.name);
    REQUIRE(fields.contains(std::string(f.name)));
    CHECK(fields[std::string(f.name)]["description"] == std::string(f.meaning));
  }
}
