"""Writes by indices, in every shape that changes how kernels walk: rows, columns, middle dimensions, views with gaps, indices
that broadcast and repeat. Plain functions as in tensors.py; test_tensors.py runs them."""
import itertools
import os

import torch

D = "npu:0"
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int16, torch.uint8, torch.bool]


def numbers(shape, dtype):
    """Small whole numbers: their sums are exact in every order and dtype."""
    return torch.randint(0, 3, shape).to(dtype)


def same(function, *inputs, what):
    want, got = function(*(t.clone() for t in inputs)), function(*(t.to(D) for t in inputs)).cpu()
    assert torch.equal(want, got), f"{what}: {got} instead of {want}"


def layouts(t):
    """The same sizes as a plain tensor, in a wider one, and with the dimensions stored backwards."""
    wide = torch.zeros([*t.shape[:-1], t.size(-1) * 2 + 1], dtype=t.dtype)
    order = list(range(t.dim()))[::-1]
    yield "plain", lambda x: x
    yield "with gaps", lambda x: wide.to(x.device).clone()[..., 1::2].copy_(x)
    yield "backwards", lambda x: x.permute(order).contiguous().permute(order)


def scatters_along_every_dimension():
    for dtype, (shape, count), dim in itertools.product(DTYPES, (((300, 5), 40), ((4, 30, 7), 9), ((600,), 900)), (0, 1, -1)):
        if dim >= len(shape):
            continue
        sizes = [n if d == dim % len(shape) else s for d, (s, n) in enumerate(zip(shape, [count] * len(shape), strict=True))]
        x, src, index = numbers(shape, dtype), numbers(sizes, dtype), torch.randint(0, shape[dim], sizes)
        vector = torch.randint(0, shape[dim], (count,))
        for name, view in layouts(x):
            what = f"{dtype} {shape} along {dim}, {name}"
            if dtype != torch.bool:
                same(lambda a, i, s, v=view, d=dim: v(a).scatter_add_(d, i, s), x, index, src, what="scatter_add " + what)
                same(lambda a, i, s, v=view, d=dim: v(a).index_add_(d, i, v(s) if s.shape == a.shape else s), x, vector, src, what="index_add " + what)
                same(lambda a, i, s, v=view, d=dim: v(a).scatter_reduce_(d, i, s, "amax"), x, index, src, what="amax " + what)
            once = torch.randperm(shape[dim])[:count]
            part = src.narrow(dim, 0, once.numel())
            same(lambda a, i, s, v=view, d=dim: v(a).index_copy_(d, i, s), x, once, part, what="index_copy " + what)
            places = once.view([-1 if d == dim % len(shape) else 1 for d in range(len(shape))]).expand_as(part)
            same(lambda a, i, s, v=view, d=dim: v(a).scatter_(d, i, s), x, places, part, what="scatter " + what)


def index_put_in_every_place():
    x = numbers((6, 5, 4, 33), torch.int64)
    i, j = torch.tensor([[0], [2], [5], [0]]), torch.tensor([[1, 3, 1], [4, 0, 0], [2, -1, 2], [1, 3, 1]])
    cases = {
        "rows": (i[:, 0],), "rows, twice": (i,), "two": (i, j), "two apart": (i, slice(None), j % 4), "in the middle": (slice(None), j),
        "in the middle, two": (slice(None), j, (j % 4)), "the last": (slice(None), slice(None), slice(None), j + 5),
        "the last two": (slice(None), slice(None), i % 4, j + 7), "all": (i, j, j % 4, j + 9),
        "one place": (torch.tensor(2),), "none": (torch.tensor([], dtype=torch.int64),),
    }
    for dtype in DTYPES:
        for (name, at), accumulate in itertools.product(cases.items(), (False, True)):
            if accumulate and dtype == torch.bool:
                continue
            shape = x[at].shape
            for layout, view in layouts(x.to(dtype)):
                for values in (numbers(shape, dtype), numbers(shape[-1:], dtype), numbers((), dtype)):
                    if not accumulate and values.dim():   # repeated places: which value stays is the CPU's own order
                        values = values.flatten()[:1].squeeze() if values.numel() else values
                    def write(a, v, *k, view=view, at=at, accumulate=accumulate):
                        rest = iter(k)
                        put = [None if isinstance(w, slice) else next(rest) for w in at]
                        target = view(a)
                        return torch.ops.aten.index_put_(target, put, v, accumulate)
                    tensors = [k for k in at if not isinstance(k, slice)]
                    same(write, x.to(dtype), values, *tensors, what=f"{dtype} {name}, {layout}, accumulate: {accumulate}, values {list(values.shape)}")


def the_last_of_repeated_places_stays():
    x, at = torch.zeros(3, 40), torch.tensor([1, 2, 1, 1])
    values = torch.arange(160.0).view(4, 40)
    for got in (x.to(D).index_put_((at.to(D),), values.to(D)), x.to(D).index_copy_(0, at.to(D), values.to(D)),
                x.to(D).scatter_(0, at.to(D)[:, None].expand(4, 40), values.to(D))):
        assert torch.equal(got.cpu(), torch.stack([x[0], values[3], values[1]]))


def gradients_of_embeddings():
    at = torch.randint(0, 20, (7, 30))
    for dtype, size, options in itertools.product((torch.float32, torch.bfloat16), (1, 17, 64), ({}, {"padding_idx": 3}, {"scale_grad_by_freq": True})):
        grad = numbers((7, 30, size), dtype)

        def run(device, grad=grad, options=options, size=size, dtype=dtype):
            weight = torch.zeros(20, size, dtype=dtype).to(device).requires_grad_()
            torch.nn.functional.embedding(at.to(device), weight, **options).backward(grad.to(device))
            return weight.grad.cpu()

        torch.testing.assert_close(run(D), run("cpu"), msg=lambda m, d=dtype, s=size, o=options: f"{d} {s} {o}: {m}")


def indices_that_lie_on_the_cpu():
    """Loaders and permutations give such; a list of numbers becomes one. The same kernel takes them as takes those of the device."""
    x = torch.arange(60.0).view(5, 12)
    i, j, mask = torch.tensor([4, 0, -1]), torch.tensor([1, 2, 3]), torch.tensor([True, False, True, True, False])
    reads = [lambda t: t[i], lambda t: t[:, i], lambda t: t[i, j], lambda t: t[mask], lambda t: t[[0, 1]], lambda t: t[[0, 1], [2, 3]], lambda t: t[mask][:, i],
             lambda t: t[i.to(t.device), j], lambda t: t[i, j.to(t.device)], lambda t: t[i.int()], lambda t: t[torch.tensor(2)], lambda t: t[None, i],
             lambda t: t[i[None], :, None], lambda t: t[torch.tensor([], dtype=torch.int64)], lambda t: t[mask, 3]]

    def written(t):
        t[i] = 9.0
        t[mask, 1] = 4.0
        t[torch.tensor([0, 0]), [1, 2]] += 1
        t.index_put_((torch.tensor([1, 1]),), torch.tensor(2.0).to(t.device), accumulate=True)
        return t

    calls = lambda: {r["kernel"]: r["calls"] for r in torch.flagos._C.route_counts() if r["op"] in ("aten::index.Tensor_out", "aten::_index_put_impl_")}  # noqa: E731
    npu, before = x.to(D), calls()
    for number, f in enumerate([*reads, written]):
        for _ in range(2):
            same(f, x, what=f"{number}")
    if os.environ.get("FLAGOS_ROUTE") == "opencl":
        assert calls() != before and calls().get("host.aten", 0) == before.get("host.aten", 0), (before, calls())
    leaf, there = x.clone().requires_grad_(), x.to(D).requires_grad_()
    for t in (leaf, there):
        t[i].pow(2).sum().backward()
    assert torch.equal(there.grad.cpu(), leaf.grad)
    for wrong in (torch.tensor([5]), torch.tensor([-6])):
        try:
            npu[wrong].cpu()
        except (IndexError, RuntimeError) as error:
            assert f"index {wrong.item()} is out of bounds" in str(error) and "size 5" in str(error), error
        else:
            raise AssertionError(f"{wrong} was taken")
    assert (npu + 1).sum().item() == 1830.0


CHECKS = [f for name, f in list(globals().items())
          if callable(f) and getattr(f, "__module__", "") == __name__ and name not in ("numbers", "same", "layouts")]


if __name__ == "__main__":
    import sys

    from tensors import main

    sys.exit(main(sys.argv[1:], CHECKS))
