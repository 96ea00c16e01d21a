// What the analysis predicts without running: time per line and per function, memory per device. Plain data.
//
// A figure exists only where every size it needs is known; else the reason stands in its place. Times are for one execution
// of a line: how often a loop runs is not part of them.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lsp/predict/shapes.h"
#include "lsp/text/position.h"

namespace flagos::lsp {

// Operator calls of one expression, as the interpreter saw them.
struct OpUse {
  Span span;
  int line = 0;
  std::vector<OpCall> calls;               // empty: sizes are not known
  std::string device;                      // "" = not one certain device
  std::string why;                         // why there is no call or no device
  double copied = 0;                       // bytes that cross between host and device
  bool assumed = false;                    // some size follows from a default that can be changed from outside
  // `times`: passes of the loops in the function that its loops of known length make; `open`: there are others.
  struct Inside { uint32_t function; std::string name; int first_line = 0, line = 0; double times = 1; bool open = false; };
  std::vector<int> pass;                   // of the loops that are run pass by pass
  std::vector<Inside> inside;              // the functions around it, outermost first: byte of the definition, the line that runs
};

struct LinePrediction {
  int line = 0;
  std::string device, ops, kernel, bound;  // "linear, relu"; of the slowest call
  std::optional<double> seconds;
  std::optional<double> least;             // where calls of several places lead here with other sizes: the quickest, and `seconds` the slowest
  std::optional<double> at_least;          // without seconds: the memory traffic alone, where the bandwidth is known
  size_t calls = 0;                        // operator calls of one run of the line
  double flops = 0, bytes = 0;             // of the calls whose time is known
  std::string why_missing;                 // no seconds, or: some calls of the line are not in them
  std::string rates;                       // where the device's rates come from
  std::string rates_note;                  // of a card of the table: figures, confidence, what is assumed
  bool assumed = false;                    // as in OpUse, of some call
};

struct FunctionPrediction {
  std::string name;                        // "forward"
  int first_line = 0;
  double seconds = 0;                      // of the calls whose sizes are known
  size_t calls = 0, unknown = 0;
  int bottleneck_line = 0;
  double bottleneck_share = 0;
  bool open = false;                       // there are loops of unknown length in it: one pass of them is counted
  std::string bound;                       // of the bottleneck line
};

struct DeviceNeed {
  std::string device, name;                // "npu:0", the model's name
  double bytes = 0;                        // of the sites on it whose size is known
  size_t sites = 0, unknown = 0;           // sites without a size
  double largest = 0, piece = 0;           // the largest tensor, and what the device gives in one piece (0 = not known)
  std::optional<double> free, total;
  std::optional<bool> fits;                // empty: not known (unknown sizes can only add)
  bool assumed = false;                    // some size follows from a default that can be changed from outside
  std::string rates;                       // as in LinePrediction::rates_note
};

struct Predicted {
  std::vector<LinePrediction> lines;       // by line
  std::vector<FunctionPrediction> functions;
  std::vector<DeviceNeed> needs;
  const LinePrediction* at(int line) const {
    for (const auto& l : lines) if (l.line == line) return &l;
    return nullptr;
  }
};

// What every prediction assumes, in one sentence.
inline constexpr const char* kAssumptions =
    "a line's time is that of one run of it, a function's counts the passes of loops whose length is known; an empty queue before each line, each kernel's "
    "usual share of the device's peak rates; a copy takes the device's time for one launch beside its bytes at the copy rate, since no table has its latency";

}  // namespace flagos::lsp
