// late-visibility: CUDA_VISIBLE_DEVICES and its kin are read once, when the devices are first looked at. A write after that
// changes nothing.
#include "lsp/findings/common.h"
#include "lsp/findings/registry.h"

namespace flagos::lsp {
namespace {

const Names kVariables = {"CUDA_VISIBLE_DEVICES", "FLAGOS_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR", "NPU_VISIBLE_DEVICES", "MLU_VISIBLE_DEVICES", "MUSA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"};

void look(Interp& interp, const CallEvent& e) {
  if (e.call != "os.environ") return;
  const Value used = interp.state(0, "$used");
  if (!is(used, V::integer)) return;
  // A function that sets the variable and then looks at the devices, called once more: the first call was in time.
  const Node* function = functionAround(e.node);
  if (function && function->kind == N::def && used->unit == e.unit && used->number > e.node->line && used->node && contains(function, used->node)) return;
  const Node* node = e.node->parent && e.node->parent->kind == N::assign ? e.node->parent : e.node;
  for (const auto& key : e.args->list) {
    if (!is(key.value, V::string) || !key.name.empty() || !kVariables.count(key.value->text)) continue;
    Finding f = findingAt("late-visibility", node, "`" + key.value->text + "` is set after the devices were first used in line " + std::to_string(used->number) +
                                                       ": it is read only once, so this changes nothing; set it before");
    f.related.push_back({used->unit->path, static_cast<int>(used->number), "the devices are used here"});
    interp.report(std::move(f), e.unit);
    return;
  }
}

}  // namespace

void listenLateVisibility(Interp& interp) { interp.listen(static_cast<uint16_t>(E::store), look); }

}  // namespace flagos::lsp
