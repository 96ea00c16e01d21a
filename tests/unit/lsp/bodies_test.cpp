// Function bodies that are read when they are needed: where they are, and that a tree read so is the tree of the text.
#include <filesystem>
#include <random>

#include "lsp/python/workspace.h"
#include "lsp/text/bodies.h"
#include "runtime/base/json.h"
#include "tests/unit/catch.h"
#include "tests/unit/lsp/trees.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> bodies(std::string_view text) {
  std::vector<std::string> out;
  for (const auto& b : functionBodies(text)) out.emplace_back(text.substr(b.begin, b.end - b.begin));
  return out;
}

}  // namespace

TEST_CASE("the bodies of functions are found by indentation, outside strings and brackets") {
  CHECK(bodies("def f():\n    return 1\nx = 2\n") == std::vector<std::string>{"    return 1\n"});
  CHECK(bodies("class A:\n    def f(self):\n        pass\n\n    async def g(self) -> int:  # c\n        pass\ny = 1\n") ==
        std::vector<std::string>{"        pass\n\n", "        pass\n"});
  CHECK(bodies("def f(a=(1,\n  2), b=')'):\n  def g():\n    pass\n  return g\n") == std::vector<std::string>{"  def g():\n    pass\n  return g\n"});
  CHECK(bodies("def f():\n  s = '''\nx = 1\n'''\n  t = [\n1,\n]\n# c\n  return t\nz = 1\n") ==
        std::vector<std::string>{"  s = '''\nx = 1\n'''\n  t = [\n1,\n]\n# c\n  return t\n"});
  CHECK(bodies("def f():\r\n  a = 'b\\\r\nc'\r\n  d = 1 + \\\r\n2\r\ne = 1\r\n") == std::vector<std::string>{"  a = 'b\\\r\nc'\r\n  d = 1 + \\\r\n2\r\n"});
  CHECK(bodies("if x:\n  def f():\n    pass\nelse:\n  pass\n") == std::vector<std::string>{"    pass\n"});
  for (const char* none : {"", "x = 1\n", "def f(): return 1\n", "def f(): return [\n1]\n", "define = 1\nx:\n", "def f():\n", "\"\"\"\ndef f():\n    pass\n\"\"\"\n"}) {
    INFO(none);
    CHECK(bodies(none).empty());
  }
}

TEST_CASE("a text that the scan cannot be sure of has no bodies: it is read as a whole") {
  const std::string good = "def f():\n    return 1\n";
  for (const char* odd : {"\tx = 1\n", "x = (1\n", "x = 1)\n", "x = 'abc\n", "x = '''abc\n", "x = 1\r", "x = 1 \\ 2\n", "\fx = 1\n", "def g():\n    a\n  b\n"}) {
    INFO(odd);
    CHECK(bodies(good + odd).empty());
  }
  CHECK(bodies(good + std::string("x = 1\0\n", 7)).empty());
}

TEST_CASE("what stands for bodies keeps offsets and lines") {
  const std::string text = "def f():\r\n  a = '\xc3\xa9'\r\n  b\r\nc\r\n";
  CHECK(withoutBodies(text, functionBodies(text)) == "def f():\r\n          \r\n   \r\nc\r\n");
}

TEST_CASE("functions that are in a class, a condition or another function are read with their lines and parents") {
  const std::string text = "import torch\n\nclass A:\n    x = 1\n    def f(self):\n        y = torch.zeros(2)\n        return y\n\n    def g(self): return 1\n";
  Ast later;
  later.readLater(text);
  const Node* cls = later.root()->list[1];
  REQUIRE(cls->list.size() == 3);
  const Node* f = cls->list[1];
  CHECK(f->list.empty());
  CHECK(later.size() < 30);
  REQUIRE(later.body(f).size() == 2);
  CHECK(later.body(f)[0]->line == 6);
  CHECK(text.substr(later.body(f)[0]->begin, 18) == "y = torch.zeros(2)");
  CHECK(later.body(f)[1]->parent == f);
  CHECK(later.body(cls->list[2]).size() == 1);
}

TEST_CASE("a block that is not indented leaves no bodies for later") {
  for (const char* text : {"class A:\n    def f(self):\n        x = 1\n        def g(self):\n        y = 1\n",
                           "def f(a):\n    if a:\n    return 1\n", "def f(a):\n\n    # empty\ny = 1\n"})
    CHECK(functionBodies(text).empty());
  CHECK(functionBodies("def f(a):\n    if a:\n\n        return 1\n    x = {1:\n2}\n").size() == 1);
}

TEST_CASE("a tree whose bodies are read later is the tree of the whole text, after random edits too") {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % static_cast<uint32_t>(n)); };
  static const char* const typed[] = {" ", "\n", "(", ")", "'", "\"\"\"", "#", "\\\n", ":", "    ", "def g():\n", "\t", "\r\n", "[", "]", "lambda: 0", "async ", "@d\n", "if x:\n", "é"};
  size_t sound = 0, split = 0;
  for (const char* folder : {"python", "projects"}) {
    for (const auto& e : fs::recursive_directory_iterator(std::string(FLAGOS_SOURCE_DIR "/tests/fixtures/") + folder)) {
      if (e.path().extension() != ".py") continue;
      const std::string original = *flagos::readFile(e.path().string());
      for (int i = 0; i < 12; ++i) {
        std::string text = original;
        for (int k = 0; k < i % 4 && !text.empty(); ++k) {
          const size_t at = below(text.size());
          if (below(3) == 0) text.erase(at, 1 + below(6));
          else text.insert(at, typed[below(std::size(typed))]);
        }
        const auto whole = makeUnit("/w/x.py", text);
        REQUIRE(whole);
        Ast later;
        later.readLater(text);
        INFO(e.path().string() << ", variant " << i << ":\n" << text);
        if (whole->ast.hasErrors()) { (void)dump(later); continue; }   // which parts of a broken text are kept may differ
        ++sound;
        split += !functionBodies(text).empty();
        REQUIRE(dump(later) == dump(whole->ast));
      }
    }
  }
  CHECK(sound > 500);
  CHECK(split > 200);
}
