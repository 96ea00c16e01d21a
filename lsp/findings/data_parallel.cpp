// data-parallel: torch.nn.DataParallel copies the module to every device at every step, from one process. PyTorch itself
// advises DistributedDataParallel; the change is more than one line, so there is no fix.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

void look(Interp& interp, const CallEvent& e) {
  if (e.call != "torch.nn.DataParallel" && e.call != "torch.nn.parallel.DataParallel") return;
  interp.report(findingAt("data-parallel", e.node, "DataParallel copies the module to every device at every step, all from one Python process; "
                                                   "DistributedDataParallel, with one process per device, is faster and works on every backend"),
                e.unit);
}

}  // namespace

void listenDataParallel(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp
