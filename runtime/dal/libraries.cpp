#include "runtime/dal/libraries.h"

#include <cstdlib>
#include <string_view>
#include <vector>

namespace flagos::dal {

Presence libraryPresence(const Root& root, const std::string& soname) {
  std::vector<std::string> folders;
  if (const char* path = std::getenv("LD_LIBRARY_PATH"); path && root.live())
    for (std::string_view rest(path); !rest.empty();) {
      const size_t end = std::min(rest.find(':'), rest.size());
      if (end) folders.emplace_back(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  for (const char* folder : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"})
    folders.emplace_back(folder);
  bool any = false;
  for (const std::string& folder : folders) {
    if (root.exists(folder + "/" + soname)) return Presence::yes;
    any = any || root.exists(folder);
  }
  return any ? Presence::no : Presence::unknown;
}

}  // namespace flagos::dal
