"""Sorting and what is built on it, in all dtypes, for short rows, long ones and those that are cut into pieces: every bit and
every place as on the CPU. Plain functions as in tensors.py; test_tensors.py runs them."""
import torch

D = "npu:0"
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
# Sizes around what changes the way: merges up to 128, pieces from 16384 on.
SHAPES = [((1,), 0), ((128,), 0), ((129,), 0), ((40000,), 0), ((3, 30000), 1), ((30000, 2), 0), ((40, 300), 1), ((300, 40), 0), ((900, 5), 1), ((), 0)]


def values(dtype, shape, few):
    """Any values of the dtype, or few that repeat, for floats with NaN, infinities and both zeros."""
    if dtype == torch.bool:
        return torch.rand(shape) < 0.5
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.randint(-3 if dtype.is_signed else 0, 4, shape, dtype=dtype) if few else torch.randint(info.min, info.max, shape, dtype=dtype)
    if not few:
        return torch.randn(shape).to(dtype)
    special = torch.tensor([float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 1.5, -1.5, 2.0])
    return special[torch.randint(0, 8, shape)].to(dtype)


def same(here, there, what):
    there = there.cpu()
    assert here.dtype == there.dtype and here.shape == there.shape, f"{what}: {there.dtype}{list(there.shape)} instead of {here.dtype}{list(here.shape)}"
    assert bool(((here == there) | ((here != here) & (there != there))).all()), f"{what}: {there} instead of {here}"
    if here.is_floating_point():
        number = here == here
        assert torch.equal(here[number].signbit(), there[number].signbit()), f"{what}: signs of zeros"


def each(dtypes, few=(False, True)):
    for dtype in dtypes:
        for shape, dim in SHAPES:
            for some in few:
                x = values(dtype, shape, some)
                yield x, x.to(D), dim, f"{dtype} {shape} along {dim}{', few' if some else ''}"


def sorts_are_stable_and_keep_bits():
    for x, y, dim, what in each([*FLOATS, *WHOLE, torch.bool]):
        for down in (False, True):
            want, got = (t.sort(dim=dim, stable=True, descending=down) for t in (x, y))
            same(want.indices, got.indices, f"places of {what}, down: {down}")
            same(want.values, got.values, f"values of {what}, down: {down}")


def a_cut_row_and_a_whole_one_are_ordered_alike():
    """The same row by itself (in pieces) and among many (by one work-item)."""
    row = torch.randint(-9, 9, (20000,)).to(D)
    for a, b in zip(row.sort(stable=True), row.expand(40, -1).sort(dim=1, stable=True), strict=True):
        assert torch.equal(a.cpu(), b[7].cpu())


def sorting_into_given_tensors_and_views():
    x = values(torch.float32, (40, 300), True)
    there, here = x.to(D).t(), x.t()
    for dim in (0, 1):
        same(here.sort(dim=dim, stable=True).indices, there.sort(dim=dim, stable=True).indices, f"transposed along {dim}")
    out = torch.zeros(300, 80, device=D)[:, ::2], torch.zeros(300, 40, dtype=torch.int64, device=D)
    torch.sort(there, dim=0, stable=True, out=out)
    same(here.sort(dim=0, stable=True).values, out[0], "into every second column")
    same(x[:, ::3].sort(dim=1, stable=True).values, x.to(D)[:, ::3].sort(dim=1, stable=True).values, "every third column")
    same(x.sort(dim=1, stable=True).values[:, :200], x.to(D).topk(200, 1, largest=False).values, "most of a row by topk")


def one_of_a_row_and_its_place():
    """Places are those of a stable sort; the CPU's are any of equal values."""
    for x, y, dim, what in each([*FLOATS, *WHOLE]):
        length = x.size(dim) if x.dim() else 1
        order = x.sort(dim=dim, stable=True)
        for k in {1, (length + 1) // 2, length}:
            got = y.kthvalue(k, dim)
            same(x.kthvalue(k, dim).values + 0, got.values + 0, f"{k}-th of {what}")
            same(order.indices.select(dim, k - 1) if x.dim() else order.indices, got.indices, f"place of the {k}-th of {what}")
        for name in ("median", "nanmedian"):
            want, got = (getattr(t, name)(dim, keepdim=x.dim() > 0) for t in (x, y))
            same(want.values + 0, got.values + 0, f"{name} of {what}")
            same(x.gather(dim, got.indices.cpu()), got.values, f"what stands at the {name} of {what}")
            same(getattr(x, name)() + 0, getattr(y, name)() + 0, f"{name} of all of {what}")
    ties = torch.tensor([3, 1, 3, 1, 3, 1, 2])
    assert ties.to(D).median(0).indices.item() == 6 and ties.to(D).kthvalue(3).indices.item() == 5


def the_most_frequent_of_a_row():
    for x, _, dim, what in each([*FLOATS, *WHOLE]):
        x = x.nan_to_num(7.0) if x.is_floating_point() else x
        y = x.to(D)
        want, got = x.mode(dim, keepdim=x.dim() > 0), y.mode(dim, keepdim=x.dim() > 0)
        same(want.values + 0, got.values + 0, f"mode of {what}")
        same(x.gather(dim, got.indices.cpu()), got.values, f"what stands at the mode of {what}")
    nan = float("nan")
    for data, mode in (([nan, nan, nan, 2.0, 2.0], 2.0), ([5.0, -0.0, nan, 0.0], 0.0), ([4.0, 3.0], 3.0)):
        assert torch.tensor(data, device=D).mode().values.item() == mode, data


def sets_and_runs():
    for x, y, _, what in each([*FLOATS, *WHOLE, torch.bool]):
        for three in ((True, True), (True, False), (False, True), (False, False)):
            options = dict(zip(("return_inverse", "return_counts"), three, strict=True))
            for name in ("unique", "unique_consecutive"):
                if name == "unique" and x.is_floating_point() and bool(x.isnan().any()):
                    continue   # where each of several NaN goes is any one's guess
                want, got = (getattr(t, name)(**options) for t in (x, y))
                for i, (a, b) in enumerate(zip(want, got, strict=True) if any(three) else [(want, got)]):
                    same(a + 0 if a.is_floating_point() else a, b + 0 if b.is_floating_point() else b, f"{name} {three}, result {i}, of {what}")
    few = torch.tensor([1.0, 1.0, float("nan"), float("nan"), 0.0, -0.0])
    assert few.to(D).unique_consecutive(return_counts=True)[1].tolist() == [2, 1, 1, 2]


CHECKS = [f for name, f in list(globals().items())
          if callable(f) and getattr(f, "__module__", "") == __name__ and name not in ("values", "same", "each")]


if __name__ == "__main__":
    import sys

    from tensors import main

    sys.exit(main(sys.argv[1:], CHECKS))
