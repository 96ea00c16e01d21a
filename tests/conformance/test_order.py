"""topk with OpenCL alone, on heaps and by sorting, in one piece and many: the first of a stable sort on the CPU, in all dtypes."""
import json

import pytest
from support import good

PROGRAM = """
    import json, torch
    source = torch.Generator().manual_seed(5)
    DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

    def values(shape, dtype, nan):
        # few different ones: most have equals
        x = torch.randint(0, 120, shape, generator=source).sub(0 if dtype == torch.uint8 else 60).to(dtype)
        if nan and dtype.is_floating_point:
            flat = x.view(-1)
            flat[::7], flat[3::11], flat[5::13] = float("nan"), float("inf"), -float("inf")
        return x

    def layouts(x):
        yield x
        yield x.t().contiguous().t()
        yield torch.stack([x, x], -1)[..., 1]

    def placed(t):
        flat = torch.empty(0, dtype=t.dtype).set_(t.untyped_storage())
        return flat.npu().as_strided(t.size(), t.stride(), t.storage_offset())

    bad, calls = [], 0
    for dtype in DTYPES:
        for shape, ks in (((3, 200), (1, 7, 50, 51, 200)), ((2, 40_000), (1, 33)), ((1, 9_000), (700,)), ((70, 64), (16,))):
            for nan in (False, True):
                for t in layouts(values(shape, dtype, nan)):
                    for k in ks:
                        for largest in (False, True):
                            want, order = t.sort(dim=1, descending=largest, stable=True)
                            got, places = placed(t).topk(k, 1, largest)
                            calls += 1
                            if not (torch.equal(places.cpu(), order[:, :k]) and torch.equal(got.cpu().nan_to_num(9.5), want[:, :k].nan_to_num(9.5))):
                                bad.append([str(dtype), list(shape), nan, list(t.stride()), k, largest])
    a = torch.arange(1000.0)
    for x in (a, a.flip(0), torch.zeros(1000)):      # every value goes into the heap, or none
        v, i = x.npu().topk(9)
        w, j = x.sort(descending=True, stable=True)
        if not torch.equal(v.cpu(), w[:9]) or not torch.equal(i.cpu(), j[:9]): bad.append(x.tolist()[:3])
    empty = [list(torch.empty(s, device="npu").topk(k, d).values.shape) for s, k, d in (((0,), 0, 0), ((3, 0), 0, 1), ((0, 50), 5, 1), ((4, 60), 0, 1))]
    number = [t.item() for t in torch.tensor(4.5, device="npu").topk(1, 0)]
    x, v, i = torch.rand(300, generator=source), torch.empty(0, device="npu"), torch.empty(0, dtype=torch.long, device="npu")
    torch.topk(x.npu(), 4, out=(v, i))
    kernels = {kernel for op, kernel, n, launches in torch.flagos._C.kernel_log() if op.startswith("aten::topk")}
    print(json.dumps([bad[:5], calls, empty, number, torch.equal(v.cpu(), x.topk(4).values), sorted(kernels)]))
"""


@pytest.mark.parametrize("env", [{}, {"FLAGOS_SHARED_MEMORY": "0"}], ids=["shared", "discrete"])
def test_topk_is_the_head_of_a_stable_sort(env):
    bad, calls, empty, number, written, kernels = json.loads(good(PROGRAM, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid", **env))
    assert bad == [] and calls > 900
    assert empty == [[0], [3, 0], [0, 5], [4, 0]] and number == [4.5, 0] and written
    assert kernels and all(k.startswith("opencl.") for k in kernels)
