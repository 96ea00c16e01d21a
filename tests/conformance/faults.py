"""Silent faults that OpenCL backends are known for, each with its whole kind: test_tensors.py runs them in each memory mode
and on each route. Every check computes on the CPU and on the npu and compares all bits that matter."""
import itertools

import torch
import torch.nn.functional as F

D = "npu:0"
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NUMBERS = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def same(function, *inputs, what="", **tolerance):
    """function(*inputs) on the CPU and on the npu. Inputs are changed by neither."""
    def run(device):
        out = function(*(x.clone().to(device) if isinstance(x, torch.Tensor) else x for x in inputs))
        return out if isinstance(out, (tuple, list)) else (out,)

    for a, b in zip(run("cpu"), run(D), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        kw = tolerance or ({"atol": 2e-2, "rtol": 2e-2} if a.dtype in (torch.float16, torch.bfloat16) else {})
        torch.testing.assert_close(b.cpu(), a, equal_nan=True, msg=lambda m: f"{what}: {m}", **kw)


# ---- writes into views ----

VIEWS = {
    "offset": lambda t: t[2:],
    "offset and gaps": lambda t: t[1:4, 1::2],
    "transposed": lambda t: t.t(),
    "transposed with an offset": lambda t: t[:, 2:].t(),
    "diagonal": lambda t: t.diagonal(1),
    "one column": lambda t: t[:, 3],
    "one element": lambda t: t[2, 3],
    "empty": lambda t: t[3:3],
    "of a flattened part": lambda t: t.view(-1)[7:20],
}
IN_PLACE = {
    "fill_": lambda v: v.fill_(3), "zero_": lambda v: v.zero_(), "add_ number": lambda v: v.add_(2),
    "add_": lambda v: v.add_(torch.ones_like(v)), "mul_": lambda v: v.mul_(torch.full_like(v, 2)),
    "sub_ alpha": lambda v: v.sub_(torch.ones_like(v), alpha=3), "clamp_": lambda v: v.clamp_(2, 9),
    "copy_": lambda v: v.copy_(torch.full_like(v, 5)), "neg_": lambda v: v.neg_(),
    "masked_fill_": lambda v: v.masked_fill_(v > 7, 1), "copy_ of a number": lambda v: v.copy_(torch.tensor(4)),
    "abs_": lambda v: v.abs_(), "pow_": lambda v: v.pow_(2), "fill_ with a tensor": lambda v: v.fill_(torch.tensor(6, device=v.device)),
    "maximum into": lambda v: torch.maximum(v, torch.full_like(v, 8), out=v), "add into": lambda v: torch.add(v, 1, out=v),
    "sum into": lambda v: torch.sum(v.detach().clone().unsqueeze(0), 0, out=v),
}
FLOAT_IN_PLACE = {
    "exp_": lambda v: v.mul_(0.1).exp_(), "sqrt_": lambda v: v.sqrt_(), "relu_": lambda v: v.sub_(9).relu_(),
    "sigmoid_": lambda v: v.sigmoid_(), "tanh_": lambda v: v.tanh_(), "div_": lambda v: v.div_(3), "lerp_": lambda v: v.lerp_(torch.ones_like(v), 0.25),
    "addcmul_": lambda v: v.addcmul_(torch.ones_like(v), v.clone(), value=0.5), "clamp_min_": lambda v: v.clamp_min_(6.5),
    "reciprocal_": lambda v: v.add_(1).reciprocal_(), "leaky_relu_": lambda v: F.leaky_relu_(v.sub_(9), 0.1),
}


def writes_stay_inside_their_view():
    base = torch.arange(42).view(6, 7)
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
        table = {**IN_PLACE, **(FLOAT_IN_PLACE if dtype.is_floating_point else {})}
        for (view, cut), (name, write) in itertools.product(VIEWS.items(), table.items()):
            def whole(t, cut=cut, write=write):
                write(cut(t))
                return t

            same(whole, base.to(dtype), what=f"{name} on a view ({view}) of {dtype}")


def random_numbers_stay_inside_their_view():
    for fill in ("uniform_", "normal_", "exponential_", "bernoulli_", "random_"):
        for view, cut in VIEWS.items():
            t = torch.full((6, 7), -77.0, device=D)
            getattr(cut(t), fill)()
            inside = torch.zeros(6, 7, dtype=torch.bool)
            cut(inside).fill_(True)
            values = t.cpu()
            assert bool((values[~inside] == -77).all()), f"{fill} on a view ({view}) wrote beside it"
            assert bool((values[inside] != -77).all()), f"{fill} on a view ({view}) left elements out"


# ---- softmax, losses ----

SHAPES = [(5,), (3, 5), (1, 7), (7, 1), (2, 3, 4), (2, 1, 3, 4), (33, 65), (4, 300)]


def softmax_over_every_dimension():
    for shape, function in itertools.product(SHAPES, (torch.softmax, torch.log_softmax, F.softmin)):
        x = torch.randn(shape)
        for dim in range(-len(shape), len(shape)):
            same(lambda t: function(t, dim=dim), x, what=f"{function.__name__} of {shape} over {dim}")
        if len(shape) > 1:
            same(lambda t: function(t.transpose(0, -1), dim=0), x, what=f"{function.__name__} of a transposed {shape}")
    x = torch.tensor([[float("-inf"), 0.0, 1.0], [float("-inf")] * 3, [1e38, -1e38, 0.0]])
    for dim in (0, 1):
        same(lambda t: torch.softmax(t, dim), x, what="softmax with infinities")
        same(lambda t: torch.log_softmax(t, dim), x, what="log_softmax with infinities")

    def gradient(t, dim):
        t.requires_grad_()
        out = torch.softmax(t, dim)
        return torch.autograd.grad(out, t, torch.linspace(-1, 1, out.numel(), dtype=t.dtype).to(t.device).view(out.shape))

    for shape in SHAPES:
        for dim in range(len(shape)):
            same(gradient, torch.randn(shape), dim, what=f"gradient of softmax of {shape} over {dim}", atol=1e-5, rtol=1e-4)


def classification_losses():
    weights = torch.tensor([0.5, 2.0, 0.0, 1.5, 1.0])
    for spatial, reduction, ignore, weight, smoothing in itertools.product(
            ((), (3,), (2, 3)), ("mean", "sum", "none"), (-100, 2, 0), (None, weights), (0.0, 0.2)):
        x = torch.randn(4, 5, *spatial)
        target = torch.randint(0, 5, (4, *spatial))
        target.view(-1)[::3] = ignore

        def loss(t, y, w):
            t.requires_grad_()
            out = F.cross_entropy(t, y, weight=w, ignore_index=ignore, reduction=reduction, label_smoothing=smoothing)
            return out, *torch.autograd.grad(out.sum(), t)

        same(loss, x, target, weight, what=f"cross_entropy {spatial} {reduction} ignore {ignore} weight {weight is not None} "
             f"smoothing {smoothing}", atol=1e-5, rtol=1e-4)

        def nll(t, y, w):
            return F.nll_loss(F.log_softmax(t, 1), y, weight=w, ignore_index=ignore, reduction=reduction)

        same(nll, x, target, weight, what=f"nll_loss {spatial} {reduction}", atol=1e-5, rtol=1e-4)
    everything_ignored = torch.full((3,), -100)
    same(lambda t, y: F.cross_entropy(t, y), torch.randn(3, 5), everything_ignored, what="all targets ignored")
    same(lambda t, y: F.cross_entropy(t, y), torch.randn(4, 5), torch.softmax(torch.randn(4, 5), 1), what="probabilities")
    same(lambda t, y, w: F.binary_cross_entropy_with_logits(t, y, pos_weight=w), torch.randn(4, 5), torch.rand(4, 5), weights,
         what="pos_weight")


# ---- special values ----

SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-40, 3e38, -3e38, 2.5]
UNARY = ["relu", "abs", "neg", "sign", "sqrt", "exp", "log", "sigmoid", "tanh", "floor", "ceil", "round", "trunc", "isnan", "isinf",
         "isfinite", "signbit", "reciprocal", "rsqrt", "square", "erf", "log1p", "expm1", "atan", "logical_not", "frac", "nan_to_num",
         "sgn", "sin", "cos", "exp2", "log2", "log10"]
BINARY = ["maximum", "minimum", "fmax", "fmin", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "div", "atan2", "fmod",
          "remainder", "pow", "logical_and", "logical_or", "logical_xor", "copysign", "heaviside", "hypot"]
REDUCTIONS = ["sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all", "nansum", "logsumexp", "var", "norm",
              "median", "cumsum", "cummax", "sort", "topk"]


def special_values_pass_through():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = torch.tensor(SPECIAL, dtype=dtype)
        if dtype != torch.float64:   # flushing of denormal numbers is a device's own business
            x = x[(x == 0) | (x.abs() > 1e-30) | x.isnan()]
        for name in UNARY:
            same(getattr(torch, name), x, what=f"{name} of special values, {dtype}")
        for name in ("relu6", "hardtanh", "leaky_relu", "elu", "gelu", "silu", "softplus", "hardswish", "hardsigmoid", "mish", "threshold"):
            args = (0.5, 9.0) if name == "threshold" else ()
            y = x[x.abs() < 1e30] if name == "gelu" else x   # the CPU's own gelu overflows there
            same(lambda t: getattr(F, name)(t, *args), y, what=f"{name} of special values, {dtype}")
        a, b = x.repeat(len(x)), x.repeat_interleave(len(x))
        for name in BINARY:
            # Where the quotient overflows the CPU's own vector code gives nan.
            fine = torch.isfinite(a / b) | ~torch.isfinite(a) | ~torch.isfinite(b) if name in ("fmod", "remainder") else slice(None)
            same(getattr(torch, name), a[fine], b[fine], what=f"{name} of special values, {dtype}")
        for low, high in ((-1, 1), (None, 0.5), (0.5, None), (float("nan"), 1.0), (1.0, -1.0)):
            same(lambda t: t.clamp(low, high), x, what=f"clamp({low}, {high}) of special values, {dtype}")
        same(lambda p, q, r: torch.clamp(p, q, r), a, b, b.flip(0), what=f"clamp by tensors, {dtype}")
    for name in REDUCTIONS:
        for row in ([1.0, float("nan"), 2.0], [float("nan")] * 3, [float("inf"), 1.0, -1.0], [float("inf"), float("-inf"), 0.0],
                    [-0.0, 0.0, -0.0], [2.0, 2.0, 1.0]):
            args = (2,) if name == "topk" else (-1,) if name in ("cumsum", "cummax", "sort", "logsumexp", "amax", "amin") else ()
            x = torch.tensor([row])
            same(lambda t: tuple(o) if isinstance(o := getattr(torch, name)(t, *args), tuple) else o, x, what=f"{name} of {row}")
    for name in ("max_pool2d", "adaptive_max_pool2d"):
        x = torch.randn(1, 2, 4, 4)
        x[0, 0, 1, 1] = float("nan")
        x[0, 1] = float("-inf")
        same(lambda t: getattr(F, name)(t, 2), x, what=f"{name} with nan")


# ---- conversions ----


def conversions_of_every_value():
    values = torch.tensor([0.0, -0.0, 0.5, -0.5, 0.999, 1.0, 1.5, 2.5, -1.0, -1.5, 100.7, 127.0, 3.0, 255.0])
    for src, dst in itertools.product([*NUMBERS, torch.bool], repeat=2):
        x = values.clamp_min(0).to(src) if not src.is_signed or not dst.is_signed else values.clamp(-128, 127).to(src)
        if dst == torch.int8:
            x = x.clamp(max=127) if x.dtype != torch.bool else x
        same(lambda t: t.to(dst), x, what=f"{src} to {dst}")
        same(lambda t: torch.empty(t.shape, dtype=dst, device=t.device).copy_(t), x, what=f"copy_ {src} to {dst}")
        same(lambda t: t.view(2, 7).t().to(dst), x, what=f"transposed {src} to {dst}")
    for dtype in FLOATS:
        x = torch.tensor([0.5, -0.25, 1e-5, 0.0, -0.0, float("nan"), float("inf")], dtype=dtype)
        same(lambda t: t.bool(), x, what=f"{dtype} to bool")
        same(lambda t: torch.where(t.bool(), 1, 2), x, what=f"{dtype} as a condition")
        same(lambda t: (torch.any(t), torch.all(t), torch.logical_not(t), torch.nonzero(t), torch.count_nonzero(t)), x,
             what=f"truth of {dtype}")


def every_half_number_both_ways():
    bits = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.bfloat16, torch.float16):
        same(lambda t: t.view(dtype).float(), bits, what=f"every {dtype} to float32", atol=0, rtol=0)
        same(lambda t: t.view(dtype).double(), bits, what=f"every {dtype} to float64", atol=0, rtol=0)
        exact = bits.view(dtype).float()
        exact = exact[torch.isfinite(exact)].unique()
        between = (exact[1:].double() + exact[:-1].double()) / 2   # ties go to the even neighbour
        around = torch.cat([exact, between.float(), torch.nextafter(between.float(), exact[1:]),
                            torch.nextafter(between.float(), exact[:-1]), torch.tensor([float("nan"), float("inf"), 3.4e38, -3.4e38])])
        around = around[(around == 0) | (around.abs() > 1.2e-38) | around.isnan()]
        same(lambda t: t.to(dtype), around, what=f"float32 to {dtype}", atol=0, rtol=0)
        same(lambda t: t.to(dtype), around.double(), what=f"float64 to {dtype}", atol=0, rtol=0)
        same(lambda t: (t.to(dtype) + 1).float(), around, what=f"{dtype} plus 1", atol=0, rtol=0)


# ---- shapes and numbers ----


def factories():
    for n, m, dtype in itertools.product((0, 1, 3, 5), (None, 0, 1, 4, 7), [*NUMBERS, torch.bool]):
        args = (n,) if m is None else (n, m)
        a, b = torch.eye(*args, dtype=dtype), torch.eye(*args, dtype=dtype, device=D)
        assert a.dtype == b.dtype and torch.equal(a, b.cpu()), f"eye{args} of {dtype}"
    target = torch.full((4, 12), 9.0, device=D)
    torch.eye(4, 6, out=target[:, ::2])
    expected = torch.full((4, 12), 9.0)
    torch.eye(4, 6, out=expected[:, ::2])
    assert torch.equal(target.cpu(), expected)
    for call in (lambda d: torch.arange(3, 20, 4, device=d), lambda d: torch.arange(0, 1, 0.3, device=d),
                 lambda d: torch.arange(5, -5, -3, device=d), lambda d: torch.linspace(-1, 2, 7, device=d),
                 lambda d: torch.linspace(3, 3, 1, device=d), lambda d: torch.full((2, 3), 7, device=d),
                 lambda d: torch.full((2,), True, device=d), lambda d: torch.logspace(0, 2, 5, device=d),
                 lambda d: torch.tril_indices(4, 3, device=d), lambda d: torch.zeros((), device=d),
                 lambda d: torch.arange(0, device=d), lambda d: torch.ones(0, 3, device=d)):
        a, b = call("cpu"), call(D)
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(b.cpu(), a)


def results_of_0_dimensional_tensors():
    for shape in ((), (1,), (1, 1), (0,), (2, 0, 3)):
        x = torch.full(shape, 0.5)
        for name in UNARY:
            same(getattr(torch, name), x, what=f"{name} of shape {shape}")
        for name in BINARY:
            same(getattr(torch, name), x, torch.full((), 2.0), what=f"{name} of shapes {shape} and ()")
            same(getattr(torch, name), torch.full((), 2.0), x, what=f"{name} of shapes () and {shape}")
    for name in ("sum", "mean", "max", "min", "prod", "argmax", "any", "all", "norm"):
        same(getattr(torch, name), torch.tensor(3.0), what=f"{name} of a 0-dimensional tensor")


def integers_and_numbers():
    x = torch.tensor([-7, -3, -1, 0, 1, 2, 5, 8])
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool):
        t = x.abs().to(dtype) if not dtype.is_signed else x.to(dtype)
        for number, name in itertools.product((2, -3, 0.5, -2.5, True), ("add", "sub", "mul", "true_divide", "floor_divide", "remainder",
                                                                        "fmod", "pow", "eq", "lt", "ge", "maximum")):
            if name == "maximum" or (dtype == torch.bool and name in ("sub", "floor_divide", "remainder", "fmod", "pow")):
                continue
            if name == "pow" and number < 0 or number is True and name == "sub" or number == -3 and not dtype.is_signed:
                continue   # PyTorch refuses them, or wraps negative numbers around
            same(lambda v: getattr(torch, name)(v, number), t, what=f"{name} of {dtype} and {number}")
        same(lambda v: (1 / (v.to(torch.int32) + 9), 5 - v.to(torch.int32), 2.0 ** v.to(torch.int32)), t, what=f"number and {dtype}")
    same(lambda v: (v // 2, v % 3, v // -2, v % -3, v / 2, -v, v >> 1, v << 2, ~v, v & 3, v | 4, v ^ 5), x, what="whole numbers")
    same(lambda v: (v.sum(), v.prod(), v.cumsum(0), v.float().mean(), v.max(), v.argmin()), x, what="reductions of whole numbers")
    big = torch.tensor([2 ** 53 + 1, 2 ** 62, -2 ** 62, 2 ** 31, -2 ** 31 - 1])
    same(lambda v: (v + 1, v * 1, v - v.flip(0) // 2, v.clamp(-2 ** 40, 2 ** 60), v.abs(), v // 7, v % 7, v.sum(), v.max(), v == v), big,
         what="numbers that float64 cannot hold")


def remainders():
    for dtype in FLOATS:
        a = torch.tensor([3, 5, 7, 7, -7, 8.5, 100.25, 1000, 0.0, -0.0, 4.5, -4.5, 1e30 if dtype != torch.float16 else 1e4, 6, -6, 0.125, 2], dtype=dtype)
        for divisor in (1.5, -1.5, 0.1, 3, 1e-3, 7, 1e4):
            b = torch.full_like(a, divisor)
            for count in (1, 2, 3, 16, 17):
                for name in ("fmod", "remainder", "floor_divide"):
                    if name == "floor_divide" and dtype in (torch.float16, torch.bfloat16):
                        continue   # the CPU rounds the quotient itself
                    f = getattr(torch, name)
                    same(f, a[:count], b[:count], what=f"{name} {dtype} by {divisor}, {count} elements", atol=0, rtol=0)
                    same(lambda t: f(t, divisor), a[:count], what=f"{name} {dtype} by the number {divisor}", atol=0, rtol=0)
                    same(f, a[:count], b[:1], what=f"{name} {dtype} by a broadcast {divisor}", atol=0, rtol=0)
    # No quotient here overflows: there the CPU's own vector code gives nan.
    wide = torch.tensor([1e300, -1e290, 1.7e300, 1e-300, 3.0, float("inf"), 5.0, float("nan")], dtype=torch.float64)
    small = torch.tensor([3.3, 1e-10, 1e-5, 1e-305, float("inf"), 2.0, 0.0, 1.0], dtype=torch.float64)
    same(torch.fmod, wide, small, what="fmod far apart", atol=0, rtol=0)
    same(torch.remainder, wide, small, what="remainder far apart", atol=0, rtol=0)


def histograms_of_whole_numbers():
    for dtype in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        for count, bins, low, high in itertools.product((0, 1, 50, 5000), (1, 7, 8), (0, -3), (0, 7, 90)):
            x = torch.randint(0, 100, (count,)).to(dtype)
            # The CPU counts floating numbers only; the dtype is that of the input, as on PyTorch's other accelerators.
            want, got = torch.histc(x.double(), bins, low, high).to(dtype), torch.histc(x.to(D), bins, low, high)
            assert got.dtype == dtype and torch.equal(got.cpu(), want), f"{dtype} of {count}, {bins} bins of {low} to {high}"
            out = torch.empty(0, dtype=dtype, device=D)
            assert torch.equal(torch.histc(x.to(D), bins, low, high, out=out).cpu(), want) and torch.equal(out.cpu(), want)
    x = torch.full((9,), 2**62 + 1, device=D)
    assert torch.histc(x, 3).tolist() == [0, 9, 0] and torch.histc(x, 3, 0, 5).tolist() == [0, 0, 0]
    for bins, low, high, text in ((3, 5, 1, "max must be larger"), (3, -2**62, 2**62, "do not fit in 64 bits"), (0, 0, 1, "bins must be > 0")):
        try:
            torch.histc(x, bins, low, high)
        except RuntimeError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{bins} bins of {low} to {high} were accepted")


# ---- normalisation without running statistics ----


def norms_without_running_statistics():
    for shape in ((4, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)):
        x, w, b = torch.randn(shape), torch.randn(3), torch.randn(3)
        mean, var = torch.randn(3), torch.rand(3) + 0.5

        def norm(t, w, b, mean, var, training, momentum):
            out = F.batch_norm(t, mean, var, w, b, training=training, momentum=momentum)
            return (out,) if mean is None else (out, mean, var)

        for training, stats, affine, momentum in itertools.product((True, False), (True, False), (True, False), (0.1, 1.0)):
            if not training and not stats:
                continue
            same(norm, x, w if affine else None, b if affine else None, mean if stats else None, var if stats else None, training,
                 momentum, what=f"batch_norm {shape} training {training} statistics {stats} affine {affine}", atol=1e-5, rtol=1e-4)

        def gradient(t, w, b):
            for v in (t, w, b):
                v.requires_grad_()
            out = F.batch_norm(t, None, None, w, b, training=True)
            return torch.autograd.grad(out, (t, w, b), torch.arange(out.numel(), device=t.device, dtype=t.dtype).view(out.shape) % 5)

        same(gradient, x, w, b, what=f"gradient of batch_norm {shape}", atol=1e-4, rtol=1e-3)
        if len(shape) > 2:
            same(lambda t: F.instance_norm(t), x, what=f"instance_norm {shape}", atol=1e-5, rtol=1e-4)
        same(lambda t: F.group_norm(t, 3), x, what=f"group_norm {shape}", atol=1e-5, rtol=1e-4)
        same(lambda t: F.layer_norm(t, t.shape[1:]), x, what=f"layer_norm {shape}", atol=1e-5, rtol=1e-4)
    for module in (torch.nn.BatchNorm2d(3, track_running_stats=False), torch.nn.BatchNorm2d(3, affine=False, momentum=None)):
        import copy

        twin = copy.deepcopy(module).to(D)
        for training in (True, True, False):
            x = torch.randn(2, 3, 4, 5)
            torch.testing.assert_close(twin.train(training)(x.to(D)).cpu(), module.train(training)(x), atol=1e-5, rtol=1e-4)
        for a, b in zip(module.buffers(), twin.buffers()):
            torch.testing.assert_close(b.cpu(), a)


# ---- tensors of other kinds that autograd makes ----


def zeros_without_memory():
    x = torch.ones(3, device=D, requires_grad=True)
    gradient, = torch.autograd.grad(torch.sgn(x).sum(), x)
    assert torch.equal(gradient.cpu(), torch.zeros(3)) and str(gradient.device) == D
    z = torch._efficientzerotensor(2, 3, device=D)
    for value in (z + 1, z.clone(), z.t().contiguous(), z.to(torch.float64), z * 2, z.sum(0)):
        assert str(value.device) == D
    assert torch.equal((z + 1).cpu(), torch.ones(2, 3)) and torch.equal(z.clone().cpu(), torch.zeros(2, 3))
    assert torch.equal(torch.ones(2, 3, device=D).copy_(z).cpu(), torch.zeros(2, 3))


def convolutions_keep_channels_last():
    formats = (torch.contiguous_format, torch.channels_last)
    for x_format, w_format, kernel, channels, transposed in itertools.product(formats, formats, (1, 3), (1, 4), (False, True)):
        torch.manual_seed(0)
        x, w = torch.randn(2, channels, 9, 7), torch.randn(channels, 6, kernel, kernel) if transposed else torch.randn(6, channels, kernel, kernel)
        found = []
        for device in ("cpu", D):
            a = x.to(device, memory_format=x_format, copy=True).requires_grad_()
            b = w.to(device, memory_format=w_format, copy=True).requires_grad_()
            y = (F.conv_transpose2d if transposed else F.conv2d)(a, b, torch.ones(6, device=device))
            y.square().sum().backward()
            found.append((y.detach(), a.grad, b.grad))
        for c, n in zip(*found):
            torch.testing.assert_close(n.cpu(), c, atol=1e-4, rtol=1e-4)
        assert found[0][0].stride() == found[1][0].stride(), f"{x_format} {w_format} kernel {kernel} of {channels}, transposed {transposed}"


def padded_encoders_without_gradients():
    """PyTorch's fast path packs padded rows into nested tensors, which the npu has not: the rows that count are equal."""
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    x, padding = torch.randn(3, 5, 16), torch.arange(5) >= torch.tensor([[4], [3], [5]])
    for mask in (None, padding):
        with torch.no_grad():
            want = model.cpu()(x, src_key_padding_mask=mask)
            got = model.to(D)(x.to(D), src_key_padding_mask=None if mask is None else mask.to(D)).cpu()
        torch.testing.assert_close(got[~padding], want[~padding], atol=1e-5, rtol=1e-4)


def other_layouts_are_refused_in_one_sentence():
    x = torch.eye(3, device=D)
    calls = (lambda: x.to_sparse(), lambda: x.to_sparse_csr(), lambda: torch.sparse_coo_tensor([[0], [1]], [1.0], (2, 2), device=D),
             lambda: torch.sparse.mm(torch.eye(3).to_sparse().to(D), x), lambda: torch.nested.nested_tensor([x, x]) + 1,
             lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), lambda: x.to_mkldnn())
    leaf = torch.eye(3, device=D, requires_grad=True)   # autograd reads the sizes of nested tensors; a refusal there would be the end
    strided = torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(3, 2)], device=D, requires_grad=True)
    assert strided.dim() == 3 and strided.size(0) == 2
    calls += (lambda: torch.nested.as_nested_tensor([leaf, leaf]) + 1, lambda: strided * 2, lambda: strided.sum().backward())
    for i, call in enumerate(calls):
        try:
            call()
        except (NotImplementedError, RuntimeError) as error:
            assert "Could not run" not in str(error) and "npu" in str(error), f"{i}: {error}"
        else:
            raise AssertionError(f"call {i} was accepted")


CHECKS = [f for name, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == __name__ and name != "same"]


if __name__ == "__main__":
    import sys

    from tensors import main

    sys.exit(main(sys.argv[1:], CHECKS))
