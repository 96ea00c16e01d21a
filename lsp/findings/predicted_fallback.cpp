// predicted-fallback: an operator that has no kernel on this device, or none for this dtype, so that the call will run on the host.
// Before the run from KDE's table of kernels; with a process, what really fell back.
#include <map>

#include "lsp/findings/live.h"
#include "lsp/findings/registry.h"
#include "runtime/kde/catalog/native_ops.h"

namespace flagos::lsp {
namespace {

const std::map<std::string, std::string, std::less<>> kOperators = {
    {"+", "add"}, {"-", "sub"}, {"*", "mul"}, {"/", "div"}, {"@", "matmul"}, {"<", "lt"}, {">", "gt"}, {"<=", "le"}, {">=", "ge"}, {"==", "eq"}, {"!=", "ne"}};

// PyTorch's own backends other than this product's have kernels of their own.
bool isOurs(const Machine& machine, std::string_view device) {
  const auto type = deviceType(device);
  return type == machine.accelerator() && type != "cuda" && type != "xpu" && type != "mps";
}

// Functions whose work ends in an operator of another name. Where that operator has a kernel one day, its row says nothing.
const std::map<std::string, std::string, std::less<>> kEndsIn = {
    {"linalg.eig", "linalg_eig"}, {"linalg.eigvals", "linalg_eig"}, {"linalg.eigh", "_linalg_eigh"}, {"linalg.eigvalsh", "_linalg_eigh"},
    {"linalg.svd", "_linalg_svd"}, {"linalg.svdvals", "_linalg_svd"}, {"svd", "_linalg_svd"}, {"linalg.lstsq", "linalg_lstsq"},
    {"linalg.ldl_factor", "linalg_ldl_factor_ex"}, {"fft.fft", "_fft_r2c"}, {"fft.ifft", "_fft_r2c"}, {"fft.rfft", "_fft_r2c"},
    {"fft.irfft", "_fft_c2r"}, {"fft.hfft", "_fft_c2r"}, {"fft.ihfft", "_fft_r2c"}, {"fft.fft2", "_fft_c2c"}, {"fft.ifft2", "_fft_c2c"},
    {"fft.rfft2", "_fft_r2c"}, {"fft.irfft2", "_fft_c2r"}, {"fft.fftn", "_fft_c2c"}, {"fft.ifftn", "_fft_c2c"}, {"fft.rfftn", "_fft_r2c"},
    {"fft.irfftn", "_fft_c2r"}, {"stft", "_fft_r2c"}, {"gcd", "gcd"}, {"poisson", "poisson"}};

// An operator without any kernel. Where the host shares the device's memory, its route copies nothing and is no fallback.
void lookWithoutKernel(Interp& interp, const CallEvent& e) {
  if (e.kind != E::call) return;
  const bool method = e.call.starts_with("Tensor.");
  if (!method && !e.call.starts_with("torch.")) return;
  const auto it = kEndsIn.find(e.call.substr(method ? 7 : 6));
  if (it == kEndsIn.end() || e.args->keyword("out")) return;
  std::string device;
  bool known = true;
  const auto operand = [&](const Value& v) {
    if (!v || !isAny(v, V::tensor)) return;
    const auto places = placesOf(v);
    if (places.size() != 1 || !isAcceleratorName(places[0]) || (!device.empty() && places[0] != device)) { known = false; return; }
    device = places[0];
  };
  operand(e.receiver);
  for (const auto& a : e.args->list) operand(a.value);
  if (!known || device.empty() || !isOurs(interp.options().machine, device)) return;
  const auto& details = interp.options().machine.details;
  const auto detail = details.find(device);
  if (detail == details.end() || detail->second.description.kind != dal::Kind::discrete || detail->second.description.shared_memory) return;
  const std::string op = "aten::" + it->second;
  if (!kde::isAtenOp(op) || kde::findNativeOp(op)) return;
  interp.report(findingAt("predicted-fallback", e.node, "`" + std::string(e.call) + "` ends in an operator that has no kernel for " + device + " (`" + op +
                                                            "`): it runs on the host, on copies that go there and back"), e.unit);
}

void look(Interp& interp, const CallEvent& e) {
  lookWithoutKernel(interp, e);
  std::string op;
  if (e.kind == E::operation) {
    const auto it = kOperators.find(e.call);
    if (it == kOperators.end()) return;
    op = it->second;
  } else if (e.call.starts_with("Tensor.")) {
    op = e.call.substr(7);
  } else if (e.call.starts_with("torch.nn.functional.")) {
    op = e.call.substr(20);
  } else if (e.call.starts_with("torch.") && e.call.find('.', 6) == std::string_view::npos) {
    op = e.call.substr(6);
  }
  if (op.empty()) return;
  // One dtype and one device for all tensors: what promotion makes of several is not guessed.
  DType dtype = DType::other;
  std::string device;
  bool known = true;
  const auto operand = [&](const Value& v) {
    if (is(v, V::real)) known = known && false;   // a Python float promotes integers
    if (!v || !isAny(v, V::tensor)) return;
    const std::string on = acceleratorOf(v);
    if (!is(v, V::tensor) || v->dtype == DType::other || on.empty() || (dtype != DType::other && v->dtype != dtype)) { known = false; return; }
    dtype = v->dtype;
    device = on;
  };
  operand(e.receiver);
  for (const auto& a : e.args->list) if (a.name != "dtype") operand(a.value);
  if (!known || dtype == DType::other || e.args->keyword("dtype") || !isOurs(interp.options().machine, device)) return;
  const auto* row = kde::findNativeOp("aten::" + op);
  if (!row || row->takes(dtype) || !kde::isAtenOp("aten::" + op)) return;
  if (op == "div" || op == "true_divide" || op == "to") return;  // integers divide as floats
  Finding f = findingAt("predicted-fallback", e.node, "`aten::" + op + "` has no kernel for " + std::string(dtypeName(dtype)) + " on " + device + ": this call runs on the host");
  interp.report(std::move(f), e.unit);
}

void add(Span span, const LiveSite& live, std::vector<Finding>& out) {
  if (live.fallbacks.empty() || (live.state != "exact" && live.state != "moved")) return;
  std::string ops;
  uint64_t calls = 0, bytes = 0;
  for (const auto& f : live.fallbacks) {
    ops += (ops.empty() ? "" : ", ") + f.op;
    calls += f.calls;
    bytes += f.bytes;
  }
  Finding f;
  f.code = "predicted-fallback";
  f.severity = "hint";
  f.span = span;
  f.message = std::to_string(calls) + (calls == 1 ? " call" : " calls") + " of " + ops + " fell back to the CPU here, with " + std::to_string(bytes) +
              " bytes copied (measured in process " + std::to_string(live.pid) + (live.process_state == "ended" ? ", which has ended)" : ")");
  out.push_back(std::move(f));
}

}  // namespace

void listenPredictedFallback(Interp& interp) { interp.listen(E::call | E::operation, look); }

void measuredFallback(const Analysis& a, const LiveFile& live, std::vector<Finding>& out) {
  for (size_t i = 0; i < live.sites.size() && i < a.sites.size(); ++i) add(a.sites[i].span, live.sites[i], out);
  for (const auto& m : live.also) add(m.span, m.live, out);
}

}  // namespace flagos::lsp
