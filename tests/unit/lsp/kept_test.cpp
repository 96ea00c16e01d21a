// What is kept from one edit to the next (the syntax tree, the modules that were run, their texts) changes no answer:
// after each of many random edits the analysis says what reading everything anew says.
#include <filesystem>
#include <random>

#include "lsp/server/machine.h"
#include "lsp/text/document.h"
#include "runtime/base/json.h"
#include "tests/unit/catch.h"
#include "tests/unit/lsp/told.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

const std::string kFixtures = FLAGOS_SOURCE_DIR "/tests/fixtures";

struct Side {
  std::string path;
  const Document* open = nullptr;
  Workspace workspace;
  explicit Side(const std::string& root)
      : workspace([this](const std::string& p) -> std::optional<std::string> { return open && p == path ? std::optional(open->text()) : std::nullopt; }) {
    workspace.setRoots({root});
  }
  std::string say(Document& document) {
    path = document.path();
    open = &document;
    while (!workspace.index(1'000'000'000)) {}
    const auto& tree = document.tree();
    if (!tree) return "no tree: " + tree.error().text();
    AnalysisOptions options;
    options.machine = machineOf({"npu:0", "npu:1"});
    options.max_ns = UINT64_MAX / 4;   // only steps may end an analysis here: time differs between the two
    return told(analyse(makeUnit(document.path(), document.text(), *tree), workspace, options, &*tree), options.machine);
  }
};

class Editor {
 public:
  explicit Editor(uint32_t seed) : random_(seed) {}
  // A change of the text that people make: typing, deleting, a line doubled, lines swapped or moved, a word for another.
  TextChange next(const std::string& text) {
    const LineIndex lines(text);
    const int at = below(lines.lineCount());
    const std::string line(lines.lineText(text, at));
    const auto range = [](int l, int from, int m, int to) { return Range{{l, from}, {m, to}}; };
    const int column = below(static_cast<int>(line.size()) + 1);
    static const char* const typed[] = {"x", " ", "(", ")", "\n", "    ", ".to('npu:1')", "'", "# ", "device='npu:0'", "self.", ":", "=", "\"\"\"", "\\", "if x:\n        "};
    switch (below(8)) {
      case 0: case 1: case 2: return {range(at, column, at, column), typed[below(std::size(typed))]};
      case 3: return {range(at, column, at, std::min(static_cast<int>(line.size()), column + 1 + below(4))), ""};
      case 4: return {range(at, 0, at, 0), line + "\n"};
      case 5: return {range(at, 0, at + 1, 0), ""};
      case 6: {
        const int other = below(lines.lineCount());
        return {range(at, 0, at, static_cast<int>(line.size())), std::string(lines.lineText(text, other))};
      }
      default: {
        const auto word = line.find("npu:0");
        if (word == std::string::npos) return {range(at, 0, at, 0), "\n"};
        return {range(at, static_cast<int>(word), at, static_cast<int>(word) + 5), "npu:1"};
      }
    }
  }
  int below(int n) { return n > 0 ? static_cast<int>(random_() % static_cast<uint32_t>(n)) : 0; }

 private:
  std::mt19937 random_;
};

void compare(const std::string& root, const std::string& path, uint32_t seed, int edits) {
  const std::string original = *flagos::readFile(path);
  Document document(uriOfPath(path), path, 1, original);
  Side kept(root);
  Editor editor(seed);
  kept.say(document);
  for (int i = 0; i < edits; ++i) {
    // Broken texts say little: every few edits begins again from the sound one.
    const TextChange change = i % 6 == 5 ? TextChange{std::nullopt, original} : editor.next(document.text());
    document.apply({change}, i + 2, Encoding::utf8);
    Side anew(root);
    Document fresh(uriOfPath(path), path, 1, document.text());
    const std::string a = kept.say(document), b = anew.say(fresh);
    INFO(path << ", seed " << seed << ", edit " << i << ":\n" << document.text());
    REQUIRE(a == b);
  }
}

}  // namespace

TEST_CASE("after every edit the analysis says what a fresh one says: files alone") {
  uint32_t seed = 1;
  for (const auto& e : fs::directory_iterator(kFixtures + "/python"))
    if (e.path().extension() == ".py") compare(kFixtures + "/python/helper_files", e.path().string(), seed++, 12);
}

TEST_CASE("after every edit the analysis says what a fresh one says: files that import each other") {
  uint32_t seed = 100;
  for (const char* project : {"argparse_project", "unet_package", "lightning_like"})
    for (const auto& e : fs::recursive_directory_iterator(kFixtures + "/projects/" + project))
      if (e.path().extension() == ".py") compare(kFixtures + "/projects/" + project, e.path().string(), seed++, 12);
}

TEST_CASE("an abandoned analysis leaves nothing behind") {
  const std::string root = kFixtures + "/projects/unet_package", path = root + "/predict.py";
  Document document(uriOfPath(path), path, 1, *flagos::readFile(path));
  Side anew(root);
  const std::string expected = anew.say(document);
  for (const int after : {0, 1, 2, 5, 10, 20, 40}) {
    Side side(root);
    side.path = path;
    side.open = &document;
    while (!side.workspace.index(1'000'000'000)) {}
    AnalysisOptions options;
    options.machine = machineOf({"npu:0", "npu:1"});
    int asked = 0;
    options.stop = [&] { return asked++ >= after; };
    const Analysis a = analyse(makeUnit(path, document.text(), *document.tree()), side.workspace, options, &*document.tree());
    INFO("abandoned after " << after << " questions");
    CHECK((a.abandoned || asked <= after));
    if (a.abandoned) CHECK(a.sites.empty());
    CHECK(side.say(document) == expected);
  }
}
