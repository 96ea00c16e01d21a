#include "lsp/protocol/message.h"

namespace flagos::lsp {

const Json& member(const Json& j, const char* key) {
  static const Json nothing;
  if (!j.is_object()) return nothing;
  const auto it = j.find(key);
  return it == j.end() ? nothing : *it;
}

std::string textMember(const Json& j, const char* key, std::string fallback) {
  const Json& v = member(j, key);
  return v.is_string() ? v.get<std::string>() : fallback;
}

int intMember(const Json& j, const char* key, int fallback) {
  const Json& v = member(j, key);
  if (!v.is_number_integer()) return fallback;
  const auto n = v.get<int64_t>();
  return n > INT32_MAX ? INT32_MAX : n < INT32_MIN ? INT32_MIN : static_cast<int>(n);
}

bool boolMember(const Json& j, const char* key, bool fallback) {
  const Json& v = member(j, key);
  return v.is_boolean() ? v.get<bool>() : fallback;
}

const Json& path(const Json& j, std::string_view dotted) {
  const Json* at = &j;
  while (!dotted.empty()) {
    const auto word = dotted.substr(0, dotted.find('.'));
    dotted.remove_prefix(std::min(dotted.size(), word.size() + 1));
    at = &member(*at, std::string(word).c_str());
  }
  return *at;
}

}  // namespace flagos::lsp
