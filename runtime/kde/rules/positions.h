// Where each value and key of a JSON text stands, by JSON pointer, so that an error about content can name line and column.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/json.h"

namespace flagos::kde {

class JsonPositions {
 public:
  // `text` must be valid JSON (parseJson accepted it).
  static JsonPositions of(std::string_view text);
  // Of a value; unknown pointers give the nearest parent's place.
  LineColumn value(const std::string& pointer) const;
  // Of an object's key, by the pointer of its value.
  LineColumn key(const std::string& pointer) const;
  // Pointers of keys that occur a second time in their object, with the place of the second one.
  const std::vector<std::pair<std::string, LineColumn>>& duplicates() const { return duplicates_; }

 private:
  struct Scanner;
  std::map<std::string, LineColumn> values_, keys_;
  std::vector<std::pair<std::string, LineColumn>> duplicates_;
};

// A key as one step of a JSON pointer.
std::string pointerStep(std::string_view key);

}  // namespace flagos::kde
