#include "runtime/python/sites/resolve.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/json.h"
#include "runtime/base/paths.h"
#include "runtime/telemetry/model.h"

namespace flagos::telemetry::resolve {
namespace {

constexpr size_t kMaxFileBytes = 2u << 20;      // a bigger source is known by name only
constexpr size_t kMaxTextBytes = 32u << 20;     // of all sources kept in memory

struct Source {
  std::string path;                             // absolute, or Python's own name ("<string>")
  bool readable = false;
  std::string text;
  std::vector<size_t> lines;                    // offset of each line's start
};

// All guarded by the GIL. Leaked: used until the very end of the process.
struct State {
  std::vector<std::string> library;
  std::string torch_autograd, stdlib;
  std::unordered_map<std::string, Source> sources;   // by co_filename
  size_t kept_bytes = 0;
};
State& state() {
  static State* const s = new State;
  return *s;
}

bool startsWith(std::string_view s, std::string_view prefix) { return s.substr(0, prefix.size()) == prefix; }

std::string textOf(PyObject* unicode) {
  Py_ssize_t n = 0;
  const char* s = unicode && PyUnicode_Check(unicode) ? PyUnicode_AsUTF8AndSize(unicode, &n) : nullptr;
  if (!s) {
    PyErr_Clear();                              // a name with lone surrogates has no UTF-8
    return {};
  }
  return std::string(s, static_cast<size_t>(n));
}

// Text of code that is in no file: notebooks and interactive shells keep it in linecache.
bool linecacheText(const std::string& name, std::string& out) {
  PyObject* modules = PyImport_GetModuleDict();                                // borrowed
  PyObject* module = modules ? PyDict_GetItemString(modules, "linecache") : nullptr;
  PyObject* cache = module ? PyObject_GetAttrString(module, "cache") : nullptr;
  PyObject* entry = cache && PyDict_Check(cache) ? PyDict_GetItemString(cache, name.c_str()) : nullptr;
  PyObject* lines = entry && PyTuple_Check(entry) && PyTuple_GET_SIZE(entry) >= 3 ? PyTuple_GET_ITEM(entry, 2) : nullptr;
  bool ok = lines && PyList_Check(lines);
  for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(lines); ++i) {
    PyObject* line = PyList_GET_ITEM(lines, i);
    ok = PyUnicode_Check(line) && out.size() < kMaxFileBytes;
    if (ok) out += textOf(line);
  }
  Py_XDECREF(cache);
  PyErr_Clear();
  return ok && !out.empty();
}

double processStartSeconds() {
  static const double at = [] {
    const auto ticks = processStartTime(::getpid());
    timespec t{};
    ::clock_gettime(CLOCK_BOOTTIME, &t);
    const double up = static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
    const double began = ticks ? static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)) : 0;
    return wallSeconds() - up + began;
  }();
  return at;
}

bool hasCode(PyObject* tree, PyCodeObject* wanted) {
  auto* code = reinterpret_cast<PyCodeObject*>(tree);
  if (PyObject_RichCompareBool(tree, reinterpret_cast<PyObject*>(wanted), Py_EQ) == 1 &&
      PyObject_RichCompareBool(code->co_linetable, wanted->co_linetable, Py_EQ) == 1)
    return true;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(code->co_consts); ++i) {
    PyObject* c = PyTuple_GET_ITEM(code->co_consts, i);
    if (PyCode_Check(c) && hasCode(c, wanted)) return true;
  }
  return false;
}
// Does this text give the code that runs? Asked only when the file changed after the process began.
bool compilesTo(const std::string& text, PyCodeObject* code, const std::string& name) {
  PyObject* tree = text.find('\0') == std::string::npos ? Py_CompileString(text.c_str(), name.c_str(), Py_file_input) : nullptr;
  const bool same = tree && PyCode_Check(tree) && hasCode(tree, code);
  Py_XDECREF(tree);
  PyErr_Clear();
  return same;
}

std::string absolutePath(const std::string& name) {
  if (name.empty() || name[0] == '/' || name[0] == '<') return name;
  std::error_code e;
  const auto path = std::filesystem::absolute(name, e);
  return e ? name : path.lexically_normal().string();
}

// The text as it is at first sight is kept beside the caches: the language server compares it with what is edited.
void keepText(const std::string& hash, const std::string& text) {
  const std::string dir = cacheDir() + "/sources";
  const std::string path = dir + "/" + hash + ".py";
  if (::access(path.c_str(), F_OK) == 0) return;
  if (makeDirs(dir)) (void)writeFileAtomic(path, text, 0600);
}

Source& sourceOf(PyCodeObject* code) {
  State& s = state();
  const std::string name = textOf(code->co_filename);
  if (const auto it = s.sources.find(name); it != s.sources.end()) return it->second;
  Source& src = s.sources[name];
  src.path = absolutePath(name);
  File file;
  file.path = src.path;
  struct stat st;
  if (::stat(src.path.c_str(), &st) == 0 && S_ISREG(st.st_mode)) {
    file.mtime = static_cast<double>(st.st_mtim.tv_sec) + static_cast<double>(st.st_mtim.tv_nsec) * 1e-9;
    auto text = readFile(src.path, kMaxFileBytes);
    if (!text) file.why = text.error().text();
    else if (file.mtime > processStartSeconds() && !compilesTo(*text, code, name))
      file.why = "edited after it was loaded and before its first operator ran";
    else src.text = std::move(*text), src.readable = true;
  } else {
    src.readable = linecacheText(name, src.text);
    if (!src.readable) file.why = "the source is in no file";
  }
  if (src.readable) {
    file.hash.resize(17);
    std::snprintf(file.hash.data(), 17, "%016llx", static_cast<unsigned long long>(fnv1a(src.text)));
    file.hash.resize(16);
    keepText(file.hash, src.text);
    src.lines.push_back(0);
    for (size_t i = 0; i < src.text.size(); ++i)
      if (src.text[i] == '\n') src.lines.push_back(i + 1);
    s.kept_bytes += src.text.size();
    if (s.kept_bytes > kMaxTextBytes) src.text = {}, src.lines = {}, src.readable = false;
  }
  recordFile(file);
  return src;
}

// Offset of a 1-based line and a 0-based byte column; npos if the text has no such place.
size_t at(const Source& src, int line, int column) {
  if (line < 1 || column < 0 || static_cast<size_t>(line) > src.lines.size()) return std::string::npos;
  const size_t i = src.lines[static_cast<size_t>(line) - 1] + static_cast<size_t>(column);
  return i <= src.text.size() ? i : std::string::npos;
}

// Entering `with` and taking the next item of `for` are placed at the whole statement, body and all. Work belongs to its
// head, or every line of a training loop would seem to hold it.
void clipStatement(const Source& src, Site& site) {
  const size_t from = at(src, site.line, site.column);
  if (from == std::string::npos) return;
  const std::string_view text = std::string_view(src.text).substr(from);
  if (!startsWith(text, "for ") && !startsWith(text, "with ") && !startsWith(text, "async ") && !startsWith(text, "with(")) return;
  std::string_view head = text.substr(0, text.find('\n'));
  while (!head.empty() && (head.back() == '\r' || head.back() == ' ')) head.remove_suffix(1);
  if (site.end_line == site.line && site.end_column >= 0 && static_cast<size_t>(site.end_column - site.column) < head.size()) return;
  site.end_line = site.line;
  site.end_column = site.column + static_cast<int>(head.size());
}

}  // namespace

void setLibraryDirs(const std::string& torch_dir, const std::string& flagos_dir) {
  State& s = state();
  s.library.clear();
  for (const auto& dir : {torch_dir, flagos_dir})
    if (!dir.empty()) s.library.push_back(dir + "/");
  s.torch_autograd = torch_dir + "/autograd/";
  PyObject* os = PyImport_ImportModule("os");
  PyObject* file = os ? PyObject_GetAttrString(os, "__file__") : nullptr;
  const std::string path = textOf(file);
  if (const auto slash = path.rfind('/'); slash != std::string::npos) s.stdlib = path.substr(0, slash + 1);
  Py_XDECREF(file);
  Py_XDECREF(os);
  PyErr_Clear();
}

bool isLibrary(PyCodeObject* code) {
  const State& s = state();
  const std::string name = textOf(code->co_filename);
  // Python's frozen modules, and code that torch.fx made from a graph.
  if (startsWith(name, "<frozen ") || startsWith(name, "<eval_with_key>")) return true;
  for (const auto& dir : s.library)
    if (startsWith(name, dir)) return true;
  // copy.deepcopy(model), functools, contextlib ...: the line that called them is the user's. Installed packages live
  // below the same folder, but they are somebody's program.
  if (s.stdlib.empty() || !startsWith(name, s.stdlib)) return false;
  const std::string_view rest = std::string_view(name).substr(s.stdlib.size());
  return !startsWith(rest, "site-packages/") && !startsWith(rest, "dist-packages/");
}

bool isBackwardCall(PyCodeObject* code) {
  return startsWith(textOf(code->co_filename), state().torch_autograd) && textOf(code->co_name) == "_engine_run_backward";
}

SiteId siteOf(PyCodeObject* code, int offset) {
  const Source& src = sourceOf(code);
  Site site;
  site.file = src.path;
  site.qualname = textOf(code->co_qualname);
  if (!PyCode_Addr2Location(code, offset, &site.line, &site.column, &site.end_line, &site.end_column) || site.line < 1) {
    site.line = std::max(PyCode_Addr2Line(code, offset), 0);
    site.end_line = site.line;
    site.column = site.end_column = -1;
  }
  if (site.end_line < site.line) site.end_line = site.line;
  if (src.readable) {
    clipStatement(src, site);
    const size_t from = at(src, site.line, site.column), to = at(src, site.end_line, site.end_column);
    if (from != std::string::npos && to != std::string::npos && from < to)
      site.call_hash = callHash(std::string_view(src.text).substr(from, to - from));
  }
  return internSite(site);
}

}  // namespace flagos::telemetry::resolve
