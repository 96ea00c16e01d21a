// What importing a module does to others, told from its lines; and what a call that is not followed leaves known.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "lsp/python/import_effects.h"
#include "lsp/server/machine.h"
#include "lsp/text/document.h"
#include "tests/unit/catch.h"
#include "tests/unit/lsp/analysed.h"

using namespace flagos::lsp;

namespace {

struct Case { const char* text; bool sets; std::vector<std::string> setters; };

std::string manyCalls(int n, const std::string& call) {
  std::string out = "import torch\nfrom helper import Box, pick\nbox = Box()\n";
  for (int i = 0; i < n; ++i) out += call + "\n";
  return out + "a = torch.zeros(2, device=pick('npu:1'))\nb = torch.ones(2, device='npu:0')\n";
}

}  // namespace

TEST_CASE("what importing a module does to others is read from its lines") {
  const std::vector<Case> cases = {
      {"import torch\ntorch.set_default_device('npu')\n", true, {}},
      {"import torch\nif x:\n    torch.npu.set_device(1)\n", true, {}},
      {"import os\nos.environ['A'] = '1'\n", true, {}},
      {"import os\nos.environ.setdefault('A', '1')\n", true, {}},
      {"import os\nos.environ[\n    'A'] = '1'\n", true, {}},
      {"import os\na = os.environ['A']\nif os.environ['B'] == '1':\n    pass\n", false, {}},
      {"import os\nassert os.environ['B'] != '1'\n", false, {}},
      {"import config\nconfig.device = 'npu:1'\n", true, {}},
      {"from a import (\n    b,\n    config,\n)\nconfig.device = 'npu:1'\n", true, {}},
      {"class A:\n    pass\nA.b = 1\n", false, {}},
      {"import config\nconfig.device == 'npu:1'\n", false, {}},
      {"import os\ndef f():\n    os.environ['A'] = '1'\n", false, {"f"}},
      {"import os\ndef f(\n    a,\n) -> None:\n    os.environ['A'] = '1'\n", false, {"f"}},
      {"import os\ndef f():\n    if x:\n\n        putenv('A', '1')\n\ndef g():\n    f()\n\ndef h():\n    return 1\n", false, {"f", "g"}},
      {"class A:\n    def __init__(self):\n        torch.set_default_device('npu')\n    def use(self):\n        torch.npu.set_device(0)\n", false, {"A", "use"}},
      {"class A:\n    torch.set_default_device('npu')\n", true, {}},
      {"def set_device(d):\n    return d\n", false, {}},
      {"# torch.set_default_device('npu')\n", false, {}},
      {"", false, {}},
  };
  for (const auto& c : cases) {
    INFO(c.text);
    const ImportEffects e = effectsOfImport(c.text);
    CHECK(e.sets == c.sets);
    CHECK(e.setters == c.setters);
  }
  const auto calls = effectsOfImport("import os\nx = a.setup(1)\ndef f():\n    inside()\nclass B:\n    y = made()\n").calls;
  CHECK(std::count(calls.begin(), calls.end(), "setup") == 1);
  CHECK(std::count(calls.begin(), calls.end(), "made") == 1);
  CHECK(std::count(calls.begin(), calls.end(), "inside") == 0);
}

TEST_CASE("a call that is one too many of a function that changes nothing leaves the rest of the file known") {
  const std::string helper = "class Box:\n    pass\ndef pick(name):\n    return name\ndef keep(box, name):\n    box.device = name\n    return name\n";
  const auto of = [](const Analysis& a, size_t i) { return a.sites.at(i).resolution + " " + a.sites.at(i).reason; };
  const Analysis few = analyseWith(helper, manyCalls(3, "pick('npu:0')"));
  CHECK(!few.gave_up);
  const Analysis cut = analyseWith(helper, manyCalls(1'010, "pick('npu:0')"));
  CHECK(!cut.gave_up);
  const auto first = std::find_if(cut.sites.begin(), cut.sites.end(), [](const Site& s) { return s.call == "torch.zeros"; });
  REQUIRE(first != cut.sites.end());
  CHECK(first->resolution == "unknown");
  CHECK(first->reason.find("called from too many places") != std::string::npos);
  CHECK(of(cut, cut.sites.size() - 1).starts_with("exact"));
}

TEST_CASE("a call that is one too many of a function that changes things makes the file incomplete") {
  const std::string helper = "class Box:\n    pass\ndef pick(name):\n    return name\ndef keep(box, name):\n    box.device = name\n    return name\n";
  const Analysis cut = analyseWith(helper, "from helper import keep\n" + manyCalls(1'010, "keep(box, 'npu:0')"));
  CHECK(cut.gave_up);
  CHECK(cut.gave_up_why.find("`keep`") != std::string::npos);
  // What was left out may have moved an operand: nothing is said for certain after it.
  const auto mismatches = [&](int calls) {
    const Analysis a = analyseWith(helper, "from helper import keep\n" + manyCalls(calls, "keep(box, 'npu:0')") + "c = torch.ones(2, 2, device='npu:0') + torch.ones(2, 2)\n");
    return std::count_if(a.findings.begin(), a.findings.end(), [](const Finding& f) { return f.code == "device-mismatch"; });
  };
  CHECK(mismatches(3) == 1);
  CHECK(mismatches(1'010) == 0);
  std::string own = "import torch\ndef place(n):\n    return torch.zeros(n, device='npu:0')\n";
  for (int i = 0; i < 1'010; ++i) own += "place(" + std::to_string(i) + ")\n";
  CHECK(analyseWith(helper, own).gave_up);   // places of this file itself were left out
}

TEST_CASE("whether a text says something is looked for once and stays true") {
  const auto unit = makeUnit("/w/a.py", "import torch  # pin_memory\n");
  for (int i = 0; i < 2; ++i) {
    CHECK(unit->says("pin_memory"));
    CHECK(!unit->says("requires_grad"));
  }
  REQUIRE(unit->ast.imports().size() == 1);
  CHECK(unit->ast.imports()[0]->kind == N::import_);
}

TEST_CASE("a tree kept through edits of a long text is the tree of the text") {
  std::string text = "import torch\n\n";
  for (int i = 0; i < 60; ++i) {
    const std::string n = std::to_string(i);
    text += "class Net" + n + ":\n    def __init__(self, width: int = 64):\n        # a comment\n\n        self.w = torch.ones(width)\n\n" +
            "    def forward(self, x):\n        if x:\n            return [a for a in x]\n        return x\n\n\ndef run" + n + "(steps: int = 10):\n    '''Text\n  over lines.'''\n    return Net" + n + "()\n\n";
  }
  Document kept("file:///w/a.py", "/w/a.py", 1, text);
  REQUIRE(kept.tree());
  uint32_t state = 7;
  const auto below = [&](int n) { state = state * 1664525u + 1013904223u; return static_cast<int>((state >> 8) % static_cast<uint32_t>(n)); };
  const char* const typed[] = {"x", " ", "\n", "    ", "# ", "\n    y = 1\n", "", "return 2\n", "\t", "pass"};
  for (int i = 0; i < 300; ++i) {
    const int line = below(kept.lines().lineCount()), column = below(24);
    const Range r{{line, column}, {line + below(2), column + below(5)}};
    kept.apply({{r, typed[below(10)]}}, i + 2, Encoding::utf8);
    const auto fresh = SyntaxTree::parse(kept.text());
    REQUIRE(static_cast<bool>(kept.tree()) == static_cast<bool>(fresh));
    INFO("edit " << i << ":\n" << kept.text());
    if (fresh) REQUIRE(kept.tree()->sexpr() == fresh->sexpr());
    if (i % 5 == 4) kept.apply({{std::nullopt, text}}, i + 2, Encoding::utf8);   // broken texts are read anew anyway
  }
}

TEST_CASE("a default device that was typed and not yet saved counts for the files that import it") {
  namespace fs = std::filesystem;
  const fs::path base = fs::temp_directory_path() / ("flagos-imports-" + std::to_string(::getpid()));
  fs::create_directories(base);
  const std::string setup = (base / "setup.py").string(), main = (base / "main.py").string();
  std::ofstream(setup) << "import torch\n";
  std::optional<std::string> typed;
  Workspace workspace([&](const std::string& path) { return path == setup ? typed : std::nullopt; });
  workspace.setRoots({base.string()});
  AnalysisOptions options;
  options.machine = machineOf({"npu:0", "npu:1"});
  const auto device = [&] {
    const Analysis a = analyse(makeUnit(main, "import torch\nimport setup\nx = torch.zeros(4)\n"), workspace, options);
    return a.sites.empty() || a.sites[0].devices.empty() ? std::string("none") : a.sites[0].devices[0].device;
  };
  CHECK(device() == "none");               // on the CPU, which is no placement
  typed = "import torch\ntorch.set_default_device('npu:1')\n";
  CHECK(device() == "npu:1");
  typed = "import torch\ntorch.set_default_device('npu:0')\n";
  CHECK(device() == "npu:0");
  typed.reset();                           // closed without saving
  CHECK(device() == "none");
  fs::remove_all(base);
}
