// Predictions from the operator calls of an analysis and the descriptions of the assumed devices: the routes and the cost
// model are the dispatch engine's own, so that the editor and the runtime say the same.
#pragma once
#include "lsp/python/analysis.h"

namespace flagos::lsp {

// Fills `analysis.predicted`. Devices without a description get no times ("only the name is known").
void predict(Analysis& analysis, const Machine& machine);

}  // namespace flagos::lsp
