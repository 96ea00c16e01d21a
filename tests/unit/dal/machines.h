// The machines of tests/fixtures/machines: folders that --root reads, each with its expected table.
#pragma once
#include <dirent.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/dal/inventory.h"

namespace machines {

inline const std::string kFolder = std::string(FLAGOS_SOURCE_DIR) + "/tests/fixtures/machines";

inline std::vector<std::string> names() {
  std::vector<std::string> out;
  if (DIR* d = ::opendir(kFolder.c_str())) {
    while (const dirent* e = ::readdir(d))
      if (e->d_name[0] != '.' && std::string(e->d_name).find(".md") == std::string::npos) out.emplace_back(e->d_name);
    ::closedir(d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline std::vector<std::string> split(const std::string& s, char by) {
  std::vector<std::string> out(1);
  for (const char c : s)
    if (c == by) out.emplace_back(); else out.back() += c;
  return out;
}

struct Expected {
  flagos::dal::EnumerateOptions options;
  std::vector<std::vector<std::string>> rows;   // device pci kind match name dedicated why
};

inline Expected expected(const std::string& name) {
  Expected e;
  e.options.root = kFolder + "/" + name;
  const auto text = flagos::readFile(e.options.root + "/expected.tsv");
  if (!text) return e;
  for (const std::string& line : split(*text, '\n')) {
    const std::string env = "# env FLAGOS_VISIBLE_DEVICES=";
    if (line.rfind(env, 0) == 0) e.options.visible = line.substr(env.size());
    if (line.rfind("# env FLAGOS_INCLUDE_CPU=1", 0) == 0) e.options.include_cpu = true;
    if (!line.empty() && line[0] != '#') e.rows.push_back(split(line, '\t'));
  }
  return e;
}

}  // namespace machines
