// explain: golden questions and answers (tests/unit/kde/golden/*.txt), the JSON of the command contract, and agreement
// with choose. UPDATE_GOLDEN=1 rewrites the answers.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "runtime/base/json.h"
#include "runtime/kde/catalog/clblast.h"
#include "runtime/kde/query.h"
#include "tests/unit/catch.h"
#include "tests/unit/kde/fixture.h"

using namespace flagos;
using namespace flagos::kde;
using namespace flagos::kde::test;

namespace {

// "key: value" lines up to "---"; the rest is the expected text.
struct Golden {
  std::map<std::string, std::string> keys;
  std::string head, expected;
};
Golden parseGolden(const std::string& text) {
  Golden g;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    const std::string line = text.substr(at, end - at);
    at = end == std::string::npos ? text.size() : end + 1;
    if (line == "---") break;
    g.head += line + "\n";
    if (const auto colon = line.find(": "); colon != std::string::npos) g.keys[line.substr(0, colon)] = line.substr(colon + 2);
  }
  g.expected = text.substr(at);
  return g;
}

std::string answer(const Golden& g) {
  auto get = [&](const char* key) { const auto it = g.keys.find(key); return it == g.keys.end() ? std::string() : it->second; };
  RouterOptions o;
  o.device = get("device") == "card" ? cardDevice() : cpuDevice();
  if (get("rates") == "none") o.device.bandwidth_bps = 0;
  std::optional<AssumeClblast> library;
  if (!get("clblast").empty()) library.emplace(get("clblast") == "yes" ? dal::Presence::yes : dal::Presence::no);
  o.read_files = false;
  if (get("mode") == "opencl") o.mode = Mode::opencl;
  if (get("mode") == "host") o.mode = Mode::host;
  if (get("fallback") == "forbid") o.fallback = Fallback::forbid;
  auto r = Router::create(o);
  if (!get("rules").empty())
    if (auto set = r->setRules(get("rules"), "rules.json"); !set) return set.error().text() + "\n";
  auto s = signatureOf({get("op"), get("shapes"), get("dtype"), get("layout"), get("scalars")}, 0);
  if (!s) return s.error().text() + "\n";
  return explainText(r->explain(*s, get("why-not")));
}

Json step(const Json& doc, const std::string& name) {
  for (const Json& s : doc["steps"])
    if (s["name"] == name) return s;
  return nullptr;
}

}  // namespace

TEST_CASE("golden questions get their golden answers") {
  const std::string dir = std::string(FLAGOS_SOURCE_DIR) + "/tests/unit/kde/golden";
  std::vector<std::string> files;
  for (const auto& e : std::filesystem::directory_iterator(dir)) files.push_back(e.path());
  std::sort(files.begin(), files.end());
  REQUIRE(files.size() >= 10);
  for (const std::string& path : files) {
    auto text = readFile(path);
    REQUIRE(text.ok());
    const Golden g = parseGolden(*text);
    const std::string got = answer(g);
    if (std::getenv("UPDATE_GOLDEN")) REQUIRE(writeFileAtomic(path, g.head + "---\n" + got, 0644).ok());
    INFO(path);
    CHECK((got == g.expected || std::getenv("UPDATE_GOLDEN")));
    if (got != g.expected) UNSCOPED_INFO(got);
  }
}

TEST_CASE("the document has every field of the command contract") {
  auto r = router(cpuDevice());
  REQUIRE(r->setRules(R"({"version":1,"rules":[{"name":"w","op":"aten::linear","when":{"batch":"> 1024"},"use":"opencl.gemm.tiled"}]})", "f.json").ok());
  auto linear = [&](int64_t rows) { return r->explain(call("aten::linear", {arg({rows, 512}), arg({2048, 512}), arg({2048})}, {})); };
  const Json doc = linear(1024);
  for (const char* key : {"version", "device", "signature", "steps", "chosen", "would_change"}) CHECK(doc.contains(key));
  CHECK(doc["signature"]["op"] == "aten::linear");
  CHECK(doc["signature"]["args"][0] == Json({{"dtype", "float32"}, {"shape", {1024, 512}}, {"layout", "contiguous"}}));
  CHECK(doc["signature"]["scalars"].is_object());
  for (const Json& s : doc["steps"])
    for (const char* key : {"kind", "name", "from", "predicate", "operands", "verdict", "why", "predicted_s", "measured_s"}) CHECK(s.contains(key));
  CHECK(step(doc, "w")["from"] == "f.json:1");
  CHECK(step(doc, "w")["predicate"] == "batch > 1024");
  CHECK(step(doc, "w")["operands"] == Json({{"batch", 1024}}));
  CHECK(step(doc, "w")["verdict"] == "no");
  CHECK(doc["chosen"] == "opencl.gemm.wide");
  CHECK(doc["would_change"][0] == Json({{"if", "batch = 1025 (now 1024)"}, {"then", "opencl.gemm.tiled (rule w (f.json:1))"}}));
  const Json flipped = linear(1025);
  CHECK(step(flipped, "w")["verdict"] == "match");
  CHECK(step(flipped, "opencl.gemm.tiled")["verdict"] == "chosen");
  CHECK(flipped["chosen"] == "opencl.gemm.tiled");
  CHECK(flipped["would_change"][0]["if"] == "batch = 1024 (now 1025)");
}

TEST_CASE("the text shows counts where a process gave them, and survives a document that is no explanation") {
  Json doc = router(cpuDevice())->explain(mm(100, 64, 64));
  CHECK(explainText(doc).find("calls so far") == std::string::npos);
  doc["counts"] = {{"calls", 7}, {"by_route", {{"opencl.gemm.tiled", 3}, {"opencl.gemm.wide", 4}}}};
  CHECK(explainText(doc).find("calls so far: 7, opencl.gemm.tiled 3, opencl.gemm.wide 4\n") != std::string::npos);
  CHECK(explainText(Json(3)) == "no explanation\n");
  CHECK(explainText(Json::object()).find("chosen: nothing") != std::string::npos);
}

TEST_CASE("explain and choose give one answer") {
  const dal::DeviceDescription devices[] = {cpuDevice(), cardDevice()};
  const Signature calls[] = {mm(1024, 64, 10), mm(1025, 64, 10), mm(8, 8, 8, DType::int64), call("aten::add.out", {arg({16}), arg({16})}),
                             call("aten::_copy_from", {arg({16}), arg({16})}), call("aten::linalg_svd.U", {arg({8, 8})}),
                             call("aten::sum.IntList_out", {arg({6, 5}, DType::float64)}, {5})};
  for (const auto& d : devices)
    for (const Mode mode : {Mode::automatic, Mode::opencl, Mode::host})
      for (const Fallback fallback : {Fallback::warn, Fallback::forbid}) {
        auto r = router(d, mode, fallback);
        REQUIRE(r->setRules(R"({"version":1,"rules":[{"op":"aten::mm","when":{"m":"> 1024"},"use":"opencl.gemm.wide"}]})", "r").ok());
        for (Signature s : calls)
          for (const bool idle : {true, false}) {
            s.queue_idle = idle;
            const Route& route = r->choose(s);
            const Json doc = r->explain(s);
            INFO(text(s));
            CHECK((doc["chosen"].is_null() ? "" : doc["chosen"].get<std::string>()) == candidateName(route.chosen));
            CHECK(doc["reason"] == std::string(nameText(route.reason)));
            CHECK((doc["predicted_s"].is_null() ? -1.0 : doc["predicted_s"].get<double>()) == route.predicted_s);
            CHECK((doc["bound"].is_null() ? "" : doc["bound"].get<std::string>()) == nameText(route.bound));
          }
      }
}

TEST_CASE("what telemetry measured stands beside the prediction, per candidate") {
  auto r = router(cpuDevice());
  const Signature s = mm(2000, 64, 64);
  const Route& wide = r->choose(s);
  r->recordMeasured(wide.id, 3e-4);
  REQUIRE(r->setRule("aten::mm", "opencl.gemm.tiled").ok());
  const Route& tiled = r->choose(s);
  CHECK(tiled.id != wide.id);
  r->recordMeasured(tiled.id, 5e-3);
  const Json doc = r->explain(s);
  CHECK(doc["measured_s"] == 5e-3);
  CHECK(step(doc, "opencl.gemm.wide")["measured_s"] == 3e-4);
  CHECK(step(doc, "opencl.gemm.tiled")["measured_s"] == 5e-3);
  CHECK(step(doc, "host.aten")["measured_s"].is_null());
}

TEST_CASE("published routes reach the sink, early ones too") {
  static int published = 0;
  static RouteId last = 0;
  auto r = router(cpuDevice());
  r->choose(mm(31, 7, 7));
  onRoute([](const Route& route) { ++published; last = route.id; });
  CHECK(published == static_cast<int>(routeCount()));
  const Route& fresh = r->choose(mm(32, 7, 7));
  CHECK(last == fresh.id);
  CHECK(route(fresh.id) == &fresh);
  CHECK(nameText(fresh.op) == "aten::mm.out");
  CHECK(nameText(fresh.kernel) == "opencl.gemm.wide");
  CHECK(route(0) == nullptr);
  CHECK(route(routeCount() + 1) == nullptr);
  onRoute(nullptr);
}

TEST_CASE("a query that is wrong names the word and the nearest right one") {
  struct Case { Query q; const char* error; };
  const Case cases[] = {
      {{"aten::lineer", "", "", "", ""}, "no operator is named 'aten::lineer'. Did you mean aten::linear?"},
      {{"mm", "", "", "", ""}, "no operator is named 'mm'. Did you mean aten::mm?"},
      {{"aten::mm", "1024", "", "", ""}, "'1024' is no shape. Write --shapes \"[1024,512] [512,256]\""},
      {{"aten::mm", "[1024,x]", "", "", ""}, "'x' is no size. Sizes are whole numbers, 0 or more"},
      {{"aten::mm", "[-1]", "", "", ""}, "'-1' is no size. Sizes are whole numbers, 0 or more"},
      {{"aten::mm", "[99999999999999999999]", "", "", ""}, "'99999999999999999999' is no size. Sizes are whole numbers, 0 or more"},
      {{"aten::mm", "[1] [1] [1] [1] [1] [1]", "", "", ""}, "more than 5 shapes"},
      {{"aten::mm", "[4611686018427387904,4] [4,2]", "", "", ""}, "'[4611686018427387904,4]' has more elements than 64 bits can count"},
      {{"aten::mm", "[2,3] [4,5]", "", "", ""}, "aten::mm cannot multiply [2,3] by [4,5]. 3 and 4 must be equal"},
      {{"aten::mm.out", "[2,3] [3]", "", "", ""}, "aten::mm.out cannot multiply [2,3] by [3]. Both need 2 dimensions"},
      {{"aten::addmm", "[5] [2,3] [4,5]", "", "", ""}, "aten::addmm cannot multiply [2,3] by [4,5]. 3 and 4 must be equal"},
      {{"aten::bmm", "[7,2,3] [6,3,5]", "", "", ""}, "aten::bmm cannot multiply [7,2,3] by [6,3,5]. The batches 7 and 6 must be equal"},
      {{"aten::linear", "[8,32] [32,64] [64]", "", "", ""}, "aten::linear cannot multiply [8,32] by [32,64]. 32 and 64 must be equal"},
      {{"aten::conv2d", "[1,3,8,8] [4,5,3,3]", "", "", ""},
       "aten::conv2d cannot convolve [1,3,8,8] with weights [4,5,3,3]. 3 channels are no groups of 5; write the weight as [out,in/groups,height,width]"},
      {{"aten::conv2d", "[1,8,8,8] [4,4,3,3]", "", "", "groups=4"},
       "aten::conv2d cannot convolve [1,8,8,8] with weights [4,4,3,3]. 8 channels are not 4 groups of 4"},
      {{"aten::conv2d", "[1,3,8,8] [4,3,3,3]", "", "", "stride=0"}, "'stride=0' is no value for aten::conv2d. stride is 1 or more"},
      {{"aten::conv2d", "[1,3,8,8] [4,3,3,3]", "", "", "padding_w=-1"}, "'padding_w=-1' is no value for aten::conv2d. padding_w is 0 or more"},
      {{"aten::max_pool2d", "[1,3,8,8]", "", "", "kernel=0"}, "'kernel=0' is no value for aten::max_pool2d. kernel is 1 or more"},
      {{"aten::add", "[2,3] [4,5]", "", "", ""}, "aten::add cannot broadcast [2,3] with [4,5]. 3 and 5 must be equal, or one of them 1"},
      {{"aten::mul.Tensor", "[2,3] [7,4,3]", "", "", ""},
       "aten::mul.Tensor cannot broadcast [2,3] with [7,4,3]. 2 and 4 must be equal, or one of them 1"},
      {{"aten::mm", "[1] [1]", "flaot16", "", ""}, "'flaot16' is no dtype. Did you mean float16?"},
      {{"aten::mm", "[1] [1]", "half,half,half", "", ""}, "3 dtypes for 2 operands. Give one, or one per operand"},
      {{"aten::mm", "[1] [1]", "", "contigous", ""}, "'contigous' is no layout. Did you mean contiguous?"},
      {{"aten::mm", "[1] [1]", "", "", "stride=2"}, "aten::mm (family gemm) has no scalars"},
      {{"aten::conv2d", "[1,1,8,8] [1,1,3,3]", "", "", "strid=2"}, "aten::conv2d has no scalar 'strid'. Did you mean stride?"},
      {{"aten::conv2d", "[1,1,8,8] [1,1,3,3]", "", "", "stride"}, "'stride' is no scalar. Write --scalars \"stride=2 padding=1\""},
  };
  for (const Case& c : cases) {
    auto s = signatureOf(c.q, 0);
    REQUIRE_FALSE(s.ok());
    CHECK(s.error().text() == c.error);
    CHECK(s.error().exit == Exit::usage);
  }
}

TEST_CASE("a query becomes the signature that a call would have") {
  const auto s = signatureOf({"aten::conv2d", "[8,16,9,9] [32,4,3,3] -", "half", "channels_last,contiguous,contiguous", "stride=2 padding_w=1"}, 3);
  REQUIRE(s.ok());
  CHECK(s->device == 3);
  CHECK(text(*s) == "aten::conv2d(float16[8,16,9,9] channels_last, float16[32,4,3,3] contiguous, none; 2 2 0 1 1 1 0 4)");
  const auto pool = signatureOf({"aten::max_pool2d", "[8,16,9,9]", "", "", "kernel=3"}, 0);
  REQUIRE(pool.ok());
  CHECK(text(*pool) == "aten::max_pool2d(float32[8,16,9,9] contiguous; 3 3 3 3 0 0)");
  for (const char* shapes : {"[2,3] [3]", "[2,1] [1,7]", "[] [4]", "[0,1] [5]", "[2] -"}) CHECK(signatureOf({"aten::add", shapes, "", "", ""}, 0).ok());
  for (const char* shapes : {"[1,8,8,8] [4,2,3,3]", "[3,8,8] [4,3,3,3]", "[1,3,8,8] -"}) CHECK(signatureOf({"aten::conv2d", shapes, "", "", ""}, 0).ok());
  CHECK(text(*signatureOf({"other::op", "[] [2,1,1,1,1,1,1]", "int64,bool", "", ""}, 0)) == "other::op(int64[] contiguous, bool[2,1,1,1,1,1,... rank 7] contiguous)");
}
