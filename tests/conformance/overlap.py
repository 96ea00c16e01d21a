"""Writes that overlap what they read, or themselves: what the CPU refuses must be refused, in its own words; an `out` that is
an argument itself must hold the answer wherever it does so on the CPU."""
import torch
from checks import EQUAL, attempt, calls, refused, wrong
from compare import differences, widened
from samples import SENTINEL, determined, leaves, strided
from torch.utils._pytree import tree_map


def replaced(tree, number, tensor):
    """The tree with its number-th strided tensor replaced."""
    seen = [-1]

    def one(x):
        if not strided(x):
            return x
        seen[0] += 1
        return tensor if seen[0] == number else x

    return tree_map(one, tree)


def shifted(t):
    """A copy of t, and a tensor of its size that starts one element later in the same memory."""
    memory = torch.full((t.numel() + 1,), True if t.dtype == torch.bool else SENTINEL, dtype=t.dtype, device=t.device)
    first, second = memory[:-1].view(t.shape), memory[1:].view(t.shape)
    first.copy_(t)
    return first, second


def spread(t):
    """A tensor of t's size whose elements of the first long dimension are one and the same, or None."""
    for dim in range(t.dim()):
        if t.size(dim) > 1 and t.numel():
            return t.narrow(dim, 0, 1).clone().expand(t.shape)
    return None


def outcome(cpu, npu, compare):
    """Each (value, error). compare(): the outcome of two accepted calls."""
    if cpu[1] is not None:
        if npu[1] is None:
            return wrong(f"accepted, the CPU says: {str(cpu[1]).splitlines()[0]}")
        words = str(cpu[1]).splitlines()[0][:40]
        overlap = "memory location" in words or "overlap" in str(cpu[1])
        return wrong(f"says {str(npu[1]).splitlines()[0]!r} instead of {words!r}") if overlap and words not in str(npu[1]) else EQUAL
    return refused(npu[1]) if npu[1] is not None else compare()


# ---- out= ----


def into_spread(op, call, result, device):
    """out is one element, seen in the result's size. There is memory behind it: some of the CPU's kernels look at no strides."""
    (first, args, kwargs), _ = call.on(device)
    memory = torch.zeros(result.numel(), dtype=result.dtype, device=device)
    op(first, *args, **kwargs, out=memory.as_strided(result.shape, [0] * result.dim()))


def into_argument(op, call, number, device, shift):
    """out is the number-th tensor of the call, or lies one element beside it."""
    tree, _ = call.on(device)
    target = [x for x in leaves(tree) if strided(x)][number]
    source, out = shifted(target) if shift else (target.clone(),) * 2
    first, args, kwargs = replaced(tree, number, source)
    op(first, *args, **kwargs, out=out)
    return out


def out_overlap(op, dtype):
    if not op.supports_out:
        return
    values = determined(op)
    for call, _ in calls(op, dtype):
        expected, error = attempt(lambda: call.run(op, "cpu"))
        results = leaves(expected)
        if error is not None or len(results) != 1 or not strided(results[0]) or not results[0].numel():
            continue
        result = results[0]
        if result.numel() > 1:
            both = [attempt(lambda: into_spread(op, call, result, d)) for d in ("cpu", "npu")]
            yield outcome(*both, lambda: EQUAL)   # what it holds afterwards is undefined
        tensors = [x for x in leaves(call.tree) if strided(x)]
        for number, t in enumerate(tensors):
            if t.shape != result.shape or t.dtype != result.dtype or t.is_conj() or t.is_neg():
                continue
            if result.numel() > 1:
                both = [attempt(lambda: into_argument(op, call, number, d, True)) for d in ("cpu", "npu")]
                yield outcome(*both, lambda: EQUAL)
            cpu, npu = [attempt(lambda: into_argument(op, call, number, d, False)) for d in ("cpu", "npu")]
            yield outcome(cpu, npu, lambda: itself(op, call, result, cpu[0], npu[0], values))


def itself(op, call, expected, cpu, npu, values):
    if not values or differences(expected, cpu) is not None:
        return EQUAL   # random, or the CPU itself reads what it has overwritten
    text = differences(expected, npu, True, lambda: attempt(lambda: leaves(widened(call).run(op, "cpu")))[0])
    return wrong(f"out is an argument: {text}") if text else EQUAL


# ---- in place ----


def in_place_overlap(op, dtype):
    function = op.get_inplace()
    if not function:
        return

    def spread_self(call, device):
        tree, _ = call.on(device)
        return function(spread(tree[0]), *tree[1], **tree[2])

    def beside(call, device, number):
        tree, _ = call.on(device)
        operand = [x for x in leaves(tree) if strided(x)][number]
        source, target = shifted(operand)
        target.fill_(1)
        source.copy_(operand)
        _, args, kwargs = replaced(tree, number, source)
        return function(target, *args, **kwargs)

    for call, sample in calls(op, dtype):
        first = call.tree[0]
        if sample.broadcasts_input or not strided(first) or first.is_conj() or first.is_neg():
            continue
        if spread(first) is not None:
            yield outcome(*[attempt(lambda: spread_self(call, d)) for d in ("cpu", "npu")], lambda: EQUAL)
        for number, t in enumerate([x for x in leaves(call.tree) if strided(x)]):
            if number and t.shape == first.shape and t.dtype == first.dtype and t.numel() > 1:
                yield outcome(*[attempt(lambda: beside(call, d, number)) for d in ("cpu", "npu")], lambda: EQUAL)


def overlap(op, dtype):
    yield from out_overlap(op, dtype)
    yield from in_place_overlap(op, dtype)


CHECKS = {"overlap": overlap}
