// What most findings ask: is this on an accelerator, how often does this run, what does the syntax around it say.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lsp/python/interp.h"
#include "lsp/python/name_set.h"

namespace flagos::lsp {

using Names = NameSet;

// A finding of this code with its default severity, on this node.
Finding findingAt(const char* code, const Node* node, std::string message);

// Where a tensor is, if all that it can be is known: devices, and runtime expressions of one device type
// ("npu:<LOCAL_RANK>"). Empty if anything about it is not known. `maybe`: also values that need not be tensors.
std::vector<std::string> placesOf(const Value& v, bool maybe = false);
// The first of the places that is an accelerator, or "".
std::string acceleratorOf(const Value& v, bool maybe = false);
bool certainlyOn(const Value& v, std::string_view device);   // every place is this device
// A device value instead of a tensor.
std::vector<std::string> placesOfDevice(const Value& device);
bool isAcceleratorName(std::string_view device);             // not "cpu", not "meta"

// ---- how often ----
enum class Often : uint8_t { never, once_a_while, sometimes, every };   // in a loop; never: not in a loop that counts
struct Repetition {
  Often often = Often::never;
  const Node* loop = nullptr;              // the innermost loop that counts
  const SourceUnit* unit = nullptr;
  size_t index = 0;                        // of the loop in the event's list
  bool same_function = false;              // the loop is around the node itself, not around a caller
};
// Loops over a few literals and loops that end in their first pass do not count.
Repetition repetition(const CallEvent& e);

// ---- syntax ----
void walk(const Node* n, const std::function<bool(const Node*)>& visit);   // visit returns false: not below this node
bool contains(const Node* outer, const Node* inner);
bool assignedIn(const Node* n, std::string_view name);       // a name is bound somewhere below n
std::vector<std::string_view> namesIn(const Node* n);        // names that are read below n
const Node* functionAround(const Node* n);                   // def, lambda or module
const Node* statementOf(const Node* n);
const Node* keywordOf(const Node* call, std::string_view name);   // the argument's value
bool isLiteral(const Node* n);                               // numbers, strings, and lists of them
std::string sourceOf(const SourceUnit& unit, const Node* n);
// What a method calls its instance; "" for a function without parameters.
std::string_view selfName(const Node* def);
// `self.x` or `x`: something that can be assigned to.
bool isPlace(const Node* n);
// The import in the main file that binds a dotted prefix: "torch" may be called "th" there. "" if there is none.
std::string nameFor(const SourceUnit& unit, const std::string& dotted);
// An edit that adds `argument` at the end of a call's parentheses; empty if the text does not end in ")".
std::optional<Edit> addArgument(const SourceUnit& unit, const Node* call, const std::string& argument);

}  // namespace flagos::lsp
