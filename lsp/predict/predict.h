// Predictions from the operator calls of an analysis and the descriptions of the assumed devices: the routes and the cost
// model are the dispatch engine's own, so that the editor and the runtime say the same.
#pragma once
#include "lsp/python/analysis.h"

namespace flagos::lsp {

// Fills `analysis.predicted`. Devices without a description get no times ("only the name is known").
void predict(Analysis& analysis, const Machine& machine);

inline constexpr const char* kAssumed = "with defaults that a caller or the command line may change";

// `fits` from bytes and memory.
void settleNeed(DeviceNeed& need);
// "npu:0 (Radeon RX 7900 XTX): the lines read place 17.2 GiB of its 24 GiB: fits. ..."
std::string needText(const DeviceNeed& need);
std::string lineText(const LinePrediction& line);
// The figures of the device table behind the times of a card, with their confidence and what is assumed; "" without a table.
std::string ratesText(const std::string& device, const std::string& rates);
std::string functionText(const FunctionPrediction& f);
// "0.75 times the measured", "as measured".
std::string ratioText(double predicted, double measured);
// Beside it what was measured for one run of the line, and the prediction's error; "" where there is nothing to compare.
std::string errorText(const LinePrediction& line, double measured_seconds);

}  // namespace flagos::lsp
