// Cells of recurrent layers: PyTorch asks a device of our kind for fused ones, step by step. Between them stand products, so
// a cell on the host would wait for the queue at every step.
#include "runtime/opencl/ops/recurrent.h"

#include "runtime/opencl/ops/reduce.h"
#include "runtime/torch/ops/elementwise.h"

namespace flagos::glue {
namespace {

using ocl::Cell;

bool realFits(const at::Tensor& t, at::ScalarType like) {
  return isNpu(t) && t.layout() == at::kStrided && t.dim() == 2 && t.scalar_type() == like && at::isFloatingType(like);
}
// A gradient that nothing flows into comes as None or as an undefined tensor.
bool has(const OpCall& c, size_t i) { return c.given(i) && c.tensor(i).defined(); }
// Gates [rows, n * width] beside a state [rows, width].
bool gatesFit(const at::Tensor& gates, int64_t n, const at::Tensor& state) {
  return realFits(gates, state.scalar_type()) && gates.size(0) == state.size(0) && gates.size(1) == n * state.size(1);
}
bool biasFits(const OpCall& c, size_t i, int64_t n, const at::Tensor& state) {
  if (!has(c, i)) return true;
  const at::Tensor& b = c.tensor(i);
  return isNpu(b) && b.scalar_type() == state.scalar_type() && b.numel() == n * state.size(1);
}
ocl::TensorRef dense(OpCall& c, size_t i, std::vector<at::Tensor>& keep) {
  keep.push_back(c.tensor(i).contiguous());
  return ref(keep.back());
}
at::Tensor wide(OpCall& c, const at::Tensor& state, int64_t n) { return c.empty({state.size(0), n * state.size(1)}, state.scalar_type()); }

// (input_gates, hidden_gates, state, input_bias?, hidden_bias?)
template <int64_t n>
bool cellFits(const OpCall& c) {
  const at::Tensor& state = c.tensor(2);
  return realFits(state, state.scalar_type()) && gatesFit(c.tensor(0), n, state) && gatesFit(c.tensor(1), n, state) &&
         has(c, 3) == has(c, 4) && biasFits(c, 3, n, state) && biasFits(c, 4, n, state);
}

Result<void> lstm(OpCall& c) {
  const at::Tensor& cx = c.tensor(2);
  const at::Tensor hy = wide(c, cx, 1), cy = wide(c, cx, 1), kept = wide(c, cx, 4);
  for (const at::Tensor& t : {hy, cy, kept}) c.result(t);
  std::vector<at::Tensor> keep;
  const bool biased = has(c, 3);
  return ocl::recurrentCell(c.queue(), Cell::lstm, cx.size(0), cx.size(1), biased ? ocl::kCellBiased : 0,
                            {dense(c, 0, keep), dense(c, 1, keep), dense(c, biased ? 3 : 0, keep), dense(c, biased ? 4 : 0, keep),
                             dense(c, 2, keep), ref(hy), ref(cy), ref(kept)}, c.variant());
}

// Sums over the rows.
Result<at::Tensor> biasGradient(OpCall& c, const at::Tensor& gates) {
  const at::Tensor out = c.empty({gates.size(1)}, gates.scalar_type());
  if (out.numel() == 0) return out;
  if (auto ok = ocl::reduce(c.queue(), ocl::ReduceOp::sum, ref(gates), ref(out), 1, c.variant()); !ok) return ok.error();
  return out;
}

// (grad_hy?, grad_cy?, cx, cy, workspace, has_bias)
Result<void> lstmBackward(OpCall& c) {
  const at::Tensor& cx = c.tensor(2);
  const at::Tensor gates = wide(c, cx, 4), gcx = wide(c, cx, 1);
  std::vector<at::Tensor> keep;
  const int64_t flags = (has(c, 0) ? ocl::kCellGradOutput : 0) | (has(c, 1) ? ocl::kCellGradCell : 0);
  auto ok = ocl::recurrentCell(c.queue(), Cell::lstm_backward, cx.size(0), cx.size(1), flags,
                               {dense(c, has(c, 0) ? 0 : 2, keep), dense(c, has(c, 1) ? 1 : 2, keep), dense(c, 2, keep),
                                dense(c, 3, keep), dense(c, 4, keep), ref(gates), ref(gcx)}, c.variant());
  if (!ok) return ok;
  c.result(gates);
  c.result(gcx);
  if (!c.flag(5)) {
    c.result(at::Tensor());
    return {};
  }
  auto bias = biasGradient(c, gates);
  if (!bias) return bias.error();
  c.result(*bias);
  return {};
}
bool lstmBackwardFits(const OpCall& c) {
  const at::Tensor& cx = c.tensor(2);
  const auto like = [&](size_t i) { return !has(c, i) || (realFits(c.tensor(i), cx.scalar_type()) && c.tensor(i).sizes() == cx.sizes()); };
  return (has(c, 0) || has(c, 1)) && realFits(cx, cx.scalar_type()) && like(0) && like(1) && like(3) && gatesFit(c.tensor(4), 4, cx);
}

Result<void> gru(OpCall& c) {
  const at::Tensor& hx = c.tensor(2);
  const at::Tensor hy = wide(c, hx, 1), kept = wide(c, hx, 5);
  c.result(hy);
  c.result(kept);
  std::vector<at::Tensor> keep;
  const bool biased = has(c, 3);
  return ocl::recurrentCell(c.queue(), Cell::gru, hx.size(0), hx.size(1), biased ? ocl::kCellBiased : 0,
                            {dense(c, 0, keep), dense(c, 1, keep), dense(c, biased ? 3 : 0, keep), dense(c, biased ? 4 : 0, keep),
                             dense(c, 2, keep), ref(hy), ref(kept)}, c.variant());
}

// (grad_hy, workspace, has_bias)
Result<void> gruBackward(OpCall& c) {
  const at::Tensor& g = c.tensor(0);
  const at::Tensor input = wide(c, g, 3), hidden = wide(c, g, 3), ghx = wide(c, g, 1);
  std::vector<at::Tensor> keep;
  auto ok = ocl::recurrentCell(c.queue(), Cell::gru_backward, g.size(0), g.size(1), 0,
                               {dense(c, 0, keep), dense(c, 1, keep), ref(input), ref(hidden), ref(ghx)}, c.variant());
  if (!ok) return ok;
  for (const at::Tensor& t : {input, hidden, ghx}) c.result(t);
  for (const at::Tensor& t : {input, hidden}) {
    if (!c.flag(2)) {
      c.result(at::Tensor());
      continue;
    }
    auto bias = biasGradient(c, t);
    if (!bias) return bias.error();
    c.result(*bias);
  }
  return {};
}
bool gruBackwardFits(const OpCall& c) { return realFits(c.tensor(0), c.tensor(0).scalar_type()) && gatesFit(c.tensor(1), 5, c.tensor(0)); }

const NativeOp rows[] = {
    {"aten::_thnn_fused_lstm_cell", "pointwise", lstm, cellFits<4>},
    {"aten::_thnn_fused_lstm_cell_backward_impl", "pointwise", lstmBackward, lstmBackwardFits},
    {"aten::_thnn_fused_gru_cell", "pointwise", gru, cellFits<3>},
    {"aten::_thnn_fused_gru_cell_backward", "pointwise", gruBackward, gruBackwardFits},
};
const OpTable table(rows);

}  // namespace
}  // namespace flagos::glue
