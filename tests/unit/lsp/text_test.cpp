#include <random>

#include "lsp/python/ast.h"
#include "lsp/text/document.h"
#include "lsp/text/position.h"
#include "lsp/text/syntax.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;

TEST_CASE("positions in three encodings, with all line ends") {
  const std::string text = "ab\r\nc\xC3\xA9" "d\rx\xF0\x9F\x98\x80y\n";
  const LineIndex lines(text);
  REQUIRE(lines.lineCount() == 4);
  struct Row { uint32_t offset; int line, utf8, utf16, utf32; };
  const Row rows[] = {{0, 0, 0, 0, 0}, {2, 0, 2, 2, 2}, {4, 1, 0, 0, 0}, {5, 1, 1, 1, 1}, {7, 1, 3, 2, 2}, {8, 1, 4, 3, 3},
                      {9, 2, 0, 0, 0}, {10, 2, 1, 1, 1}, {14, 2, 5, 3, 2}, {15, 2, 6, 4, 3}, {16, 3, 0, 0, 0}};
  for (const auto& r : rows) {
    INFO(r.offset);
    CHECK(lines.position(text, r.offset, Encoding::utf8) == Position{r.line, r.utf8});
    CHECK(lines.position(text, r.offset, Encoding::utf16) == Position{r.line, r.utf16});
    CHECK(lines.position(text, r.offset, Encoding::utf32) == Position{r.line, r.utf32});
    CHECK(lines.offset(text, {r.line, r.utf8}, Encoding::utf8) == r.offset);
    CHECK(lines.offset(text, {r.line, r.utf16}, Encoding::utf16) == r.offset);
    CHECK(lines.offset(text, {r.line, r.utf32}, Encoding::utf32) == r.offset);
  }
}

TEST_CASE("positions that do not exist are clamped") {
  const std::string text = "ab\n\xF0\x9F\x98\x80\n";
  const LineIndex lines(text);
  CHECK(lines.offset(text, {0, 99}, Encoding::utf16) == 2);
  CHECK(lines.offset(text, {9, 0}, Encoding::utf16) == text.size());
  CHECK(lines.offset(text, {1, 1}, Encoding::utf16) == 3);   // half of a surrogate pair
  CHECK(lines.offset(text, {-1, 5}, Encoding::utf16) == 0);
  CHECK(lines.position(text, 5, Encoding::utf16) == Position{1, 0});   // inside a code point
  CHECK(lines.position(text, 500, Encoding::utf16) == Position{2, 0});
}

TEST_CASE("invalid UTF-8 counts as one unit a byte") {
  const std::string text = "a\xff\xc3(b";
  const LineIndex lines(text);
  for (const auto e : {Encoding::utf8, Encoding::utf16, Encoding::utf32})
    CHECK(lines.position(text, 5, e) == Position{0, 5});
}

TEST_CASE("edits change the text, and an impossible edit marks the document until the next full text") {
  Document d("file:///a.py", "/a.py", 1, "one\ntwo\nthree\n");
  d.apply({{Range{{1, 0}, {1, 3}}, "2"}, {Range{{0, 0}, {0, 0}}, "# "}}, 2, Encoding::utf16);
  CHECK(d.text() == "# one\n2\nthree\n");
  CHECK(d.version() == 2);
  d.apply({{Range{{5, 0}, {4, 0}}, "x"}}, 3, Encoding::utf16);
  CHECK(d.outOfSync());
  d.apply({{Range{{0, 0}, {0, 1}}, "x"}}, 4, Encoding::utf16);
  CHECK(d.outOfSync());
  CHECK(d.text() == "# one\n2\nthree\n");
  d.apply({{std::nullopt, "all new"}}, 5, Encoding::utf16);
  CHECK_FALSE(d.outOfSync());
  CHECK(d.text() == "all new");
}

TEST_CASE("an incrementally parsed tree equals a fresh one after random edits") {
  std::mt19937 random(7);
  const std::string pieces[] = {"x", "(", ")", "\n", "    ", "def f(a):\n", "if x:\n", "\"", "torch.zeros(2)", "#", ":", ",", "\r", "=", "\xC3\xA9"};
  std::string text = "import torch\n\ndef f(x):\n    y = x.to('npu:0')\n    return y\n\nfor i in range(3):\n    f(i)\n";
  auto tree = SyntaxTree::parse(text);
  REQUIRE(tree);
  const auto original = SyntaxTree::parse(text)->sexpr();
  for (int i = 0; i < 200; ++i) {
    // One random edit, then the edit that takes it back: the text is valid again, and has one tree.
    const auto size = static_cast<uint32_t>(text.size());
    const uint32_t begin = random() % (size + 1), end = std::min(size, begin + static_cast<uint32_t>(random() % 6));
    const std::string insert = pieces[random() % std::size(pieces)], removed = text.substr(begin, end - begin);
    tree->edit(text, LineIndex(text), {begin, end}, insert);
    text.replace(begin, end - begin, insert);
    auto changed = SyntaxTree::parse(text, &*tree);
    REQUIRE(changed);
    const auto after = begin + static_cast<uint32_t>(insert.size());
    changed->edit(text, LineIndex(text), {begin, after}, removed);
    text.replace(begin, insert.size(), removed);
    auto back = SyntaxTree::parse(text, &*changed);
    REQUIRE(back);
    INFO(i << ": '" << insert << "' at " << begin);
    CHECK(back->sexpr() == original);
    tree = std::move(back);
  }
}

TEST_CASE("text that could hang or overrun the parser is refused with a reason") {
  std::string deep;
  for (int i = 0; i < 120; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "if x:\n";
  auto refused = SyntaxTree::parse(deep + std::string(120, ' ') + "pass\n");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find("100 levels") != std::string::npos);
  auto big = SyntaxTree::parse(std::string(kMaxSourceBytes + 1, '#'));
  REQUIRE_FALSE(big);
  CHECK(big.error().what.find("2 MiB") != std::string::npos);
  std::string brackets(20000, '(');
  auto nested = SyntaxTree::parse(brackets);
  if (nested) CHECK(lower(brackets, *nested).hasErrors());
}

TEST_CASE("a lone carriage return ends a line for the parser too") {
  const std::string text = "a = 1\rb = f(2)\r";
  auto tree = SyntaxTree::parse(text);
  REQUIRE(tree);
  const Ast ast = lower(text, *tree);
  REQUIRE(ast.root()->list.size() == 2);
  CHECK(ast.root()->list[1]->line == 2);
  CHECK_FALSE(ast.hasErrors());
}

TEST_CASE("file URIs") {
  CHECK(pathOfUri("file:///a%20b/%C3%A9.py") == "/a b/\xC3\xA9.py");
  CHECK(pathOfUri("untitled:Untitled-1") == "");
  CHECK(pathOfUri("file:///x.py?query#part") == "/x.py");
  CHECK(uriOfPath("/a b/\xC3\xA9.py") == "file:///a%20b/%C3%A9.py");
}
