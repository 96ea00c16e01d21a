"""Calls of the operators that PyTorch's operator databases do not make: one table, by operator. REFERENCES: what those compute
for which PyTorch has no CPU kernel.

In-place and out= forms are made of the functional operator's call (calls.call_of), so only what has none stands here itself.
"""
import os
import tempfile

import torch


def made():
    """aten name -> [(args, kwargs)], on the CPU, from a seeded generator."""
    source = torch.Generator().manual_seed(7)

    def f(*shape):
        return torch.randn(shape, generator=source)

    def p(*shape):
        return torch.rand(shape, generator=source) * 0.8 + 0.1

    def n(*shape, high=5):
        return torch.randint(0, high, shape, generator=source)

    def bits(*shape):
        return torch.rand(shape, generator=source) < 0.5

    def spd(size):
        a = f(size, size)
        return a @ a.mT + size * torch.eye(size)

    def heads():
        return f(2, 2, 5, 8), f(2, 2, 5, 8), f(2, 2, 5, 8)

    def adam(lr):
        lists = [[f(3, 4), f(5)], [f(3, 4), f(5)], [p(3, 4), p(5)], [p(3, 4), p(5)], [p(3, 4), p(5)], [torch.tensor(2.0), torch.tensor(2.0)]]
        return lists, dict(lr=lr, beta1=0.9, beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=True, maximize=False)

    def sgd(lr):
        return [[f(3, 4), f(5)], [f(3, 4), f(5)], [f(3, 4), f(5)]], dict(
            weight_decay=0.1, momentum=0.9, lr=lr, dampening=0.0, nesterov=True, maximize=False, is_first_step=False)

    def adagrad(lr):
        return [[f(3, 4), f(5)], [f(3, 4), f(5)], [p(3, 4), p(5)], [torch.tensor(2.0), torch.tensor(2.0)]], dict(
            lr=lr, lr_decay=0.1, weight_decay=0.1, eps=1e-8, maximize=False)

    lr = torch.tensor(0.1)
    q, k, v = heads()
    attention, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)
    volume, small = f(2, 3, 4, 5, 6), f(2, 3, 4, 5, 6).narrow(2, 0, 2)
    grads = {pad: f(2, 3, 4 + 2, 5 + 2, 6 + 3) for pad in ("reflection", "replication")}
    pad = [1, 2, 1, 1, 1, 1]
    bag = torch.ops.aten._embedding_bag(f(6, 3), n(5), torch.tensor([0, 2]), False, 1)
    norm_v, norm_g = f(4, 3, 2), p(4, 1, 1)
    normed, norms = torch.ops.aten._weight_norm_interface(norm_v, norm_g)
    layer = [f(2, 3, 8), 8, 2, f(24, 8), f(24), f(8, 8), f(8), True, False, 1e-5, f(8), f(8), f(8), f(8), f(16, 8), f(16), f(8, 16), f(8)]
    path = os.path.join(tempfile.gettempdir(), f"flagos-coverage-{os.getpid()}.bin")
    table = {
        "__lshift__.Scalar": [[n(3, 4), 2]],
        "__lshift__.Tensor": [[n(3, 4), n(3, 4)]],
        "__rshift__.Scalar": [[n(3, 4, high=99), 2]],
        "__rshift__.Tensor": [[n(3, 4, high=99), n(3, 4)]],
        "_add_relu.Scalar": [[f(3, 4), 0.5]],
        "_add_relu.Tensor": [[f(3, 4), f(3, 4)], {"alpha": 2}],
        "_addmm_activation": [[f(4), f(3, 5), f(5, 4)], {"use_gelu": True}],
        "_aminmax": [[f(3, 4)]],
        "_aminmax.dim": [[f(3, 4), 1, True]],
        "_amp_foreach_non_finite_check_and_unscale_": [[[f(3, 4), f(5)], torch.tensor(0.0), torch.tensor(0.5)]],
        "_amp_update_scale_": [[torch.tensor(8.0), torch.tensor(1, dtype=torch.int32), torch.tensor(0.0), 2.0, 0.5, 2]],
        "_assert_async": [[torch.tensor(True)]],
        "_assert_async.msg": [[torch.tensor(True), "said if false"]],
        "_functional_assert_async.msg": [[torch.tensor(True), "said if false", torch.tensor(0.0)]],
        "_batch_norm_with_update.out": [[f(4, 3, 5), f(3), f(3), f(3), p(3), 0.1, 1e-5], {
            "out": f(4, 3, 5), "save_mean": f(3), "save_invstd": f(3), "reserve": torch.empty(0, dtype=torch.uint8)}],
        "_cholesky_solve_helper": [[f(4, 2), torch.linalg.cholesky(spd(4)), False]],
        "_compute_linear_combination": [[f(3, 4), f(2, 3)]],
        "_cummax_helper": [[f(3, 4), f(3, 4), n(3, 4), 1]],
        "_cummin_helper": [[f(3, 4), f(3, 4), n(3, 4), 1]],
        "_dirichlet_grad": [[p(3, 4), p(3, 4), p(3, 4) + 1]],
        "_embedding_bag_dense_backward": [[f(2, 3), n(5, high=6), *bag[1:], 6, False, 1, None]],
        "_embedding_bag_forward_only": [[f(6, 3), n(5), torch.tensor([0, 2]), False, 1]],
        "_foobar": [[f(3)]],
        **{f"_foreach_{name}.Tensor": [[[f(3, 4), f(5)], [f(3, 4), f(5)], [p(3, 4), p(5)], torch.tensor([0.5, 2.0])]]
           for name in ("addcdiv", "addcmul")},
        "_foreach_copy_": [[[f(3, 4), f(5)], [f(4, 3).t(), f(5)]]],
        "_foreach_pow.ScalarAndTensor": [[2.0, [f(3, 4), f(5)]]],
        "_foreach_powsum.Scalar": [[[f(3, 4), f(5)], 2]],
        "_fused_adagrad_": adagrad(0.1),
        "_fused_adagrad_.tensor_lr": adagrad(lr),
        "_fused_adam_": adam(0.1),
        "_fused_adam_.tensor_lr": adam(lr),
        "_fused_adamw_": adam(0.1),
        "_fused_adamw_.tensor_lr": adam(lr),
        "_fused_sgd_": sgd(0.1),
        "_fused_sgd_.tensor_lr": sgd(lr),
        "_fused_rms_norm_backward": [[f(3, 4), f(3, 4), [4], p(3, 1), f(4), [True, True]]],
        "_grouped_mm": [[f(6, 8).bfloat16(), f(2, 8, 16).bfloat16(), torch.tensor([2, 6], dtype=torch.int32)]],
        "_index_put_impl_": [[f(4, 3), [torch.tensor([0, 2, 0])], f(3, 3), True]],
        "_int_mm": [[n(18, 8).to(torch.int8), n(8, 16).to(torch.int8)]],
        "_jagged_to_padded_dense_forward": [[f(6, 3), [torch.tensor([0, 2, 6])], [4], 0.5]],
        "_padded_dense_to_jagged_forward": [[f(2, 4, 3), [torch.tensor([0, 2, 6])], 6]],
        "_linalg_eigvals": [[spd(4)]],
        "_logcumsumexp": [[f(3, 4), 1]],
        "_make_dep_token": [[]],
        "_masked_softmax": [[f(2, 2, 5, 5), bits(2, 2, 5, 5), 3, 2]],
        "_masked_softmax_backward": [[f(2, 5), torch.softmax(f(2, 5), 1), bits(2, 5), 1]],
        "_native_batch_norm_legit.no_stats": [[f(4, 3, 5), f(3), f(3), True, 0.1, 1e-5]],
        "_native_batch_norm_legit.out": [[f(4, 3, 5), f(3), f(3), f(3), p(3), True, 0.1, 1e-5], {
            "out": f(4, 3, 5), "save_mean": f(3), "save_invstd": f(3)}],
        "_native_multi_head_attention": [[f(2, 5, 8), f(2, 5, 8), f(2, 5, 8), 8, 2, f(24, 8), f(24), f(8, 8), f(8)]],
        "_pdist_forward": [[f(5, 3)]],
        "_reshape_alias": [[f(3, 4), [4, 3], [3, 1]]],
        "_sample_dirichlet": [[p(3, 4)]],
        "_scaled_dot_product_flash_attention_for_cpu": [[q, k, v], {"is_causal": True}],
        "_scaled_dot_product_flash_attention_for_cpu_backward": [[f(2, 2, 5, 8), q, k, v, attention, logsumexp, 0.0, False]],
        "_fused_sdp_choice": [[q, k, v]],
        "_slow_conv2d_backward.output_mask": [[f(2, 4, 5, 5), f(2, 3, 5, 5), f(4, 3, 3, 3), [3, 3], [1, 1], [1, 1], [True] * 3]],
        "_slow_conv2d_backward.grad_input": [[f(2, 4, 5, 5), f(2, 3, 5, 5), f(4, 3, 3, 3), [3, 3], [1, 1], [1, 1]], {
            "grad_input": f(2, 3, 5, 5), "grad_weight": f(4, 3, 3, 3), "grad_bias": f(4)}],
        "_slow_conv2d_forward": [[f(2, 3, 5, 5), f(4, 3, 3, 3), [3, 3], f(4), [1, 1], [1, 1]]],
        "_spdiags": [[f(2, 4), torch.tensor([0, 1]), [4, 4]]],
        "_stack": [[[f(3, 4), f(3, 4)], 1]],
        "_standard_gamma": [[p(3, 4)]],
        "_standard_gamma_grad": [[p(3, 4), p(3, 4)]],
        "_transform_bias_rescale_qkv": [[f(2, 5, 24), f(24), 2]],
        "_transformer_encoder_layer_fwd": [layer],
        "_thnn_fused_gru_cell": [[f(2, 12), f(2, 12), f(2, 4), f(12), f(12)]],
        "_thnn_fused_gru_cell_backward": [[f(2, 4), p(2, 20), True]],
        "_thnn_fused_lstm_cell": [[f(2, 16), f(2, 16), f(2, 4), f(16), f(16)]],
        "_thnn_fused_lstm_cell_backward_impl": [[f(2, 4), f(2, 4), f(2, 4), f(2, 4), p(2, 16), True]],
        "_upsample_bicubic2d_aa": [[f(2, 3, 8, 9), [4, 5], False]],
        "_upsample_bicubic2d_aa_backward": [[f(2, 3, 4, 5), [4, 5], [2, 3, 8, 9], False]],
        "_upsample_lanczos2d_aa": [[f(2, 3, 8, 9), [4, 5], False]],
        "_upsample_lanczos2d_aa_backward": [[f(2, 3, 4, 5), [4, 5], [2, 3, 8, 9], False]],
        "_upsample_nearest_exact3d": [[volume, [5, 7, 3]]],
        "_upsample_nearest_exact3d_backward": [[f(2, 3, 5, 7, 3), [5, 7, 3], [2, 3, 4, 5, 6]]],
        "_weight_norm_interface": [[norm_v, norm_g]],
        "_weight_norm_interface_backward": [[f(4, 3, 2), norm_v, norm_g, norms, 0]],
        "adaptive_avg_pool2d.out": [[f(2, 3, 6, 6), [2, 3]], {"out": f(2, 3, 2, 3)}],
        "adaptive_avg_pool3d.out": [[volume, [2, 3, 2]], {"out": f(2, 3, 2, 3, 2)}],
        "adaptive_avg_pool3d_backward.grad_input": [[f(2, 3, 2, 3, 2), volume], {"grad_input": f(2, 3, 4, 5, 6)}],
        "addmm.dtype": [[f(3, 5), f(3, 4).half(), f(4, 5).half(), torch.float32], {"beta": 0.5, "alpha": 2}],
        "baddbmm.dtype": [[f(2, 3, 5), f(2, 3, 4).half(), f(2, 4, 5).half(), torch.float32], {"beta": 0.5, "alpha": 2}],
        "bmm.dtype": [[f(2, 3, 4).half(), f(2, 4, 5).half(), torch.float32]],
        "mm.dtype": [[f(3, 4).half(), f(4, 5).half(), torch.float32]],
        "batch_norm_update_stats": [[f(4, 3, 5), f(3), p(3), 0.1]],
        "bernoulli_.Tensor": [[f(3, 4), p(3, 4)]],
        "binomial": [[n(3, 4, high=9).float(), p(3, 4)]],
        "bucketize.Scalar": [[0.3, torch.tensor([0.0, 0.25, 0.5])]],
        "cholesky_inverse": [[torch.linalg.cholesky(spd(4))]],
        "clamp_max": [[f(3, 4), 0.2]],
        "col2im": [[f(2, 12, 9), [4, 4], [2, 2], [1, 1], [0, 0], [1, 1]]],
        "im2col": [[f(2, 3, 4, 4), [2, 2], [1, 1], [0, 0], [1, 1]]],
        "conj_physical.out": [[f(3, 4)], {"out": f(3, 4)}],
        "embedding_renorm_": [[f(6, 3), n(4), 0.5, 2.0]],
        "eye.m_out": [[4, 3], {"out": f(4, 3)}],
        "eye.out": [[4], {"out": f(4, 4)}],
        "fill_.Tensor": [[f(3, 4), torch.tensor(2.5)]],
        "from_file": [[path, True, 4], {"dtype": torch.float32}],
        "glu_jvp": [[f(3, 2), f(3, 4), f(3, 4), 1]],
        "glu_backward_jvp": [[f(3, 4), f(3, 2), f(3, 4), f(3, 2), f(3, 4), 1]],
        "is_set_to": [[f(3), f(3)]],
        "isin.Scalar_Tensor": [[2, n(6)]],
        "isin.Tensor_Scalar": [[n(6), 2]],
        "linalg_eigvals.out": [[spd(4)], {"out": torch.empty(4, dtype=torch.complex64)}],
        "linalg__powsum": [[f(3, 4), 2, [1]]],
        "logspace.out": [[0.0, 2.0, 5], {"out": f(5)}],
        "native_dropout": [[f(3, 4), 0.5, True]],
        "norm.ScalarOpt_dim_dtype": [[f(3, 4), 2, [1], False], {"dtype": torch.float64}],
        "normal.float_Tensor": [[0.5, p(3, 4)]],
        "poisson": [[p(3, 4) * 5]],
        "random_": [[f(3, 4)]],
        "random_.from": [[f(3, 4), 2, 9]],
        "random_.to": [[f(3, 4), 9]],
        "randperm.generator_out": [[5], {"generator": None, "out": n(5)}],
        "range.out": [[0, 4, 1], {"out": f(5)}],
        "reflection_pad3d": [[volume, pad]],
        "reflection_pad3d_backward": [[grads["reflection"], volume, pad]],
        "replication_pad3d": [[volume, pad]],
        "replication_pad3d_backward": [[grads["replication"], volume, pad]],
        "remainder.Scalar_Tensor": [[7, p(3, 4)]],
        "roll": [[f(3, 4), [1, 2], [0, 1]]],
        "rrelu_with_noise.out": [[f(3, 4), f(3, 4)], {"out": f(3, 4)}],
        "scatter.value_reduce": [[f(3, 4), 1, n(3, 2, high=4), 2.5], {"reduce": "multiply"}],
        "searchsorted.Scalar": [[torch.tensor([0.0, 0.25, 0.5]), 0.3]],
        "searchsorted.Tensor": [[f(3, 6).sort(1).values, f(3, 4)], {"right": True}],
        "set_": [[f(3)]],
        "set_.source_Storage": [[f(3), f(4).untyped_storage()]],
        "set_.source_Storage_storage_offset": [[f(3), f(6).untyped_storage(), 1, [2, 2], [2, 1]]],
        "set_.source_Tensor": [[f(3), f(4, 2).t()]],
        "slow_conv3d_forward": [[volume, f(4, 3, 2, 2, 2), [2, 2, 2], f(4), [1, 1, 1], [0, 0, 0]]],
        "slow_conv_dilated2d": [[f(2, 3, 6, 6), f(4, 3, 2, 2), [2, 2], f(4), [1, 1], [0, 0], [2, 2]]],
        "slow_conv_dilated3d": [[volume, f(4, 3, 2, 2, 2), [2, 2, 2], f(4), [1, 1, 1], [0, 0, 0], [2, 2, 2]]],
        "slow_conv_transpose2d": [[f(2, 3, 4, 4), f(3, 4, 2, 2), [2, 2], f(4), [2, 2]]],
        "slow_conv_transpose3d": [[small, f(3, 4, 2, 2, 2), [2, 2, 2], f(4), [2, 2, 2]]],
        "split_with_sizes_copy.out": [[f(3, 5), [2, 3], 1], {"out": [f(3, 2), f(3, 3)]}],
        "sspaddmm.out": [[f(3, 4), f(3, 5), f(5, 4)], {"out": f(3, 4)}],
        "tril_indices": [[4, 5, 1], {"device": torch.device("cpu")}],
        "triu_indices": [[4, 5, 1], {"device": torch.device("cpu")}],
        "unique_dim": [[n(6, 2, high=2), 0, True, True, True]],
        "unique_dim_consecutive": [[n(6, 2, high=2), 0, True, True]],
        "upsample_nearest3d": [[volume, [5, 7, 3]]],
        "upsample_nearest3d_backward": [[f(2, 3, 5, 7, 3), [5, 7, 3], [2, 3, 4, 5, 6]]],
    }
    return {f"aten::{name}": [(tuple(call[0]), dict(call[1]) if len(call) > 1 else {})] for name, call in table.items()}


# Their last argument is a CPU tensor on every device.
CPU_SCALARS = {f"aten::_foreach_{name}.Tensor" for name in ("addcdiv", "addcdiv_", "addcmul", "addcmul_")}


# ---- what operators without a CPU kernel compute ----


def rms_norm_backward(grad, x, shape, rstd, weight, mask):
    dims = list(range(x.dim() - len(shape), x.dim()))
    scaled, unit = grad * weight, x * rstd
    return (scaled - unit * (scaled * unit).mean(dims, keepdim=True)) * rstd, (grad * unit).sum_to_size(weight.shape)


def lstm_cell(x, h, cell, x_bias, h_bias):
    i, f, c, o = (x + h + x_bias + h_bias).chunk(4, 1)
    i, f, c, o = i.sigmoid(), f.sigmoid(), c.tanh(), o.sigmoid()
    after = f * cell + i * c
    return o * after.tanh(), after, torch.cat([i, f, c, o], 1)


def lstm_cell_backward(grad, grad_cell, before, after, kept, biased):
    i, f, c, o = kept.chunk(4, 1)
    t = after.tanh()
    d = grad * o * (1 - t * t) + grad_cell
    gates = torch.cat([d * c * i * (1 - i), d * before * f * (1 - f), d * i * (1 - c * c), grad * t * o * (1 - o)], 1)
    return gates, d * f, gates.sum(0)


def gru_cell(x, h, before, x_bias, h_bias):
    (xr, xz, xn), (hr, hz, hn) = (x + x_bias).chunk(3, 1), (h + h_bias).chunk(3, 1)
    r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
    n = (xn + r * hn).tanh()
    return n + z * (before - n), torch.cat([r, z, n, before, hn], 1)


def gru_cell_backward(grad, kept, biased):
    r, z, n, before, hn = kept.chunk(5, 1)
    dn = grad * (1 - z) * (1 - n * n)
    dr, dz = dn * hn * r * (1 - r), grad * (before - n) * z * (1 - z)
    x, h = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
    return x, h, grad * z, x.sum(0), h.sum(0)


def wide(product):
    """The product of halves in the type asked for, which comes after the matrices."""
    def of(*args, out=None, **kwargs):
        *matrices, dtype = args
        value = product(*(m.to(dtype) for m in matrices), **kwargs)
        return value if out is None else out.copy_(value)

    return of


REFERENCES = {
    "aten::_fused_rms_norm_backward": rms_norm_backward,
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_gru_cell_backward": gru_cell_backward,
    "aten::_thnn_fused_lstm_cell": lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward,
    **{f"aten::{name}.{form}": wide(getattr(torch, name)) for name in ("mm", "bmm", "addmm", "baddbmm") for form in ("dtype", "dtype_out")},
}
