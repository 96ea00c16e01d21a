// JSON at the edge of a part: exceptions off, size and depth capped, errors with line and column.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace flagos {

using Json = nlohmann::json;

struct JsonLimits {
  size_t max_bytes = 16u << 20;
  int max_depth = 64;
};

// `name` is the file or peer shown in the error ("rules.json:3:14: expected a value").
Result<Json> parseJson(std::string_view text, std::string_view name, JsonLimits limits = {});
Result<Json> readJsonFile(const std::string& path, JsonLimits limits = {});

// Whole file as bytes; the error names the path and errno's text.
Result<std::string> readFile(const std::string& path, size_t max_bytes = 64u << 20);
// Written beside and renamed over, so that a reader or a crash never sees half a file.
Result<void> writeFileAtomic(const std::string& path, std::string_view bytes, unsigned mode = 0600);

// 1-based line and column (bytes) of an offset.
struct LineColumn { int line; int column; };
LineColumn lineColumn(std::string_view text, size_t offset);

// Serialises with invalid UTF-8 replaced (never throws).
std::string dump(const Json&, int indent = -1);

}  // namespace flagos
