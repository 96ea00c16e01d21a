// Which file an import means, by the folders that are open: what Python would find, and never a file of another project that
// happens to have the name.
#include <filesystem>
#include <fstream>

#include "lsp/python/workspace.h"
#include "tests/unit/catch.h"

using namespace flagos::lsp;
namespace fs = std::filesystem;

namespace {

struct Tree {
  fs::path base = fs::temp_directory_path() / ("flagos-roots-" + std::to_string(::getpid()));
  explicit Tree(const std::vector<std::string>& files) {
    fs::remove_all(base);
    for (const auto& f : files) {
      fs::create_directories((base / f).parent_path());
      std::ofstream(base / f) << "DEVICE = 'npu:1'\n";
    }
  }
  ~Tree() { std::error_code ec; fs::remove_all(base, ec); }
  // Relative to the tree; "" = the workspace does not have it.
  std::string resolved(const std::vector<std::string>& roots, const std::string& from, const std::string& module) const {
    Workspace w;
    std::vector<std::string> full;
    for (const auto& r : roots) full.push_back((base / r).string());
    w.setRoots(full);
    const std::string found = w.resolve((base / from).string(), module);
    return found.empty() ? found : fs::relative(found, base).string();
  }
};

}  // namespace

TEST_CASE("libraries installed beside a package are not read, folders of the workspace are") {
  const Tree t({"lib/mine/__init__.py", "lib/mine/use.py", "lib/other/__init__.py"});
  CHECK(t.resolved({"lib/mine"}, "lib/mine/use.py", "other").empty());
  CHECK(t.resolved({"lib/mine"}, "lib/mine/use.py", "mine") == "lib/mine/__init__.py");
  CHECK(t.resolved({"lib"}, "lib/mine/use.py", "other") == "lib/other/__init__.py");
  CHECK(t.resolved({"."}, "lib/mine/use.py", "other") == "lib/other/__init__.py");
}

TEST_CASE("folders beside each other are one project, others are not") {
  const Tree t({"app/src/model.py", "app/tests/test_model.py", "app/scripts/model_helper.py", "else/random.py", "else/deep/model.py"});
  CHECK(t.resolved({"app/src", "app/tests"}, "app/tests/test_model.py", "model") == "app/src/model.py");
  CHECK(t.resolved({"app/tests", "app/src"}, "app/tests/test_model.py", "model") == "app/src/model.py");
  CHECK(t.resolved({"app"}, "app/tests/test_model.py", "model") == "app/src/model.py");      // the layout with src
  CHECK(t.resolved({"app/tests"}, "app/tests/test_model.py", "model").empty());
  CHECK(t.resolved({"app/tests", "else"}, "app/tests/test_model.py", "random").empty());
  CHECK(t.resolved({"app/tests", "else/deep"}, "app/tests/test_model.py", "model").empty());
  CHECK(t.resolved({"app/src"}, "else/deep/run.py", "random").empty());                      // a file that lies in no root
  CHECK(t.resolved({"app/src"}, "else/run.py", "random") == "else/random.py");               // its own folder
}

TEST_CASE("a root that is a package is imported by its name") {
  const Tree t({"pkg/__init__.py", "pkg/signal.py", "pkg/nn/__init__.py", "pkg/nn/layer.py", "tests/test_layer.py", "pkg/tools/run.py"});
  CHECK(t.resolved({"pkg", "tests"}, "tests/test_layer.py", "pkg.nn.layer") == "pkg/nn/layer.py");
  CHECK(t.resolved({"pkg", "tests"}, "tests/test_layer.py", "pkg") == "pkg/__init__.py");
  CHECK(t.resolved({"pkg", "tests"}, "tests/test_layer.py", "signal").empty());              // Python's own
  CHECK(t.resolved({"pkg", "tests"}, "tests/test_layer.py", "nn").empty());
  CHECK(t.resolved({"pkg"}, "pkg/nn/layer.py", "pkg.signal") == "pkg/signal.py");
  CHECK(t.resolved({"pkg"}, "pkg/nn/layer.py", "..signal") == "pkg/signal.py");
  CHECK(t.resolved({"pkg"}, "pkg/tools/run.py", "nn.layer") == "pkg/nn/layer.py");           // a script of the root
}

TEST_CASE("a root inside a package is imported by the package's name, not as the folder above") {
  const Tree t({"lib/pkg/__init__.py", "lib/pkg/sub/__init__.py", "lib/pkg/sub/a.py", "lib/other.py", "lib/pkg/b.py"});
  CHECK(t.resolved({"lib/pkg/sub"}, "lib/pkg/sub/a.py", "pkg.b") == "lib/pkg/b.py");
  CHECK(t.resolved({"lib/pkg/sub"}, "lib/pkg/sub/a.py", "other").empty());
  CHECK(t.resolved({"lib/pkg/sub"}, "lib/pkg/sub/a.py", "a").empty());                       // not itself
}
