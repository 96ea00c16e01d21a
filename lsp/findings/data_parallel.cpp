// data-parallel: torch.nn.DataParallel copies the module to every device at every step, from one process. PyTorch itself
// advises DistributedDataParallel, which npu tensors do not have yet; the change is more than one line, so there is no fix.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

void look(Interp& interp, const CallEvent& e) {
  if (e.call != "torch.nn.DataParallel" && e.call != "torch.nn.parallel.DataParallel") return;
  const char* instead = interp.options().machine.accelerator() == "npu"
                            ? "over several npu devices it is refused, and DistributedDataParallel on npu tensors too in this version: one device "
                              "trains without a wrapper"
                            : "PyTorch advises DistributedDataParallel, with one process per device";
  interp.report(findingAt("data-parallel", e.node, std::string("DataParallel copies the module to every device at every step, all from one Python process; ") + instead), e.unit);
}

}  // namespace

void listenDataParallel(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp
