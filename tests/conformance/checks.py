"""What is checked of an entry of op_db: forward and backward. Each check yields one outcome per sample.

An outcome is None (the CPU itself refuses the sample: nothing to compare), EQUAL, ("refused", reason) or
("wrong", reason).
"""
import torch
from compare import alias_difference, differences, misplaced, widened, with_saved_types
from samples import LAYOUTS, Call, determined, in_layout, tensors

EQUAL = ("equal", "")


def wrong(text):
    return ("wrong", text[:300])


def refused(error):
    lines = str(error).splitlines()
    return ("refused", f"{type(error).__name__}: {lines[0] if lines else ''}"[:300])


def attempt(function):
    """(value, None), or (None, the exception)."""
    try:
        return function(), None
    except Exception as error:  # noqa: BLE001 - the verdict says so
        return None, error


def calls(op, dtype, gradients=False):
    for sample in op.sample_inputs("cpu", dtype, requires_grad=gradients):
        yield Call.of(sample, op), sample


# ---- forward ----


def judge_forward(op, call, values):
    """One call, npu against CPU: values, dtype, shape, device, and whether results are views."""
    cpu_args, _ = call.on("cpu")
    torch.manual_seed(0)
    cpu, error = attempt(lambda: op(cpu_args[0], *cpu_args[1], **cpu_args[2]))
    if error is not None:
        return None
    if values:
        again, error = attempt(lambda: call.run(op, "cpu", seed=1))
        values = error is None and differences(cpu, again) is None
    npu_args, _ = call.on("npu")
    torch.manual_seed(0)
    npu, error = attempt(lambda: op(npu_args[0], *npu_args[1], **npu_args[2]))
    if error is not None:
        return refused(error)
    if not call.needs_no_device() and misplaced(cpu, npu):
        return wrong(misplaced(cpu, npu))
    text = differences(cpu, with_saved_types(op.name, cpu, npu), values, lambda: attempt(lambda: widened(call).run(op, "cpu"))[0])
    text = text or alias_difference(cpu_args, cpu, npu_args, npu)
    return wrong(text) if text else EQUAL


def forward(op, dtype):
    values = determined(op)
    for call, _ in calls(op, dtype):
        yield judge_forward(op, call, values)


def layouts(op, dtype):
    """Arguments that start inside their storage, have gaps, or lie transposed."""
    values = determined(op)
    for call, _ in calls(op, dtype):
        for name in LAYOUTS:
            yield named(name, judge_forward(op, in_layout(call, name), values))


def named(name, outcome):
    return (outcome[0], f"{name}: {outcome[1]}") if outcome and outcome[1] else outcome


# ---- backward ----


def gradients_of(function, call, sample, device, turn, seed=0):
    """The gradients of every argument that wants one; the incoming gradients differ in layout from sample to sample."""
    (first, args, kwargs), wanted = call.on(device, gradients=True)
    torch.manual_seed(seed)
    out = function(first, *args, **kwargs)
    if sample.output_process_fn_grad is not None:
        out = sample.output_process_fn_grad(out)
    outputs = [t for t in tensors(out) if t.requires_grad]
    if not outputs or not wanted:
        return None
    incoming = [incoming_gradient(t, i, turn).to(device) for i, t in enumerate(outputs)]
    if turn % 3 == 1:
        incoming = [g.transpose(0, -1).contiguous().transpose(0, -1) if g.dim() > 1 else g for g in incoming]
    elif turn % 3 == 2:   # what sum() and mean() send back
        incoming = [g.reshape(-1)[:1].view([1] * g.dim()).expand(g.shape) if g.numel() else g for g in incoming]
    return torch.autograd.grad(outputs, wanted, incoming, allow_unused=True)


def incoming_gradient(t, i, turn):
    source = torch.Generator().manual_seed(100 * turn + i)
    real = torch.rand(t.shape, generator=source, dtype=torch.float64) + 0.5
    if not t.dtype.is_complex:
        return real.to(t.dtype)
    return torch.complex(real, torch.rand(t.shape, generator=source, dtype=torch.float64)).to(t.dtype)


def judge_backward(op, call, sample, turn, values):
    cpu, error = attempt(lambda: gradients_of(op, call, sample, "cpu", turn))
    if error is not None or cpu is None:
        return None
    if values:
        again, error = attempt(lambda: gradients_of(op, call, sample, "cpu", turn, seed=1))
        values = error is None and differences(cpu, again) is None
    npu, error = attempt(lambda: gradients_of(op, call, sample, "npu", turn))
    if error is not None:
        return refused(error)
    if npu is None:
        return wrong("no result wants a gradient, on the CPU one does")
    for i, (x, y) in enumerate(zip(cpu, npu)):
        if (x is None) != (y is None):
            return wrong(f"gradient {i} is {'missing' if y is None else 'not missing as on the CPU'}")
    if misplaced([g for g in cpu if g is not None], [g for g in npu if g is not None]):
        return wrong("a gradient is not on the npu")
    exact = lambda: attempt(lambda: gradients_of(op, widened(call), sample, "cpu", turn))[0]  # noqa: E731
    text = differences(list(cpu), list(npu), values, exact)
    return wrong(text) if text else EQUAL


def backward(op, dtype):
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        return
    values = determined(op)
    for turn, (call, sample) in enumerate(calls(op, dtype, gradients=True)):
        yield judge_backward(op, call, sample, turn, values)


def backward_layouts(op, dtype):
    if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
        return
    values = determined(op)
    for turn, (call, sample) in enumerate(calls(op, dtype, gradients=True)):
        for name in LAYOUTS:
            yield named(name, judge_backward(op, in_layout(call, name), sample, turn, values))


CHECKS = {"forward": forward, "layouts": layouts, "backward": backward, "backward_layouts": backward_layouts}
