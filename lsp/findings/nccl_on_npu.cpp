// nccl-on-npu: NCCL moves memory of NVIDIA devices only. The process group of this backend is "npudist".
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

void look(Interp& interp, const CallEvent& e) {
  if (e.call != "torch.distributed.init_process_group" && e.call != "torch.distributed.new_group") return;
  const Arg* backend = e.call.ends_with("new_group") ? e.args->get(2, "backend") : e.args->get(0, "backend");
  if (!backend || !is(backend->value, V::string) || backend->value->text != "nccl") return;
  const Machine& machine = interp.options().machine;
  const std::string type = machine.accelerator();
  if (!machine.known || type.empty() || machine.has("cuda")) return;
  Finding f = findingAt("nccl-on-npu", e.node, "NCCL works on NVIDIA devices only, and the devices here are " + type + ": use the process group \"npudist\"");
  if (backend->node && backend->node->kind == N::string && backend->node->text.empty())
    f.fix = Fix{true, "Use npudist", {{backend->node->span(), "\"npudist\""}}};
  interp.report(std::move(f), e.unit);
}

}  // namespace

void listenNcclOnNpu(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp
