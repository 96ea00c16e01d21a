"""Mixed precision: what runs in which type, against PyTorch's own lists and the CPU's autocast; and the gradient scaler."""
import json

import pytest
from support import good

# name -> call of float32 tensors a, b [4, 4], v [4] and the half type h
LOWER = {
    "mm": "a @ b", "matmul": "torch.matmul(a, v)", "bmm": "torch.bmm(a[None], b[None])", "addmm": "torch.addmm(v, a, b)", "addmv": "torch.addmv(v, a, v)",
    "addr": "torch.addr(a, v, v)", "baddbmm": "torch.baddbmm(a[None], a[None], b[None])", "addbmm": "torch.addbmm(a, a[None], b[None])",
    "linear": "F.linear(a, b, v)", "conv1d": "F.conv1d(a[None], b[:, :, None])", "conv2d": "F.conv2d(a[None, :, None], b[:, :, None, None])",
    "conv_transpose1d": "F.conv_transpose1d(a[None], b[:, :, None])", "conv_transpose2d": "F.conv_transpose2d(a[None, :, None], b[:, :, None, None])",
    "prelu": "F.prelu(a, v)", "chain_matmul": "torch.chain_matmul(a, b)", "multi_dot": "torch.linalg.multi_dot([a, b, a])", "mv": "torch.mv(a, v)",
    "attention": "F.scaled_dot_product_attention(a[None, None], b[None, None], a[None, None])", "lstm cell": "torch.lstm_cell(a, (a, a), W, W)[0]",
    "gru cell": "torch.gru_cell(a, a, W[:12], W[:12])",
}
FULL = {
    "exp": "a.to(h).exp()", "log": "(a.abs() + 1).to(h).log()", "log1p": "a.abs().to(h).log1p()", "expm1": "a.to(h).expm1()", "cosh": "torch.cosh(a.to(h))",
    "acos": "(a / 9).to(h).acos()", "tan": "a.to(h).tan()", "reciprocal": "(a + 9).to(h).reciprocal()", "rsqrt": "(a + 9).to(h).rsqrt()", "pow": "a.to(h) ** 2",
    "number pow": "torch.pow(2.0, a.to(h))", "cumsum": "a.to(h).cumsum(0)", "cumprod": "a.to(h).cumprod(0)", "sum": "a.to(h).sum()", "sum of rows": "a.to(h).sum(1)",
    "prod": "a.to(h).prod(1)", "softmax": "a.to(h).softmax(1)", "log_softmax": "a.to(h).log_softmax(1)", "softmin": "F.softmin(a.to(h), 1)",
    "layer_norm": "F.layer_norm(a.to(h), (4,))", "group_norm": "F.group_norm(a.to(h), 2)", "norm": "a.to(h).norm()", "dist": "torch.dist(a.to(h), b.to(h))",
    "cdist": "torch.cdist(a.to(h), b.to(h))", "renorm": "a.to(h).renorm(2, 0, 1.0)", "nll": "F.nll_loss(a.to(h), T)", "cross entropy": "F.cross_entropy(a.to(h), T)",
    "mse": "F.mse_loss(a.to(h), b.to(h))", "l1": "F.l1_loss(a.to(h), b.to(h))", "smooth_l1": "F.smooth_l1_loss(a.to(h), b.to(h))",
    "kl_div": "F.kl_div(a.to(h), b.abs().to(h), reduction='sum')", "bce with logits": "F.binary_cross_entropy_with_logits(a.to(h), b.sigmoid().to(h))",
    "cosine_similarity": "F.cosine_similarity(a.to(h), b.to(h))", "pdist": "F.pdist(a.to(h))", "softplus": "F.softplus(a.to(h))",
}
WIDEST = {
    "addcmul": "torch.addcmul(a, a.to(h), b.to(h))", "atan2": "torch.atan2(a, b.to(h))", "cross": "torch.cross(a[:, :3], b[:, :3].to(h), dim=1)", "dot": "torch.dot(v, v.to(h))",
    "bilinear": "F.bilinear(a, b.to(h), W.view(4, 4, 4))", "cat": "torch.cat([a, b.to(h)])", "stack": "torch.stack([a, b.to(h)])", "index_put": "a.clone().index_put((T,), b.to(h))",
    "scatter_add": "torch.scatter_add(a, 0, T[None].expand(4, 4).contiguous(), b.to(h))", "tensordot": "torch.tensordot(a, b.to(h), 1)", "grid_sample":
    "F.grid_sample(a[None, None], b.to(h).view(1, 4, 2, 2), align_corners=False)",
}
# In neither list: the type goes in as it comes out.
SAME = {"add": "a.to(h) + b.to(h)", "relu": "torch.relu(a.to(h))", "gelu": "F.gelu(a.to(h))", "full add": "a + b", "max_pool": "F.max_pool1d(a[None].to(h), 2)",
        "mean": "a.to(h).mean()", "tanh": "a.to(h).tanh()"}
COMMON = """
    import json, torch, torch.nn.functional as F, warnings
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    HOST = dict(a=torch.randn(4, 4), b=torch.randn(4, 4), v=torch.randn(4), W=torch.randn(16, 4), T=torch.tensor([1, 0, 3, 2]))
    NPU = {k: t.to("npu") for k, t in HOST.items()}
    def value(call, where, h): return eval(call, dict(torch=torch, F=F, h=h, **where))
"""


@pytest.mark.parametrize("half,env", [("float16", {}), ("bfloat16", {}), ("bfloat16", {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"})],
                         ids=["float16", "bfloat16", "bfloat16 on opencl"])
def test_every_list(half, env):
    """Types by the list an operator is in; values against float32, as far as the type holds them."""
    tables = {"lower": LOWER, "full": FULL, "widest": WIDEST, "same": SAME}
    code = COMMON + f"""
    h = torch.{half}
    tables = json.loads({json.dumps(json.dumps(tables))})
    rows = {{}}
    for kind, calls in tables.items():
        for name, call in calls.items():
            plain = value(call.replace(".to(h)", ""), HOST, h)
            with torch.autocast("npu", dtype=h):
                try: got = value(call, NPU, h)
                except Exception as error: rows[kind + " " + name] = [type(error).__name__, str(error), False]; continue
            near = torch.allclose(got.float().cpu(), plain.float(), atol=0.25, rtol=0.1)
            rows[kind + " " + name] = [str(got.dtype), got.device.type, near]
    print(json.dumps(rows))
    """
    rows = json.loads(good(code, **env))
    expected = {**{f"lower {n}": half for n in LOWER}, **{f"full {n}": "float32" for n in FULL}, **{f"widest {n}": "float32" for n in WIDEST},
                **{f"same {n}": "float32" if n == "full add" else half for n in SAME}}
    assert {n: dtype.removeprefix("torch.") for n, (dtype, _, _) in rows.items()} == expected
    assert [n for n, (_, device, near) in rows.items() if device != "npu" or not near] == []


def test_contexts_weights_and_refusals():
    code = COMMON + """
    a, b = NPU["a"], NPU["b"]
    out = []
    with torch.autocast("npu"):
        out.append((a @ b).dtype)                              # the default type
        with torch.autocast("npu", enabled=False): out.append((a @ b).dtype)
        out.append((a.double() @ b.double()).dtype)            # never narrowed
        out.append(torch.is_autocast_enabled("npu"))
        with torch.autocast("cpu", dtype=torch.bfloat16): out.append((HOST["a"] @ HOST["b"]).dtype)
    out.append((torch.get_autocast_dtype("npu"), torch.is_autocast_enabled("npu")))
    print(*out)
    @torch.autocast("npu", dtype=torch.bfloat16)
    def decorated(x): return x @ x
    print(decorated(a).dtype, torch.npu.get_amp_supported_dtype())
    # A weight is cast once inside a block, and its gradient is the weight's own type.
    w = torch.nn.Parameter(b.clone())
    with torch.autocast("npu", dtype=torch.bfloat16): loss = ((a @ w) + (b @ w)).float().sum()
    loss.backward()
    print(w.grad.dtype, torch.allclose(w.grad.cpu(), (HOST["a"] + HOST["b"]).sum(0)[:, None].expand(4, 4), atol=0.05))
    for call in (lambda: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()), lambda: torch.nn.BCELoss()(a.sigmoid(), b.sigmoid())):
        with torch.autocast("npu", dtype=torch.float16):
            try: call(); print("accepted")
            except RuntimeError as error: print("binary_cross_entropy_with_logits" in str(error))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.autocast("npu", dtype=torch.float64): print((a @ b).dtype)
    print(any("npu" in str(w.message).lower() for w in seen))
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="npu", cast_inputs=torch.float32)
        def forward(ctx, x): ctx.seen = x.dtype; return x * 2
        @staticmethod
        @torch.amp.custom_bwd(device_type="npu")
        def backward(ctx, g): return g * 2
    with torch.autocast("npu", dtype=torch.bfloat16): print(Double.apply(a.bfloat16()).dtype)
    """
    lines = good(code).splitlines()
    assert lines[0] == "torch.float16 torch.float32 torch.float64 True torch.bfloat16 (torch.float16, False)"
    assert lines[1] == "torch.bfloat16 [torch.float16, torch.bfloat16]"
    assert lines[2:] == ["torch.float32 True", "True", "True", "torch.float32", "True", "torch.float32"]


@pytest.mark.parametrize("env", [{}, {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"}, {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "forbid"}],
                         ids=["default", "opencl", "discrete"])
def test_the_gradient_scaler(env):
    """Scales, unscales, skips a step whose gradients overflow, grows after good ones: each number by hand."""
    code = """
        import torch
        def train(device):
            w = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], device=device))
            optimizer = torch.optim.SGD([w], lr=0.5)
            scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_factor=2.0, backoff_factor=0.25, growth_interval=2)
            rows = []
            for factor in (1.0, float("inf"), 1.0, 1.0, float("nan"), 2.0):
                optimizer.zero_grad()
                scaler.scale((w * factor).sum()).backward()
                scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_([w], 1e9)
                scaler.step(optimizer); scaler.update()
                rows.append((scaler.get_scale(), [round(x, 4) for x in w.tolist()]))
            state = scaler.state_dict()
            again = torch.amp.GradScaler(device); again.load_state_dict(state)
            return rows, {k: v for k, v in state.items()}, again.get_scale()
        npu, cpu = train("npu"), train("cpu")
        print(npu == cpu)
        for row in npu[0]: print(*row)
    """
    lines = good(code, **env).splitlines()
    assert lines == ["True", "8.0 [0.5, -2.5, 2.5]", "2.0 [0.5, -2.5, 2.5]", "2.0 [0.0, -3.0, 2.0]", "4.0 [-0.5, -3.5, 1.5]", "1.0 [-0.5, -3.5, 1.5]",
                     "1.0 [-1.5, -4.5, 0.5]"]
