// Shapes, bytes, times and memory that are predicted without running.
#include <algorithm>

#include "lsp/predict/predict.h"
#include "lsp/python/analysis.h"
#include "lsp/server/machine.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;

namespace {

// A card with round rates: 1 TB/s, 10 TFLOP/s, 10 GB/s to the host, 10 us a launch.
Machine card() {
  Machine m = machineOf({"npu:0"});
  MachineDevice& d = m.details["npu:0"];
  d.description.name = "Round card";
  d.description.kind = flagos::dal::Kind::discrete;
  d.description.bandwidth_bps = 1e12;
  d.description.flops_f32 = 1e13;
  d.description.copy_bps = 1e10;
  d.description.launch_s = 1e-5;
  d.description.wait_s = 3e-5;
  d.description.memory_bytes = 8ull << 30;
  d.description.max_alloc_bytes = 8ull << 30;
  d.description.compute_units = 64;
  d.description.rates_source = "table";
  return m;
}

Analysis of(const std::string& text, const Machine& machine = card()) {
  Workspace workspace;
  AnalysisOptions options;
  options.machine = machine;
  return analyse(makeUnit("/nowhere/a.py", text), workspace, options);
}

// "aten::linear [8,512] [512,512] [512]" for every call, in order.
std::vector<std::string> calls(const Analysis& a) {
  std::vector<std::string> out;
  for (const auto& u : a.ops) for (const auto& c : u.calls) out.push_back(c.op + " " + c.shapes() + (c.scalars.empty() ? "" : " " + c.scalars));
  return out;
}

const std::string kHead = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nd = 'npu:0'\n";

}  // namespace

TEST_CASE("operator calls follow from shapes, layer by layer") {
  struct Case { const char* text; std::vector<std::string> expected; };
  const std::vector<Case> cases = {
      {"x = torch.randn(8, 16, device=d)\ny = nn.Linear(16, 4, device=d)(x)", {"aten::normal_ [8,16]", "aten::linear [8,16] [4,16] [4]"}},
      {"x = torch.empty(2, 3, 32, 32, device=d)\ny = nn.Conv2d(3, 8, 3, stride=2, padding=1, device=d)(x)\nz = y.flatten(1).relu()",
       {"aten::conv2d [2,3,32,32] [8,3,3,3] [8] stride=2 padding=1 dilation=1 groups=1", "aten::relu [2,2048]"}},
      {"x = torch.empty(4, 8, 10, 10, device=d)\ny = F.max_pool2d(x, 2)\nz = y + 1", {"aten::max_pool2d [4,8,10,10] kernel=2 stride=2 padding=0", "aten::add.out [4,8,5,5]"}},
      {"a = torch.empty(5, 6, device=d)\nb = torch.empty(6, 7, device=d)\nc = a @ b\ne = (c.t() * 2).sum(dim=0)",
       {"aten::mm [5,6] [6,7]", "aten::mul.out [7,5]", "aten::sum [7,5] reduced=7"}},
      {"a = torch.empty(2, 1, 4, device=d)\nb = torch.empty(3, 1, device=d)\nc = a - b\ne = c.exp()", {"aten::sub.out [2,1,4] [3,1]", "aten::exp [2,3,4]"}},
      {"m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to(d)\ny = m(torch.empty(1, 4, device=d))",
       {"aten::linear [1,4] [4,4] [4]", "aten::relu [1,4]", "aten::linear [1,4] [4,4] [4]"}},
      {"e = nn.Embedding(100, 16).to(d)\ni = torch.empty(4, 6, dtype=torch.int64, device=d)\nv = e(i)\nn = nn.LayerNorm(16).to(d)(v)",
       {"aten::index_select [24,16] [24]", "aten::layer_norm [4,6,16] [16] [16]"}},
      {"q = torch.empty(2, 4, 8, 16, device=d)\nk = torch.empty(2, 4, 6, 16, device=d)\ny = F.scaled_dot_product_attention(q, k, k, is_causal=True)\nz = y.transpose(1, 2).contiguous().view(2, 8, 64) + 1",
       {"aten::scaled_dot_product_attention [2,4,8,16] [2,4,6,16] [2,4,6,16] causal=1", "aten::add.out [2,8,64]"}},
      {"y = nn.GroupNorm(2, 8).to(d)(torch.empty(2, 8, 4, 4, device=d))", {"aten::group_norm [2,8,4,4] [8] [8]"}},
      {"x = torch.empty(2, 6, device=d)\ny = x.view(x.size(0), 3, -1).relu()\nz = x.view(-1, x.numel() // len(x) // 2).exp()",
       {"aten::relu [2,3,2]", "aten::exp [4,3]"}},
      {"q, k, v = torch.empty(2, 5, 12, device=d).split(4, dim=2)\ny = q.relu()\na, b = torch.empty(6, 4, device=d).chunk(2)\nz = torch.tril(b).exp()",
       {"aten::relu [2,5,4]", "aten::exp [3,4]"}},
      {"x = torch.empty(2, 6, device=d).view(2, 3, -1).transpose(1, 2)\ny = x.softmax(-1)", {"aten::softmax.int [2,2,3]"}},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    CHECK(calls(of(kHead + c.text)) == c.expected);
  }
}

TEST_CASE("a size that is not known is said, never guessed") {
  struct Case { const char* text; int line; const char* reason; };
  const std::vector<Case> cases = {
      {"n = int(input())\nx = torch.empty(n, 4, device=d)\ny = x.relu()", 7, "sizes of `x.relu()` do not follow"},
      {"x = torch.empty(2, 3, device=d)\ny = x @ torch.empty(4, 2, device=d)", 6, "do not follow"},       // PyTorch refuses it
      {"x = torch.empty(2, 3, device=d)\ny = nn.Linear(4, 2, device=d)(x)", 6, "do not follow"},
      {"x = torch.empty(2, 4, device=d)\ny = nn.Linear(4, k, device=d)(x)", 6, "do not follow"},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    const Analysis a = of(kHead + c.text);
    REQUIRE(a.predicted);
    const LinePrediction* l = a.predicted->at(c.line);
    REQUIRE(l);
    CHECK_FALSE(l->seconds.has_value());
    CHECK(l->why_missing.find(c.reason) != std::string::npos);
  }
  const Analysis named = of(kHead + "x = torch.zeros(4, device=d)\n", machineOf({"npu:0"}));
  REQUIRE(named.predicted->at(5));
  CHECK(named.predicted->at(5)->why_missing.find("only the name is known") != std::string::npos);
}

TEST_CASE("time of a copy and the bottleneck of a function") {
  const Analysis a = of(kHead + "def step():\n    h = torch.empty(2500, 1000)\n    x = h.to(d)\n    y = x + 1\n    return y\n\n\nstep()\n");
  const LinePrediction* copy = a.predicted->at(7);
  REQUIRE(copy);
  REQUIRE(copy->seconds);
  CHECK(*copy->seconds == Approx(1e7 / 1e10 + 1e-5));   // 10 MB at 10 GB/s, and asking for it
  CHECK(copy->bound == "copy");
  const LinePrediction* add = a.predicted->at(8);
  REQUIRE(add);
  REQUIRE(add->seconds);
  CHECK(add->bound == "memory");
  CHECK(add->bytes == Approx(2e7));                   // read and written once
  CHECK(*add->seconds > 2e7 / 1e12);                  // no kernel beats the bandwidth
  CHECK(*add->seconds < 10 * 2e7 / 1e12 + 2e-5);
  REQUIRE(a.predicted->functions.size() == 1);
  const FunctionPrediction& f = a.predicted->functions[0];
  CHECK(f.name == "step");
  CHECK(f.first_line == 5);
  CHECK(f.bottleneck_line == 7);
  CHECK(f.bound == "copy");
  CHECK(f.seconds == Approx(*copy->seconds + *add->seconds));
  CHECK(f.unknown == 0);
  CHECK(functionText(f).find("line 7 takes") != std::string::npos);
  CHECK(lineText(*copy).find("bound by copy") != std::string::npos);
  CHECK(errorText(*copy, 2 * *copy->seconds).find("0.5 times the measured") != std::string::npos);
  CHECK(errorText(*copy, 0).empty());
  CHECK(std::string(kAssumptions).find("a copy takes the device's time for one launch") != std::string::npos);
  Machine unasked = card();
  unasked.details["npu:0"].description.launch_s = 0;
  const Analysis open = of(kHead + "h = torch.empty(3)\nx = h.to(d)\n", unasked);
  REQUIRE(open.predicted->at(6));
  CHECK_FALSE(open.predicted->at(6)->seconds);   // never the 0.3 ns of its bytes
  CHECK(open.predicted->at(6)->why_missing == "the time to ask for a copy (a launch) is not known");
}

TEST_CASE("a share is of what is known, and no line is named where more is unknown") {
  FunctionPrediction f;
  f.name = "train";
  f.seconds = 7.76e-6;
  f.calls = 3;
  f.bottleneck_line = 48;
  f.bottleneck_share = 1;
  f.bound = "copy";
  CHECK(functionText(f) == "train(): predicted 7.76 us, line 48 takes 100 % (bound by copy)");
  f.unknown = 3;
  CHECK(functionText(f) == "train(): predicted at least 7.76 us, line 48 takes 100 % of what is known (bound by copy), 3 calls without known sizes");
  f.unknown = 24;
  CHECK(functionText(f) == "train(): predicted at least 7.76 us, 24 calls without known sizes");
}

TEST_CASE("integers are read as Python reads them; what 64 bits do not hold is unknown, and says so") {
  const auto site = [](const std::string& text) {
    const Analysis a = of(kHead + text);
    REQUIRE(a.sites.size() == 1);
    return a.sites[0];
  };
  CHECK(site("x = torch.zeros(0x10, 0b11, 0o17, 1_0, device=d)\n").bytes == 4.0 * 16 * 3 * 15 * 10);
  CHECK(site("x = torch.zeros(9223372036854775807, 0, device=d)\n").bytes == 0.0);
  for (const char* text : {"x = torch.zeros(99999999999999999999, 5, device=d)\n", "x = torch.zeros((2, 9223372036854775808), device=d)\n"}) {
    INFO(text);
    const Site big = site(text);
    CHECK_FALSE(big.bytes);
    CHECK(big.bytes_how == "an integer beyond 64 bits");
  }
  const Site many = site("x = torch.zeros(9223372036854775807, 5, device=d)\n");
  CHECK_FALSE(many.bytes);
  CHECK(many.bytes_how == "float32 [9223372036854775807, 5] needs more bytes than 64 bits count");
}

TEST_CASE("a line that several calls lead to is predicted for one run of it, not for all of them together") {
  const std::string model = "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(512, 512)\n"
                            "    def forward(self, x):\n        return self.l(x)\nm = N().to(d)\n";
  const auto line = [&](const std::string& text) {
    const Analysis a = of(kHead + model + text);
    const LinePrediction* l = a.predicted->at(10);
    REQUIRE(l);
    REQUIRE(l->seconds);
    return *l;
  };
  const LinePrediction once = line("y = m(torch.zeros(64, 512, device=d))\n");
  CHECK_FALSE(once.least);
  const LinePrediction same = line("def f():\n    return m(torch.zeros(64, 512, device=d))\ndef g():\n    return m(torch.zeros(64, 512, device=d))\nf()\ng()\n");
  CHECK(*same.seconds == Approx(*once.seconds));
  CHECK(same.calls == 1);
  CHECK_FALSE(same.least);
  const LinePrediction both = line("def f():\n    return m(torch.zeros(64, 512, device=d))\ndef g():\n    return m(torch.zeros(8192, 512, device=d))\nf()\ng()\n");
  CHECK(*both.least == Approx(*once.seconds));
  CHECK(*both.seconds > 2 * *once.seconds);
  CHECK_THAT(lineText(both), Catch::Contains(" to ") && Catch::Contains(" by the call or pass, bound by compute"));
}

TEST_CASE("a function counts the passes of its loops, a line is one run of it") {
  const std::string model = "class N(nn.Module):\n    def __init__(self, n=12):\n        super().__init__()\n        self.b = nn.ModuleList([nn.Linear(512, 512) for _ in range(n)])\n"
                            "    def forward(self, x):\n        for b in self.b:\n            x = b(x)\n        return x\n";
  const auto of_forward = [&](const std::string& text) {
    const Analysis a = of(kHead + model + text);
    const auto f = std::find_if(a.predicted->functions.begin(), a.predicted->functions.end(), [](const auto& x) { return x.name == "forward"; });
    REQUIRE(f != a.predicted->functions.end());
    const LinePrediction* l = a.predicted->at(11);
    REQUIRE(l);
    REQUIRE(l->seconds);
    CHECK(l->calls == 1);
    CHECK_FALSE(l->least);
    CHECK(f->bottleneck_share == Approx(1));
    CHECK_FALSE(f->open);
    return f->seconds / *l->seconds;
  };
  const std::string run = "y = m(torch.zeros(64, 512, device=d))\n";
  CHECK(of_forward("m = N().to(d)\n" + run) == Approx(12));
  CHECK(of_forward("m = N(3).to(d)\n" + run) == Approx(3));
  CHECK(of_forward("m = N(3).to(d)\nfor e in range(4):\n    " + run) == Approx(3));     // loops of the caller are not forward's
  CHECK(of_forward("m = N().to(d)\nfor e in range(100):\n    " + run) == Approx(12));
  const auto step = [&](const std::string& body) {
    const Analysis a = of(kHead + "l = nn.Linear(512, 512).to(d)\ndef step(x):\n" + body + "    return x\nstep(torch.zeros(64, 512, device=d))\n");
    REQUIRE(a.predicted->functions.size() == 1);
    return a.predicted->functions[0];
  };
  const Analysis twice = of(kHead + model + "m = N().to(d)\ndef f():\n    return m(torch.zeros(64, 512, device=d))\ndef g():\n    return m(torch.zeros(64, 512, device=d))\nf()\ng()\n");
  for (const auto& f : twice.predicted->functions)      // two calls lead there: one run of it is not both
    if (f.name == "forward") CHECK(f.seconds == Approx(12 * *twice.predicted->at(11)->seconds));
  const double once = step("    x = l(x)\n").seconds;
  CHECK(step("    for i in range(3):\n        x = l(x)\n").seconds == Approx(3 * once));
  CHECK(step("    for i in range(3):\n        for k in range(20):\n            x = l(x)\n").seconds == Approx(60 * once));
  CHECK(step("    for i in range(20):\n        for k in (1, 2):\n            x = l(x)\n").seconds == Approx(40 * once));
  const FunctionPrediction reading = step("    for i in range(int(input())):\n        x = l(x)\n");
  CHECK(reading.open);
  CHECK(reading.seconds == Approx(once));
  const Analysis open = of(kHead + "l = nn.Linear(512, 512).to(d)\ndef step(x):\n    while input():\n        x = l(x)\n    return x\nstep(torch.zeros(64, 512, device=d))\n");
  CHECK_THAT(functionText(open.predicted->functions[0]), Catch::Contains("with one pass of each loop whose length is not known"));
}

TEST_CASE("memory of a device: fits, does not fit, not known") {
  const auto need = [](const std::string& text, const Machine& m = card()) {
    const Analysis a = of(kHead + text, m);
    REQUIRE(a.predicted->needs.size() == 1);
    return a.predicted->needs[0];
  };
  const DeviceNeed small = need("x = torch.zeros(1024, 1024, device=d)\ny = nn.Linear(10, 10).to(d)\n");
  CHECK(small.bytes == 1024 * 1024 * 4 + (100 + 10) * 4);
  CHECK(small.fits == true);
  const DeviceNeed big = need("x = torch.zeros(65536, 65536, device=d)\n");
  CHECK(big.fits == false);
  CHECK(needText(big).find("does not fit") != std::string::npos);
  const DeviceNeed open = need("x = torch.zeros(k, 2, device=d)\ny = torch.zeros(2, device=d)\n");
  CHECK_FALSE(open.fits.has_value());
  CHECK(open.unknown == 1);
  CHECK(needText(open).find("1 of 2 sites have no known size") != std::string::npos);
  Machine busy = card();
  busy.details["npu:0"].free_bytes = 1e6;
  CHECK(need("x = torch.zeros(1024, 1024, device=d)\n", busy).fits == false);
  CHECK_FALSE(need("x = torch.zeros(4, device=d)\n", machineOf({"npu:0"})).fits.has_value());
  // Room enough, but not in one piece; a module is many pieces.
  Machine pieces = card();
  pieces.details["npu:0"].description.max_alloc_bytes = 1ull << 30;
  const DeviceNeed whole = need("x = torch.zeros(20000, 20000, device=d)\n", pieces);
  CHECK(whole.fits == false);
  CHECK(needText(whole).find("of its 8 GiB: does not fit, one tensor needs 1.49 GiB and at most 1 GiB are given in one piece.") != std::string::npos);
  CHECK(need("x = torch.zeros(10000, 10000, device=d)\ny = nn.Linear(20000, 20000).to(d)\n", pieces).fits == true);
}

TEST_CASE("a cast of a module changes what it needs, and a second move to the same device adds nothing") {
  const auto need = [](const std::string& text) {
    const Analysis a = of(kHead + text);
    REQUIRE(a.predicted->needs.size() == 1);
    return a.predicted->needs[0].bytes;
  };
  const double plain = (100 + 10) * 4;
  CHECK(need("m = nn.Linear(10, 10)\nm.to(d)\n") == plain);
  for (const char* cast : {"m.half()", "m.bfloat16()", "m.to(torch.float16)", "m.to(dtype=torch.bfloat16)", "m.half().float().half()"})
    CHECK(need(std::string("m = nn.Sequential(nn.Linear(10, 10), nn.ReLU())\n") + cast + "\nm.to(d)\n") == plain / 2);
  CHECK(need("m = nn.Linear(10, 10)\nm.double()\nm.to(d)\n") == 2 * plain);
  CHECK(need("m = nn.Linear(10, 10).to(d, torch.float16)\n") == plain / 2);
  CHECK(need("m = nn.Linear(10, 10, device=d, dtype=torch.float16)\n") == plain / 2);
  // The counter of a batch norm is an integer whatever the rest is cast to.
  CHECK(need("m = nn.BatchNorm2d(8)\nm.half()\nm.to(d)\n") == 4 * 8 * 2 + 8);
  CHECK(need("class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(10, 10)\n        self.w = nn.Parameter(torch.zeros(5))\n"
             "m = N().half().to(d)\n") == plain / 2 + 10);
  CHECK(need("m = nn.Linear(10, 10)\nm.to(d)\nm.to(d)\n") == plain);
  CHECK(need("m = nn.Linear(10, 10).to(d)\nk = nn.Linear(10, 10).to(d)\n") == 2 * plain);
}

TEST_CASE("every layer of a container counts, shared ones once, and what was not followed makes the size unknown") {
  const std::string model = "class N(nn.Module):\n    def __init__(self, n=12):\n        super().__init__()\n        ";
  const double one = (100 + 10) * 4;
  struct Case { const char* body; std::optional<double> bytes; };
  const std::vector<Case> cases = {
      {"self.b = nn.ModuleList([nn.Linear(10, 10) for _ in range(n)])", 12 * one},
      {"self.b = nn.ModuleList(nn.Linear(10, 10) for _ in range(n))", 12 * one},
      {"self.b = nn.ModuleList(list(nn.Linear(10, 10) for i in range(2, 5)))", 3 * one},
      {"self.b = nn.Sequential(*[nn.Linear(10, 10) for _ in range(n)])", 12 * one},
      {"self.b = nn.Sequential(nn.Linear(10, 10), *[nn.Linear(10, 10) for _ in range(3)], nn.ReLU())", 4 * one},
      {"self.b = nn.Sequential(*[nn.Sequential(nn.Linear(10, 10), nn.ReLU()) for _ in range(n)])", 12 * one},
      {"l = []\n        for i in range(3):\n            l.append(nn.Linear(10, 10))\n            l += [nn.ReLU()]\n        self.b = nn.Sequential(*l)", 3 * one},
      {"l = []\n        for i in range(n):\n            l.append(nn.Linear(10, 10))\n        self.b = nn.Sequential(*l)", std::nullopt},
      {"l = []\n        for i, o in zip((10, 20, 30)[:-1], (10, 20, 30)[1:]):\n            l += [nn.Linear(i, o), nn.ReLU()]\n        self.b = nn.Sequential(*l)", (220 + 630) * 4.0},
      {"self.b = nn.ModuleList()\n        for i in range(3):\n            self.b.append(nn.Linear(10, 10))", 3 * one},
      {"self.b = nn.ModuleList()\n        for i in range(n):\n            self.b.append(nn.Linear(10, 10))", std::nullopt},
      {"self.b = nn.ModuleList()\n        self.b.extend([nn.Linear(10, 10), nn.Linear(10, 10)])", 2 * one},
      {"self.b = nn.ModuleDict({'x': nn.Linear(10, 10), 'y': nn.ModuleList([nn.Linear(10, 10) for _ in range(n)])})", 13 * one},
      {"self.b = nn.ModuleDict(dict(x=nn.Linear(10, 10), y=nn.ReLU()))", one},
      {"for i in range(n):\n            setattr(self, f'l{i}', nn.Linear(10, 10))", std::nullopt},
      {"for i in range(n):\n            self.add_module(f'l{i}', nn.Linear(10, 10))", std::nullopt},
      {"self.a = nn.Linear(10, 10)\n        self.b = self.a", one},
      {"self.a = nn.Linear(10, 10)\n        self.b = nn.ModuleList([self.a, self.a])", one},
      {"self.a = nn.Embedding(50, 10)\n        self.b = nn.Linear(10, 50, bias=False)\n        self.b.weight = self.a.weight", 2000.0},
      {"self.b = nn.ModuleList([nn.Linear(10, 10) for _ in range(k)])", std::nullopt},
      {"self.b = nn.Sequential(*layers())", std::nullopt},
      {"self.b = nn.MultiheadAttention(16, 4)", 4.0 * (4 * 256 + 64)},
      {"self.b = nn.TransformerEncoderLayer(16, 4, 32)", 4.0 * (4 * 256 + 64 + 2 * 512 + 48 + 64)},
      {"self.b = nn.TransformerDecoderLayer(16, 4, dim_feedforward=32)", 4.0 * (2 * (4 * 256 + 64) + 2 * 512 + 48 + 96)},
      {"self.b = nn.LSTM(8, 16, 2, batch_first=True)", 4.0 * 4 * 16 * (8 + 16 + 2 + 16 + 16 + 2)},
      {"self.b = nn.GRU(8, 16, bidirectional=True)", 4.0 * 2 * 3 * 16 * (8 + 16 + 2)},
      {"self.b = nn.LSTM(8, 16, 2, bidirectional=True, bias=False)", 4.0 * 2 * 4 * 16 * (8 + 16 + 32 + 16)},
      {"self.b = nn.LayerNorm(16, bias=False)", 64.0},
      {"self.b = nn.LayerNorm(16, elementwise_affine=False)", 0.0},
      {"self.b = nn.RMSNorm(16)", 64.0},
  };
  for (const auto& c : cases) {
    INFO(c.body);
    const Analysis a = of(kHead + model + c.body + "\nm = N().to(d)\n");
    const auto move = std::find_if(a.sites.begin(), a.sites.end(), [](const Site& s) { return s.call == "Module.to"; });
    REQUIRE(move != a.sites.end());
    CHECK(move->bytes.has_value() == c.bytes.has_value());
    if (move->bytes && c.bytes) CHECK(*move->bytes == *c.bytes);
  }
}

TEST_CASE("sizes that follow from defaults are said to be assumed") {
  struct Case { const char* text; bool assumed; };
  const std::vector<Case> cases = {
      {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=4)\nx = torch.zeros(p.parse_args().n, 2, device=d)\n", true},
      {"import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=4)\na = p.parse_args()\nm = nn.Linear(2 * a.n, 3)\nm.to(d)\n", true},
      {"def f(n=4):\n    return torch.zeros(n, device=d)\n", true},      // nothing that was read calls it
      {"def f(n=4):\n    return torch.zeros(n, device=d)\nf()\n", false},
      {"def f(n=4):\n    return torch.zeros(n, device=d)\nf(5)\n", false},
      {"n = 4\nx = torch.zeros(n, device=d)\n", false},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    const Analysis a = of(kHead + c.text);
    REQUIRE(a.predicted->needs.size() == 1);
    const DeviceNeed& n = a.predicted->needs[0];
    CHECK(n.unknown == 0);
    CHECK(n.assumed == c.assumed);
    CHECK((needText(n).find("with defaults") != std::string::npos) == c.assumed);
  }
  const Analysis times = of(kHead + "def f(n=4):\n    x = torch.empty(n, 8, device=d)\n    return x + 1\n");
  const LinePrediction* l = times.predicted->at(7);
  REQUIRE(l);
  CHECK(l->assumed);
  CHECK(lineText(*l).find("with defaults") != std::string::npos);
}

TEST_CASE("a model of the fingerprint table is a machine") {
  const auto whole = machineFrom({"npu:0=Radeon RX 7900 XTX"});
  REQUIRE(whole);
  CHECK(whole->details.at("npu:0").description.memory_bytes == 24ull << 30);
  const auto part = machineFrom({"npu:0=7900 xtx", "npu:1"});
  REQUIRE(part);
  CHECK(part->details.at("npu:0").description.name == "Radeon RX 7900 XTX");
  CHECK(part->details.count("npu:1") == 0);
  // Its times rest on the table's figures, and say so.
  const Analysis times = of(kHead + "a = torch.empty(4096, 4096, device=d)\nb = a @ a\nc = torch.empty(1024)\ne = c.to(d)\n", *whole);
  const LinePrediction* product = times.predicted->at(6);
  REQUIRE(product);
  REQUIRE(product->seconds);
  CHECK(*product->seconds == Approx(2.0 * 4096 * 4096 * 4096 / (61.39e12 * 0.5) + 10e-6));
  CHECK(product->bound == "compute");
  CHECK_THAT(lineText(*product), Catch::Contains("rates: table)"));
  const std::string rates = ratesText(product->device, product->rates_note);
  CHECK_THAT(rates, Catch::StartsWith("rates of npu:0 from the device table: 960 GB/s (confidence A), 61.39 TFLOP/s fp32 without matrix units (A: "));
  CHECK_THAT(rates, Catch::Contains("assumed: 10 us a kernel launch, copies at 80 % of the PCIe 4x16 link"));
  const LinePrediction* copy = times.predicted->at(8);
  REQUIRE(copy);
  REQUIRE(copy->seconds);
  CHECK(*copy->seconds == Approx(4096 / (16e9 * 16 / 8 * 128 / 130 * 0.8) + 10e-6));
  const Analysis unrated = of(kHead + "a = torch.empty(64, 64, device=d)\nb = a @ a\n", *machineFrom({"npu:0=Radeon RX 7900 GRE / 7900M"}));
  REQUIRE(unrated.predicted->at(6));
  CHECK_FALSE(unrated.predicted->at(6)->seconds);
  CHECK_THAT(lineText(*unrated.predicted->at(6)), Catch::Contains("predicted time unknown: mm by opencl.gemm.tiled: the device's arithmetic rate is not known; its memory traffic alone takes"));
  CHECK(part->devices == std::vector<std::string>{"npu:0", "npu:1"});
  CHECK_FALSE(machineFrom({"npu:0=no such card"}));
  CHECK_FALSE(machineFrom({"gpu0"}));
  const auto several = machineFrom({"npu:0=Radeon RX"});
  REQUIRE_FALSE(several);
  CHECK(several.error().what.find("several models") != std::string::npos);
}
