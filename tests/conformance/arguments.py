"""Checks of op_db entries that write somewhere (out=, in place), and of unusual operands: no elements, broadcasting, mixed
types, and what PyTorch refuses."""
import warnings

import torch
from checks import EQUAL, attempt, calls, judge_forward, named, refused, wrong
from compare import differences, widened
from samples import LAYOUTS, SENTINEL, Call, determined, every_second, in_layout, leaves, offset, placed, strided, \
    transposed, whole_storage


def settled(call, op):
    """The call on the npu, or what it raised; a kernel's bad index is raised by the next wait."""
    def run():
        result = call.run(op, "npu")
        torch.npu.synchronize()
        return result

    return attempt(run)


def complains_about_support(error):
    """The CPU lacks a kernel, which says nothing about what the npu should do."""
    text = str(error)
    return any(word in text for word in ("not implemented for", "not supported", "only supports", "Could not run"))


# ---- out= ----


def out_targets(result):
    """Tensors that `result` can be written to: name -> (target, needs resizing)."""
    def marked(t):
        return t.fill_(True if t.dtype == torch.bool else SENTINEL)

    yield "empty out", torch.empty(0, dtype=result.dtype)
    yield "out", marked(torch.empty(result.shape, dtype=result.dtype))
    if result.numel():
        yield "offset out", marked(offset(result))
        yield "out with gaps", marked(every_second(result))
        yield "transposed out", marked(transposed(result))


def write_out(op, call, targets, device):
    """(the call's targets afterwards, whether it returned them)."""
    (first, args, kwargs), _ = call.on(device)
    moved = [placed(t, device) for t in targets]
    pointers = [t.untyped_storage()._cdata for t in moved]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        back = op(first, *args, **kwargs, out=moved[0] if len(moved) == 1 else tuple(moved))
    same = [t.untyped_storage()._cdata for t in leaves(back)] == pointers
    return moved, same


def out(op, dtype):
    if not op.supports_out:
        return
    values = determined(op)
    for call, _ in calls(op, dtype):
        expected, error = attempt(lambda: call.run(op, "cpu"))
        results = leaves(expected)
        if error is not None or not results or not all(strided(r) for r in results):
            continue
        compare_values = values
        if values:
            again, error = attempt(lambda: call.run(op, "cpu", seed=1))
            compare_values = error is None and differences(expected, again) is None
        for variants in zip(*(out_targets(r) for r in results)):
            name, targets = variants[0][0], [target for _, target in variants]
            yield named(name, judge_out(op, call, targets, results, compare_values))


def judge_out(op, call, targets, expected, values):
    cpu, error = attempt(lambda: write_out(op, call, targets, "cpu"))
    npu, npu_error = attempt(lambda: write_out(op, call, targets, "npu"))
    if error is not None:
        return None
    if npu_error is not None:
        return refused(npu_error)
    if not npu[1] and cpu[1]:
        return wrong("the call returned something else than out")
    exact = lambda: attempt(lambda: leaves(widened(call).run(op, "cpu")))[0]  # noqa: E731
    text = differences(expected, npu[0], values, exact)
    if text and not differences(cpu[0], npu[0], values, exact):
        text = None   # the CPU's own out= differs from its functional form, and the npu's agrees with it
    text = text or beside(cpu[0], npu[0], targets)
    return wrong(text) if text else EQUAL


def beside(cpu, npu, before=None):
    """None, or that elements of a storage outside the tensor that was written to have changed, other than on the CPU.
    before: the tensors as they were; some of the CPU's kernels write beside a tensor with gaps where ours do not."""
    for x, y, old in zip(cpu, npu, before or cpu):
        if x.is_conj() or x.is_neg() or x.stride() != y.stride():
            continue
        a, b = whole_storage(x), whole_storage(y).cpu()
        if a.numel() != b.numel() or a.numel() == x.numel():
            continue
        inside = torch.zeros(a.numel(), dtype=torch.bool).as_strided(x.size(), x.stride(), x.storage_offset())
        outside = ~whole_storage(inside.fill_(True))
        if before and old.stride() == y.stride() and torch.equal(whole_storage(old)[outside], b[outside]):
            continue
        if not torch.equal(a[outside], b[outside]) and not bool((a[outside] != a[outside]).any()):
            return "elements beside the tensor were overwritten"
    return None


# ---- in place ----


def inplace(op, dtype):
    function = op.get_inplace()
    if not function:
        return
    values = determined(op)
    for call, sample in calls(op, dtype):
        if sample.broadcasts_input or not strided(call.tree[0]):
            continue
        for name in ["plain", *LAYOUTS]:
            laid = call if name == "plain" else in_layout(call, name)
            yield named(name, judge_inplace(function, laid, values))


def judge_inplace(function, call, values):
    def changed(device, seed=0, tree=None):
        (first, args, kwargs), _ = (tree or call).on(device)
        torch.manual_seed(seed)
        back = function(first, *args, **kwargs)
        return first, back is first

    cpu, error = attempt(lambda: changed("cpu"))
    npu, npu_error = attempt(lambda: changed("npu"))
    if error is not None:
        if npu_error is None and not complains_about_support(error):
            return wrong(f"accepted, the CPU says: {str(error).splitlines()[0]}")
        return None
    if npu_error is not None:
        return refused(npu_error)
    if values:
        again, error = attempt(lambda: changed("cpu", seed=1))
        values = error is None and differences(cpu[0], again[0]) is None
    if cpu[1] != npu[1]:
        return wrong("the call did not return its first argument")
    exact = lambda: attempt(lambda: [changed("cpu", tree=widened(call))[0]])[0]  # noqa: E731
    text = differences([cpu[0]], [npu[0]], values, exact) or beside([cpu[0]], [npu[0]])
    return wrong(text) if text else EQUAL


# ---- operands ----


def same_refusal(op, call, values):
    """judge_forward, but a call that the CPU refuses must be refused by the npu too."""
    outcome = judge_forward(op, call, values)
    if outcome is not None and outcome[0] == "wrong" and meta_agrees(op, call):
        return EQUAL
    if outcome is not None:
        return outcome
    _, error = attempt(lambda: call.run(op, "cpu"))
    if error is None or complains_about_support(error):
        return None
    npu, npu_error = settled(call, op)
    if npu_error is None and any(strided(t) and t.numel() for t in leaves(npu)):   # an empty answer says nothing false
        return wrong(f"accepted, the CPU says: {str(error).splitlines()[0]}")
    return None


def meta_agrees(op, call):
    """Some of the CPU's kernels hand an empty argument back as it is: PyTorch's own shapes are those of the meta device."""
    npu, error = settled(call, op)
    meta, meta_error = attempt(lambda: call.run(op, "meta"))
    if error is not None or meta_error is not None:
        return False
    shapes = [[tuple(t.shape) for t in leaves(r) if isinstance(t, torch.Tensor)] for r in (npu, meta)]
    return shapes[0] == shapes[1] and all(t.numel() == 0 for t in leaves(npu) if isinstance(t, torch.Tensor))


# Of tensors without elements. lu_unpack: nobody checks how many pivots there are, and the CPU may crash.
# multilabel_margin_loss: the sum or mean over no rows is whatever the memory of the result held.
CPU_READS_UNSET_MEMORY = {"lu_unpack", "nn.functional.multilabel_margin_loss"}


def zero(op, dtype):
    """Tensors without elements: each dimension of the first tensor in turn, and of all others that are as long there."""
    if op.name in CPU_READS_UNSET_MEMORY:
        return
    values = determined(op)
    for call, _ in calls(op, dtype):
        first = next((t for t in leaves(call.tree) if strided(t)), None)
        if first is None:
            continue
        for dim in range(min(first.dim(), 4)):
            length = first.size(dim)

            def cut(t, dim=dim, length=length):
                return t.narrow(dim, 0, 0).contiguous() if t.dim() > dim and t.size(dim) == length else t

            yield named(f"size 0 in dimension {dim}", same_refusal(op, call.mapped(cut), values))
        if first.dim():
            yield named("only the first empty", same_refusal(op, only_first(call, first), values))


def only_first(call, first):
    return call.mapped(lambda t: t.narrow(0, 0, 0).contiguous() if t is first else t)


def broadcast(op, dtype):
    """Operands of size 1, of fewer dimensions, or expanded where the other is whole."""
    if "batch_norm" in op.name or op.name in NOT_BROADCAST:
        return
    values = determined(op)
    for call, _ in calls(op, dtype):
        found = [t for t in leaves(call.tree) if strided(t) and t.dim() > 0 and t.numel() > 1]
        if len(found) < 2:
            continue
        for turn, chosen in enumerate(found[:3]):
            for name, change in SMALLER.items():
                smaller = call.mapped(lambda t: change(t) if t is chosen else t)
                yield named(f"operand {turn} {name}", judge_forward(op, smaller, values))


# PyTorch does not check the sizes of batch norm's statistics nor of lu_unpack's pivots: the CPU itself reads and writes past
# their end, and may crash. Equal rows leave principal directions open: any is right.
NOT_BROADCAST = {"lu_unpack", "pca_lowrank", "svd_lowrank"}

SMALLER = {
    "of size 1 in the last dimension": lambda t: t.narrow(-1, 0, 1),
    "of size 1 in the first dimension": lambda t: t.narrow(0, 0, 1),
    "without the first dimension": lambda t: t[0],
    "expanded in the first dimension": lambda t: t.narrow(0, 0, 1).expand(t.shape),
    "as a 0-dimensional tensor": lambda t: t.reshape(-1)[0],
}

MIXED = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def promotion(op, dtype):
    """Operands of two types, tensors and numbers."""
    values = determined(op)
    for call, _ in calls(op, dtype):
        found = [t for t in leaves(call.tree) if strided(t)]
        if len(found) < 2:
            continue
        for other in MIXED:
            if other == dtype:
                continue
            mixed = call.mapped(lambda t: t if t is found[0] else t.to(other))
            yield named(f"with {other}", judge_forward(op, mixed, values))
            zero_dim = call.mapped(lambda t: t if t is found[0] else t.to(other).reshape(-1)[:1].sum(dtype=other))
            yield named(f"with a 0-dimensional {other}", judge_forward(op, zero_dim, values))
        if len(call.tree[1]) and strided(call.tree[1][0]):
            for number in (2, 0.5, True):
                with_number = Call(call.tree[0], (number, *call.tree[1][1:]), call.tree[2])
                yield named(f"with the number {number}", judge_forward(op, with_number, values))


# ---- what PyTorch refuses ----


def errors(op, dtype):
    """Calls that must raise: the database's own list of bad arguments."""
    if op.error_inputs_func is None or dtype != torch.float32:
        return
    for bad in op.error_inputs("cpu"):
        call = Call.of(bad.sample_input, op)
        _, error = attempt(lambda: call.run(op, "cpu"))
        if error is None:
            yield None
            continue
        npu, npu_error = settled(call, op)
        if npu_error is None:
            yield wrong(f"accepted; the CPU says {type(error).__name__}: {str(error).splitlines()[0]}")
        elif "Could not run 'aten::" in str(npu_error):
            yield refused(npu_error)
        else:
            yield EQUAL


CHECKS = {"out": out, "inplace": inplace, "zero": zero, "broadcast": broadcast, "promotion": promotion, "errors": errors}
