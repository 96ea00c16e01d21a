// nccl-on-npu: NCCL moves memory of NVIDIA devices only. What is there on any machine is Gloo; on this backend it takes CPU
// tensors only, so that the fix is to be read first.
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
  Finding f = findingAt("nccl-on-npu", e.node, "NCCL works on NVIDIA devices only, and the devices here are " + type +
                                                  (type == "npu" ? ": \"gloo\" starts here and takes CPU tensors; there are no collectives on npu tensors in this version" : ""));
  if (backend->node && backend->node->kind == N::string && backend->node->text.empty())
    f.fix = Fix{false, "Use gloo", {{backend->node->span(), "\"gloo\""}}};
  interp.report(std::move(f), e.unit);
}

}  // namespace

void listenNcclOnNpu(Interp& interp) { interp.listen(static_cast<uint16_t>(E::call), look); }

}  // namespace flagos::lsp
