// Calls that are not followed again: what they save, and that nothing they could have changed keeps an old value.
#include <algorithm>

#include "tests/unit/catch.h"
#include "tests/unit/lsp/analysed.h"

using namespace flagos::lsp;

namespace {

// Statements that take some hundred steps and say nothing of devices.
std::string work(const std::string& indent) {
  std::string out;
  for (int i = 0; i < 60; ++i) out += indent + "t" + std::to_string(i) + " = [1, 2, 3][0] + " + std::to_string(i) + "\n";
  return out;
}

const Site& siteOf(const Analysis& a, const std::string& call, size_t nth = 0) {
  for (const Site& s : a.sites) if (s.call == call && nth-- == 0) return s;
  throw std::runtime_error("no site " + call);
}

std::string devices(const Site& s) {
  std::string out = s.resolution;
  for (const auto& d : s.devices) out += " " + d.device;
  return out;
}

std::string repeated(int n, const std::string& line) {
  std::string out;
  for (int i = 0; i < n; ++i) out += line + "\n";
  return out;
}

}  // namespace

TEST_CASE("a deep tree of calls that has nothing to do with devices does not use up the budget") {
  std::string helper;
  for (int i = 0; i < 12; ++i) {
    const std::string next = i < 11 ? "f" + std::to_string(i + 1) + "(x + 1)" : "x";
    helper += "def f" + std::to_string(i) + "(x):\n" + work("    ") + "    return " + next + " + " + next + " + " + next + "\n";
  }
  const Analysis a = analyseWith(helper, "import torch\nfrom helper import f0\nn = f0(1)\ny = torch.zeros(2, device='npu:1')\n");
  CHECK(!a.gave_up);
  CHECK(a.steps < 60'000);   // 3^11 calls of 300 steps otherwise
  CHECK(devices(siteOf(a, "torch.zeros")) == "exact npu:1");
}

TEST_CASE("what a call that is not followed would have written is not known afterwards") {
  const std::string helper = "class Box:\n    width = 7\n    def fill(self, n):\n" + work("        ") + "        self.width = n\n";
  const auto bytes = [&](int calls) {
    std::string main = "import torch\nfrom helper import Box\n";
    for (int i = 1; i <= calls; ++i) main += "b = Box()\nb.fill(" + std::to_string(i) + ")\n";
    return siteOf(analyseWith(helper, main + "y = torch.zeros(b.width, device='npu:0')\n"), "torch.zeros").bytes;
  };
  CHECK(bytes(2) == 8.0);
  CHECK(bytes(3) == 12.0);
  CHECK(bytes(6) == std::nullopt);   // neither the third call's 12 nor the class's 28
}

TEST_CASE("a function is followed again when a device, a tensor or a callback goes in") {
  const std::string helper = "def pick(x):\n" + work("    ") + "    return x\ndef run(fn):\n" + work("    ") + "    return fn()\n";
  const std::string head = "import torch\nfrom helper import pick, run\n" + repeated(6, "pick('text')");
  CHECK(devices(siteOf(analyseWith(helper, head + "y = torch.zeros(2, device=pick('npu:1'))\n"), "torch.zeros")) == "exact npu:1");
  CHECK(devices(siteOf(analyseWith(helper, head + "y = torch.ones(2, device=pick(torch.zeros(2, device='npu:0')).device)\n"), "torch.ones")) == "exact npu:0");
  std::string main = head;
  for (int i = 0; i < 20; ++i)
    main += "def g" + std::to_string(i) + "():\n    return torch.zeros(2, device='npu:" + std::to_string(i % 2) + "')\ny = torch.ones(2, device=run(g" + std::to_string(i) + ").device)\n";
  const Analysis a = analyseWith(helper, main);
  CHECK(devices(siteOf(a, "torch.ones", 18)) == "exact npu:0");
  CHECK(devices(siteOf(a, "torch.ones", 19)) == "exact npu:1");
}

TEST_CASE("a function of the file itself that gets another device is followed however often it ran") {
  std::string main = "import torch\ndef place(d):\n" + work("    ") + "    return torch.zeros(2, device=d)\n" + repeated(30, "place('npu:0')") + "place('npu:1')\n";
  const Site site = siteOf(analyseWith("", main), "torch.zeros");
  CHECK(site.resolution == "candidates");
  CHECK(std::any_of(site.devices.begin(), site.devices.end(), [](const auto& d) { return d.device == "npu:1"; }));
}

TEST_CASE("another file's function that takes much of the budget ends as unknown, with the reason") {
  std::string helper = "import torch\ndef pick(x):\n";
  for (int i = 0; i < 15; ++i) helper += work("    ");
  helper += "    return x\n";
  const Analysis a = analyseWith(helper, "import torch\nfrom helper import pick\n" + repeated(5, "pick('npu:0')") + "y = torch.zeros(2, device=pick('npu:1'))\n");
  CHECK(!a.gave_up);
  CHECK(siteOf(a, "torch.zeros").resolution == "unknown");
  CHECK(siteOf(a, "torch.zeros").reason.find("`pick` is not followed again") != std::string::npos);
}
