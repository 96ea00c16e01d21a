#include "profiler/cli/torch_presence.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "runtime/base/json.h"
#include "runtime/base/paths.h"

namespace flagos::cli {
namespace {

bool exists(const std::string& path) {
  struct stat s;
  return ::stat(path.c_str(), &s) == 0;
}

std::vector<std::string> list(const std::string& dir) {
  std::vector<std::string> names;
  if (DIR* d = ::opendir(dir.c_str())) {
    while (const dirent* e = ::readdir(d)) names.emplace_back(e->d_name);
    ::closedir(d);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// PREFIX/lib/python3.*/{site,dist}-packages
void addPrefix(const std::string& prefix, std::vector<std::string>& sites) {
  for (const std::string& n : list(prefix + "/lib"))
    if (n.rfind("python3", 0) == 0)
      for (const char* leaf : {"/site-packages", "/dist-packages"})
        if (const std::string s = prefix + "/lib/" + n + leaf; exists(s)) sites.push_back(s);
}

// The text of the first quoted string after `key`, as in: cuda: Optional[str] = '12.6'
std::string quotedAfter(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const auto eq = line.find('=');
    const auto open = eq == std::string::npos ? eq : line.find_first_of("'\"", eq);
    const auto close = open == std::string::npos ? open : line.find(line[open], open + 1);
    if (close != std::string::npos) return line.substr(open + 1, close - open - 1);
  }
  return "";
}

// The folders that the *.pth files of `site` add to Python's path.
std::vector<std::string> pathFiles(const std::string& site) {
  std::vector<std::string> folders;
  for (const std::string& n : list(site)) {
    if (n.size() < 5 || n.substr(n.size() - 4) != ".pth") continue;
    const auto text = readFile(site + "/" + n, 1u << 20);
    if (!text) continue;
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (line.empty() || line[0] == '#' || line.rfind("import ", 0) == 0) continue;
      folders.push_back(line[0] == '/' ? line : site + "/" + line);
    }
  }
  return folders;
}

// Names under [torch.backends] of every installed package.
void readEntryPoints(const std::string& site, TorchPresence& t) {
  for (const std::string& n : list(site)) {
    if (n.size() < 10 || n.substr(n.size() - 10) != ".dist-info") continue;
    const auto text = readFile(site + "/" + n + "/entry_points.txt", 1u << 20);
    if (!text) continue;
    std::istringstream lines(*text);
    bool inside = false;
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty() && line[0] == '[') inside = line.find("[torch.backends]") == 0;
      else if (const auto eq = line.find('='); inside && eq != std::string::npos) {
        std::string target = line.substr(eq + 1);
        target.erase(0, target.find_first_not_of(' '));
        target.resize(std::min(target.find_first_of(":. "), target.size()));
        if (target == "flagos") t.flagos = true;
        else t.backends.push_back(target);
      }
    }
  }
}

}  // namespace

TorchPresence findTorch() {
  TorchPresence t;
  std::vector<std::string> sites;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* v = std::getenv(variable); v && *v) addPrefix(v, sites);
  // Beside the program: build/bin/flagos of a source tree has .venv two folders up.
  if (const std::string dir = programDir(); !dir.empty()) {
    addPrefix(dir + "/../../.venv", sites);
    addPrefix(dir + "/..", sites);
  }
  if (const char* home = std::getenv("HOME"); home && *home) addPrefix(std::string(home) + "/.local", sites);
  addPrefix("/usr/local", sites);
  addPrefix("/usr", sites);
  for (const std::string& s : sites) {
    const std::string file = s + "/torch/version.py";
    t.looked_for.push_back(file);
    if (!t.site.empty() || !exists(file)) continue;
    const auto text = readFile(file, 65536);
    if (!text) continue;
    t.site = s;
    t.version = quotedAfter(*text, "__version__");
    t.cuda = quotedAfter(*text, "cuda");
  }
  if (!t.site.empty()) {
    readEntryPoints(t.site, t);
    t.flagos = exists(t.site + "/flagos/__init__.py");
    // Python also imports from the folders that *.pth files name: so a build tree is used without being installed.
    for (const std::string& folder : pathFiles(t.site))
      if (exists(folder + "/flagos/__init__.py")) t.flagos = true;
  }
  return t;
}

}  // namespace flagos::cli
