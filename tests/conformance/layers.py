"""Layers, losses and random operators against the CPU: forward and backward, in every layout, and on empty batches.

test_layers.py runs this in each mode; with FLAGOS_FALLBACK=forbid every case must find an OpenCL kernel.
"""
import itertools
import sys
import traceback

import torch
import torch.nn.functional as F

D = "npu:0"


def made(shape, seed, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=g).to(dtype)


def strided(t):
    """The same values, every second element of a wider tensor, behind an offset."""
    if t.dim() == 0 or t.numel() == 0:
        return t.clone()
    wide = torch.zeros(*t.shape[:-1], t.shape[-1] * 2 + 1, dtype=t.dtype)
    view = wide[..., 1::2]
    view.copy_(t)
    return view


def turned(t):
    """The same values with the first two dimensions' memory order swapped."""
    return t.transpose(0, 1).contiguous().transpose(0, 1) if t.dim() >= 2 else t.clone()


LAYOUTS = {"plain": lambda t: t.clone(), "strided": strided, "turned": turned}


def on(device, view):
    """A copy of a view on a device, with the same sizes, strides and offset."""
    size = max(view.untyped_storage().nbytes() // view.element_size(), 1)
    base = torch.zeros(size, dtype=view.dtype)
    base.as_strided(view.shape, view.stride(), view.storage_offset()).copy_(view)
    return base.to(device).as_strided(view.shape, view.stride(), view.storage_offset())


def ran(function, inputs, device):
    """Results and gradients of the floating inputs, on the CPU."""
    leaves = [on(device, x) if isinstance(x, torch.Tensor) else x for x in inputs]
    leaves = [x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x for x in leaves]
    out = function(*leaves)
    outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, torch.Tensor)]
    floats = [o for o in outs if o.is_floating_point() and o.requires_grad]
    wanted = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    grads = torch.autograd.grad(floats, wanted, [made(o.shape, 99, o.dtype).to(device) for o in floats], allow_unused=True) if floats else []
    assert all(o.device.type == torch.device(device).type for o in outs)
    return [o.detach().cpu() for o in outs] + [g.cpu() for g in grads if g is not None]


def same(function, inputs, label, atol=3e-5, rtol=2e-5):
    expected, got = ran(function, inputs, "cpu"), ran(function, inputs, D)
    assert len(expected) == len(got), f"{label}: {len(got)} tensors instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(expected, got)):
        torch.testing.assert_close(b, a, atol=atol, rtol=rtol, equal_nan=True, check_stride=False, msg=lambda m: f"{label}, tensor {i}: {m}")


CASES = {}


def case(name, function, *shapes, zero=True, dtypes=(torch.float32,)):
    """zero: the first input (and every input with as many rows) may have a batch of 0."""
    CASES[name] = (function, shapes, zero, dtypes)


HALF = (torch.float32, torch.bfloat16, torch.float16)
for mode, align in [("nearest", None), ("nearest-exact", None), ("bilinear", False), ("bilinear", True)]:
    for size in ((9, 7), (3, 2), (8, 10)):
        case(f"interpolate {mode} {align} {size}", lambda x, m=mode, a=align, s=size: F.interpolate(x, s, mode=m, align_corners=a), (2, 3, 4, 5), zero=False)
    case(f"interpolate {mode} {align} by 1.7", lambda x, m=mode, a=align: F.interpolate(x, scale_factor=1.7, mode=m, align_corners=a), (2, 3, 4, 5), zero=False)
case("interpolate linear", lambda x: F.interpolate(x, 11, mode="linear"), (2, 3, 5), zero=False)
case("interpolate trilinear", lambda x: F.interpolate(x, (3, 5, 4), mode="trilinear"), (1, 2, 4, 3, 5), zero=False)
for mode in ("reflect", "replicate", "constant", "circular"):
    case(f"pad {mode} 1d", lambda x, m=mode: F.pad(x, (3, 1), mode=m), (2, 3, 5), zero=False)
    case(f"pad {mode} 2d", lambda x, m=mode: F.pad(x, (2, 1, 0, 3), mode=m), (2, 3, 4, 5), zero=False)
    case(f"pad {mode} 3d", lambda x, m=mode: F.pad(x, (1, 1, 2, 0, 1, 1), mode=m), (2, 2, 3, 4, 3), zero=False)
case("unfold", lambda x: F.unfold(x, (2, 3), dilation=(1, 2), padding=1, stride=2), (2, 3, 6, 7))
case("fold", lambda x: F.fold(x, (6, 7), (2, 3), padding=1), (2, 18, 49), zero=False)
case("layer norm", lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b), (6, 4, 5), (4, 5), (4, 5), dtypes=HALF)
case("layer norm, bare", lambda x: F.layer_norm(x, (5,)), (6, 4, 5))
case("group norm", lambda x, w, b: F.group_norm(x, 2, w, b), (3, 4, 5, 2), (4,), (4,), zero=False)
case("group norm, bare", lambda x: F.group_norm(x, 4), (3, 4, 7), zero=False)
case("instance norm", lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (3, 4, 5, 6), (4,), (4,), zero=False)
case("rms norm", lambda x, w: F.rms_norm(x, (5,), w), (6, 4, 5), (5,), dtypes=HALF)
case("rms norm, wide", lambda x, w: F.rms_norm(x, (3, 37), w, 1e-3), (6, 3, 37), (3, 37))
case("rms norm, bare", lambda x: F.rms_norm(x, (5,)), (6, 4, 5))
case("batch norm, training", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (5, 3, 4, 2), (3,), (3,), zero=False)
case("batch norm, no update", lambda x, w, b, m, v: torch.ops.aten._batch_norm_no_update(x, w, b, m.detach(), v.detach().abs() + 1, 0.1, 1e-5)[0],
     (5, 3, 4, 2), (3,), (3,), (3,), (3,), zero=False)
for bias in (True, False):
    b = ((6,),) if bias else ()
    case(f"conv1d {bias}", lambda x, w, *b: F.conv1d(x, w, *b, stride=2, padding=1), (2, 4, 9), (6, 4, 3), *b, zero=False)
    case(f"conv2d {bias}", lambda x, w, *b: F.conv2d(x, w, *b, padding=1), (2, 4, 7, 6), (6, 4, 3, 3), *b, zero=False)
    case(f"conv2d grouped {bias}", lambda x, w, *b: F.conv2d(x, w, *b, groups=2, stride=2), (2, 4, 7, 6), (6, 2, 3, 2), *b, zero=False)
    case(f"conv2d dilated {bias}", lambda x, w, *b: F.conv2d(x, w, *b, dilation=2, padding=(2, 1)), (2, 4, 7, 6), (6, 4, 2, 3), *b, zero=False)
    case(f"conv transpose 2d {bias}", lambda x, w, *b: F.conv_transpose2d(x, w, *b, stride=2, padding=1, output_padding=1), (2, 4, 5, 4), (4, 6, 3, 3), *b, zero=False)
    case(f"conv transpose 1d grouped {bias}", lambda x, w, *b: F.conv_transpose1d(x, w, *b, groups=2, dilation=2), (2, 4, 5), (4, 3, 3), *b, zero=False)
case("conv2d depthwise", lambda x, w: F.conv2d(x, w, groups=5, padding=1), (2, 5, 7, 6), (10, 1, 3, 3), zero=False)
case("max pool 2d", lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), (2, 3, 7, 8))
case("avg pool 2d", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 3, 7, 8))
case("max pool 3d", lambda x: F.max_pool3d(x, 2, (1, 2, 2), 1, return_indices=True), (2, 3, 4, 5, 6))
case("avg pool 3d", lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True), (2, 3, 4, 5, 6))
case("adaptive max pool 2d", lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), (2, 3, 7, 5))
case("adaptive max pool 3d", lambda x: F.adaptive_max_pool3d(x, (3, 2, 2)), (2, 3, 4, 7, 5))
case("adaptive avg pool 2d", lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 7, 5))
case("adaptive avg pool 3d", lambda x: F.adaptive_avg_pool3d(x, (3, 2, 2)), (2, 3, 4, 7, 5))
for size in ((8, 9), (7, 8)):
    case(f"max unpool 2d {size}", lambda x, s=size: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=s), (2, 3, 7, 8) if size == (7, 8) else (3, 8, 9), zero=False)
case("max unpool 1d", lambda x: F.max_unpool1d(*F.max_pool1d(x, 3, 2, return_indices=True), 3, 2), (2, 3, 9))
case("max unpool 3d", lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), (2, 3, 4, 4, 6))
case("log sigmoid", F.logsigmoid, (4, 9), dtypes=HALF)
case("glu", lambda x: F.glu(x, -1), (4, 10))
case("prelu", F.prelu, (4, 3, 5), (3,))
case("softmax", lambda x: x.softmax(-1), (4, 9), dtypes=HALF)
case("log softmax", lambda x: x.log_softmax(0), (4, 9), zero=False)
for reduction in ("none", "mean", "sum"):
    r = reduction
    case(f"mse {r}", lambda x, y, r=r: F.mse_loss(x, y, reduction=r), (4, 5), (4, 5))
    case(f"smooth l1 {r}", lambda x, y, r=r: F.smooth_l1_loss(x, y.detach(), beta=0.7, reduction=r), (4, 5), (4, 5))
    case(f"huber {r}", lambda x, y, r=r: F.huber_loss(x, y.detach(), delta=0.7, reduction=r), (4, 5), (4, 5))
    case(f"bce {r}", lambda x, y, w, r=r: F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid(), w.detach().abs(), reduction=r), (4, 5), (4, 5), (4, 5), zero=False)
    case(f"bce with logits {r}", lambda x, y, p, r=r: F.binary_cross_entropy_with_logits(x, y.detach().sigmoid(), pos_weight=p.detach().abs(), reduction=r), (4, 5), (4, 5), (5,))
    case(f"kl div {r}", lambda x, y, r=r: F.kl_div(x.log_softmax(-1), y.detach().softmax(-1), reduction="batchmean" if r == "mean" else r), (4, 5), (4, 5))
    case(f"soft margin {r}", lambda x, y, r=r: F.soft_margin_loss(x, y.detach().sign(), reduction=r), (4, 5), (4, 5))
    case(f"cross entropy {r}", lambda x, w, r=r: F.cross_entropy(x, torch.tensor([1, 0, -100, 4], device=x.device), w.detach().abs(), reduction=r), (4, 5), (5,), zero=False)
    case(f"cross entropy, smoothed {r}", lambda x, r=r: F.cross_entropy(x, torch.tensor([1, 0, -100, 4], device=x.device), reduction=r, label_smoothing=0.2), (4, 5), zero=False)
    case(f"nll 2d {r}", lambda x, r=r: F.nll_loss(x.log_softmax(1), torch.tensor([[[0, 2], [1, -1]]], device=x.device), ignore_index=-1, reduction=r), (1, 3, 2, 2), zero=False)
    for p, margin in ((1, 1.0), (2, 0.3)):
        case(f"multi margin {r} {p}", lambda x, r=r, p=p, m=margin: F.multi_margin_loss(x, torch.tensor([1, 0, 4], device=x.device), p, m, reduction=r), (3, 5), zero=False)
        case(f"multi margin, one row {r} {p}", lambda x, r=r, p=p: F.multi_margin_loss(x, torch.tensor(2, device=x.device), p, reduction=r), (5,), zero=False)
    case(f"multi margin, weights {r}", lambda x, w, r=r: F.multi_margin_loss(x, torch.tensor([1, 0, 4], device=x.device), weight=w.detach().abs(), reduction=r), (3, 5), (5,), zero=False)
case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), (2, 3, 17, 8), (2, 3, 33, 8), (2, 3, 33, 12), zero=False, dtypes=HALF)
case("attention, causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (2, 3, 33, 16), (2, 3, 33, 16), (2, 3, 33, 16), zero=False, dtypes=HALF)
case("attention, mask", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=(torch.arange(33, device=q.device) > 5).expand(17, 33)), (2, 3, 17, 8), (2, 3, 33, 8), (2, 3, 33, 8), zero=False)
case("attention, bias and scale", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m.detach(), scale=0.3), (2, 2, 17, 8), (2, 2, 9, 8), (2, 2, 9, 8), (2, 1, 17, 9), zero=False)
case("attention, shared keys", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), (2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8), zero=False)
case("cat", lambda x, y: torch.cat([x, y, x], 1), (3, 4, 2), (3, 2, 2))
case("stack", lambda x, y: torch.stack([x, y], 1), (3, 4), (3, 4))
case("split", lambda x: [p * 2 for p in x.split((1, 3), 1)], (3, 4))
case("repeat", lambda x: x.repeat(2, 1, 3), (3, 4))
case("matmul", torch.matmul, (3, 5, 4), (3, 4, 6), dtypes=HALF)
case("linear", F.linear, (6, 5), (7, 5), (7,), dtypes=HALF)


def layers_equal_the_cpu():
    for name, (function, shapes, zero, dtypes) in CASES.items():
        for dtype in dtypes:
            tolerance = {} if dtype == torch.float32 else {"atol": 6e-2, "rtol": 3e-2} if dtype == torch.bfloat16 else {"atol": 8e-3, "rtol": 6e-3}
            for layout in LAYOUTS if dtype == torch.float32 else ("plain",):
                inputs = [LAYOUTS[layout](made(s, i + 1, dtype)) for i, s in enumerate(shapes)]
                same(function, inputs, f"{name}, {layout}, {dtype}", **tolerance)
        if zero:
            rows = shapes[0][0]
            empty = [(0, *s[1:]) if len(s) == len(shapes[0]) and s[0] == rows else s for s in shapes]
            same(function, [made(s, i + 1) for i, s in enumerate(empty)], f"{name}, empty")


def random_numbers():
    """Everything drawn from one seed, as a list of tensors: the same on every route and in both memory modes."""
    torch.manual_seed(1234)
    x = torch.empty(3, 7, device=D)
    w = torch.tensor([[0.0, 1, 3, 0, 2], [5, 0, 0, 1, 1]], device=D)
    drawn = [torch.rand(5, 3, device=D), torch.randn(9, device=D), torch.randn(4, 4, device=D).t().normal_(), torch.randint(-3, 12, (11,), device=D),
             torch.randint(0, 2**40, (5,), device=D), x.exponential_(1.5).clone(), x.log_normal_(0.1, 0.5).clone(), x.geometric_(0.2).clone(),
             x.cauchy_(1, 2).clone(), x.bernoulli_(0.3).clone(), torch.bernoulli(torch.full((9,), 0.4, device=D)), torch.randperm(17, device=D),
             torch.normal(torch.zeros(6, device=D), torch.ones(6, device=D) * 2), torch.multinomial(w, 20, True), torch.multinomial(w, 2),
             F.dropout(torch.ones(40, device=D), 0.3), F.rrelu(torch.randn(9, device=D), training=True), torch.rand(4, device=D, dtype=torch.bfloat16),
             torch.empty(6, device=D, dtype=torch.int32).random_(), torch.randn(3, device=D)]
    return [t.cpu() for t in drawn]


def random_numbers_repeat_and_have_their_shapes():
    first, again = random_numbers(), random_numbers()
    for a, b in itertools.zip_longest(first, again):
        assert torch.equal(a, b)
    picks = first[13]
    assert picks.shape == (2, 20) and set(picks[0].tolist()) <= {1, 2, 4} and set(picks[1].tolist()) <= {0, 3, 4}
    assert sorted(first[14][0].tolist()) == sorted(set(first[14][0].tolist()))
    assert sorted(first[11].tolist()) == list(range(17))


def recurrent_layers_equal_the_cpu():
    # Widths that fill no vector, one and more; a cell whose gradient comes through the output, the cell or both.
    def layer(cls, wanted, width, bias, layers, x, *weights):
        net = cls(x.shape[-1], width, num_layers=layers, bias=bias).to(x.device, x.dtype)
        names = [name for name, _ in net.named_parameters()]
        out, state = torch.func.functional_call(net, dict(zip(names, weights)), (x,))
        everything = [out, *(state if isinstance(state, tuple) else (state,))]
        return [everything[i] for i in wanted]
    for cls, gates, wants in ((torch.nn.LSTM, 4, ((0,), (2,), (0, 1, 2))), (torch.nn.GRU, 3, ((0,), (0, 1)))):
        for width, bias, layers, dtype in ((5, True, 1, torch.float32), (16, False, 1, torch.float32), (39, True, 2, torch.float32),
                                           (21, True, 1, torch.float64), (18, True, 1, torch.bfloat16)):
            weights = []
            for i in range(layers):
                weights += [made((gates * width, 7 if i == 0 else width), 10 * i + 1, dtype) * 0.3, made((gates * width, width), 10 * i + 2, dtype) * 0.3]
                weights += [made((gates * width,), 10 * i + 3 + k, dtype) for k in range(2 if bias else 0)]
            tolerance = dict(atol=0.2, rtol=0.1) if dtype == torch.bfloat16 else {}
            for wanted in wants:
                for name in ("plain", "strided"):
                    x = LAYOUTS[name](made((6, 3, 7), 1, dtype))
                    same(lambda x, *w: layer(cls, wanted, width, bias, layers, x, *w), [x, *weights], f"{cls.__name__} {width} {dtype} {wanted}", **tolerance)
    empty = ran(lambda x: torch.nn.LSTM(3, 4).to(x.device)(x)[0], [torch.zeros(2, 0, 3)], D)
    assert empty[0].shape == (2, 0, 4)


def wrong_weights_raise_pytorchs_errors():
    for bad, text in (([1.0, -1.0], "element < 0"), ([0.0, 0.0], "sum of probabilities <= 0"), ([1.0, float("nan")], "`inf`, `nan`")):
        try:
            torch.multinomial(torch.tensor(bad, device=D), 1)
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{bad} was accepted")


def optional_tensors_may_be_missing_in_training():
    """Autograd passes an undefined tensor where the caller gave None."""
    indices, offsets = torch.tensor([1, 2, 4, 0, 3, 3]), torch.tensor([0, 2, 2])
    for mode in ("sum", "mean", "max"):
        same(lambda w: F.embedding_bag(indices.to(w.device), w, offsets.to(w.device), mode=mode, padding_idx=3), [made((6, 5), 1)], f"bag {mode}")
        same(lambda w: F.embedding_bag(indices.view(2, 3).to(w.device), w, mode=mode), [made((6, 5), 1)], f"bag of rows, {mode}")
    same(lambda w, p: F.embedding_bag(indices.to(w.device), w, offsets.to(w.device), mode="sum", per_sample_weights=p), [made((6, 5), 1), made((6,), 2)], "weighted")
    same(lambda x, y: x.clamp(min=y), [made((4, 5), 1), made((5,), 2)], "clamp min")
    same(lambda x, y: x.clamp(max=y), [made((4, 5), 1), made((5,), 2)], "clamp max")


def lists_of_tensors_spread_and_unscale():
    big, small = [made((8, 6), 1), made((8,), 2), turned(made((3, 4, 2), 3))], [made((), 4), made((8,), 5), made((2,), 6)]
    for dtype in (torch.float32, torch.float16):
        a, b = [t.to(dtype) for t in big], [t.abs().add(0.5).to(dtype) for t in small]
        for name in ("add", "sub", "mul", "div", "maximum"):
            same(lambda *t: getattr(torch, f"_foreach_{name}")(t[:3], t[3:]), [*a, *b], f"{name} {dtype}", atol=2e-3, rtol=2e-3)
        # PyTorch's own backward of this one does not take shapes that spread.
        same(torch.no_grad()(lambda *t: torch._foreach_addcdiv(t[:3], t[3:6], t[6:], value=-0.5)), [*a, *b, *b], f"addcdiv {dtype}", atol=4e-3, rtol=4e-3)
        for bad in (None, float("inf"), float("nan")):
            grads = [t.clone() for t in a]
            if bad:
                grads[2][1, 2, 1] = bad
            def unscale(*t):
                t, found = [x.detach().clone() for x in t], torch.zeros((), device=t[0].device)
                torch._amp_foreach_non_finite_check_and_unscale_(t, found, torch.tensor(0.25, device=t[0].device))
                return [*(x.float().nan_to_num(7) for x in t), found]
            same(unscale, grads, f"unscale {dtype} {bad}")
    for scale, tracker, found in ((4.0, 0, 0.0), (4.0, 1, 0.0), (4.0, 1, 1.0), (3e38, 1, 0.0), (4.0, 5, 0.0)):
        def update(scale, tracker, found):
            scale, tracker, found = scale.detach().clone(), tracker.clone(), found.detach()
            result = torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
            assert result.data_ptr() == scale.data_ptr()
            return scale, tracker
        same(update, [torch.tensor(scale), torch.tensor(tracker, dtype=torch.int32), torch.tensor(found)], f"scale {scale} {tracker} {found}")


def windows_equal_the_cpu():
    for n in (0, 1, 8, 9):
        same(lambda _: [torch.kaiser_window(n, p, beta, device=_.device) for p in (True, False) for beta in (12.0, 3.5)], [torch.zeros(1)], f"kaiser {n}")


CHECKS = [optional_tensors_may_be_missing_in_training, lists_of_tensors_spread_and_unscale, windows_equal_the_cpu, layers_equal_the_cpu, recurrent_layers_equal_the_cpu, random_numbers_repeat_and_have_their_shapes, wrong_weights_raise_pytorchs_errors]

if __name__ == "__main__":
    for check in CHECKS:
        try:
            check()
            print("ok", check.__name__, flush=True)
        except Exception:
            traceback.print_exc()
            print("FAILED", check.__name__, flush=True)
    torch.save(random_numbers(), sys.argv[1]) if len(sys.argv) > 1 else None
