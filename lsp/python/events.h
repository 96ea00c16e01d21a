// What the interpreter tells findings while it runs: calls and other uses of values, with the loops, guards and frames
// around them. Listeners name the kinds they want, so that a file without any finding costs one comparison an event.
#pragma once
#include <functional>
#include <string_view>
#include <vector>

#include "lsp/python/value.h"

namespace flagos::lsp {

struct Args;
struct Frame;
class Interp;

enum class E : uint16_t {
  call = 1,         // `call` names the function: "Tensor.item", "torch.zeros", "builtins.print", "Module.__call__"
  iterate = 2,      // node = what is iterated, receiver = its value
  format = 4,       // receiver becomes text: a piece of an f-string, an operand of % or format()
  truth = 8,        // receiver decides a condition; only for tensors
  operation = 16,   // an operator; args = both operands; only where one is a tensor
  subscript = 32,   // receiver [ args ]; only for tensors
  store = 64,       // receiver [ args ] = "$value" of args; `call` is "os.environ" for a write to the environment
  assign = 128,     // node = the statement, args[0] = the value; receiver = the object for `a.b = value`, else null
  augment = 256,    // node = the statement, receiver = the target's value, args[0] = the operand
  foreign = 512,    // a call of something unknown: `call` is the method's or function's name as written
};
constexpr uint16_t operator|(E a, E b) { return static_cast<uint16_t>(static_cast<uint16_t>(a) | static_cast<uint16_t>(b)); }
constexpr uint16_t operator|(uint16_t a, E b) { return static_cast<uint16_t>(a | static_cast<uint16_t>(b)); }

// A loop that is being run: where it is and in which file.
// `exact`: each pass is run by itself, in order. Otherwise a walk stands for `passes` of them, 0 where that is not known.
struct LoopInfo { const Node* node; const SourceUnit* unit; bool exact = false; int64_t passes = 0; int pass = 0; };

// A branch that is being run and need not be: a condition that is not known, an exception handler. `loops`: how many
// loops are around it; an event with more is in a loop inside the branch.
struct Guard { const Node* node; size_t loops; };

struct CallEvent {
  E kind;
  const Node* node;
  const SourceUnit* unit;
  std::string_view call;
  Value receiver;
  const Args* args;
  const std::vector<LoopInfo>* loops;      // outermost first, callers' included
  const std::vector<Guard>* guards;        // outermost first, callers' included
  const std::vector<Frame*>* frames;       // the last is the one that runs
  bool no_grad;                            // inside torch.no_grad() or inference_mode()
};

struct Listener {
  uint16_t kinds;
  std::function<void(Interp&, const CallEvent&)> fn;
};

}  // namespace flagos::lsp
