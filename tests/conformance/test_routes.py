"""What ran where: routes are counted, fallbacks are counted, warned about or refused."""
import json

import pytest
from support import good, python

# An operator that has no OpenCL kernel and is not likely to get one.
RARE = "torch.linalg.svd(torch.ones(3, 3, device='npu'))"


def test_a_call_is_counted_once_for_its_line_and_kernel():
    code = f"""
        import torch, json
        x = torch.ones(8, 8, device="npu")
        for _ in range(5):
            y = torch.mm(x, x)
        rows = [r for r in torch.flagos._C.route_counts() if r["op"].startswith("aten::mm")]
        print(json.dumps([[r["kernel"], r["calls"]] for r in rows]))
    """
    rows = json.loads(good(code, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid"))
    assert sum(calls for _, calls in rows) == 5
    assert all(kernel.startswith("opencl.gemm.") for kernel, _ in rows)


def test_the_host_is_asked_first_when_told_so():
    code = """
        import torch, json
        x = torch.ones(8, 8, device="npu")
        torch.mm(x, x)
        print(json.dumps([r["kernel"] for r in torch.flagos._C.route_counts() if r["op"].startswith("aten::mm")]))
    """
    assert json.loads(good(code, FLAGOS_ROUTE="host")) == ["host.aten"]


def test_an_index_out_of_range_raises_as_on_the_cpu():
    # Whole numbers have no NaN: a kernel's answer to a bad index would look like data.
    out = good("""
        import torch
        a = torch.arange(4, device="npu"); bad = torch.tensor([9], device="npu")
        calls = [lambda: a[bad], lambda: torch.gather(a, 0, bad), lambda: a.index_select(0, bad),
                 lambda: a.clone().index_put((bad,), torch.tensor([5], device="npu")),
                 lambda: torch.zeros(4, device="npu").scatter(0, bad, torch.ones(1, device="npu")),
                 lambda: torch.ones(1, 4, device="npu").index_add(-1, bad, torch.ones(1, 1, device="npu")),
                 lambda: torch.nn.functional.embedding(bad, torch.ones(4, 2, device="npu"))]
        for call in calls:
            try:
                print("answered", call())
            except (IndexError, RuntimeError) as error:
                print("index 9 is out of bounds" in str(error) and "size 4" in str(error))
        print(a[torch.tensor([-1, 2], device="npu")].tolist())
    """)
    assert out == "True\n" * 7 + "[3, 2]\n"


@pytest.mark.parametrize("shared", ["1", "0"])
def test_a_kernel_that_meets_a_bad_index_fails_the_next_wait_and_names_it(shared):
    out = good("""
        import torch
        F = torch.nn.functional
        a = torch.arange(4., device="npu"); bad = torch.tensor([1, 9], device="npu"); one = torch.ones(2, device="npu")
        calls = [lambda: a[bad], lambda: torch.gather(a, 0, bad), lambda: a.index_select(0, bad), lambda: a.take(bad),
                 lambda: a.clone().index_put((bad,), one), lambda: a.clone().index_put((bad,), one, accumulate=True),
                 lambda: torch.zeros(4, device="npu").scatter(0, bad, one), lambda: a.scatter_add(0, bad, one),
                 lambda: a.scatter_reduce(0, bad, one, "amax"), lambda: a.index_add(0, bad, one),
                 lambda: a.index_copy(0, bad, one), lambda: a.clone().index_fill_(0, bad, 2.),
                 lambda: F.embedding(bad, torch.ones(4, 2, device="npu")),
                 lambda: F.cross_entropy(torch.ones(2, 4, device="npu"), bad),
                 lambda: F.nll_loss(torch.ones(2, 4, device="npu"), bad, reduction="none")]
        for call in calls:
            try:
                result = call()
                torch.npu.synchronize()
                print("answered", result)
            except (IndexError, RuntimeError) as error:
                print("9" in str(error) and "size 4" in str(error), (a + 1).tolist() == [1, 2, 3, 4])
    """, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid", FLAGOS_SHARED_MEMORY=shared)
    assert out == "True True\n" * 15, out


def test_a_kernel_s_bad_index_names_the_lines_that_may_have_asked(tmp_path):
    script = tmp_path / "asks.py"
    script.write_text("""import torch
a, bad, fine = torch.arange(4, device="npu"), torch.tensor([9], device="npu"), torch.tensor([1], device="npu")
b = a[bad]
c = a * 2
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
b, c = a.take(bad), a.take(fine)
d = a.gather(0, bad)
try:
    torch.npu.synchronize()
except RuntimeError as error:
    print(error)
""")
    out = good(f"import runpy; runpy.run_path({str(script)!r})", FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid").splitlines()
    told = [line for line in out if "out of bounds" in line]
    assert len(told) == 2, out
    assert f"asked for by {script}:3 (found by a kernel on npu:0" in told[0]
    assert f"asked for by {script}:9 or {script}:10 (found" in told[1]


@pytest.mark.parametrize("shared", ["1", "0"])
def test_binary_cross_entropy_refuses_what_is_no_probability(shared):
    out = good("""
        import torch
        F = torch.nn.functional
        fine = torch.tensor([[0.25, 0.5], [0.0, 1.0]], device="npu")
        for bad in (1.5, -0.1, float("nan")):
            for kind, place in (("input", 0), ("target", 1)):
                for reduction in ("mean", "none"):
                    pair = [fine.clone(), fine.clone()]
                    pair[place].t()[1, 0] = bad
                    try:
                        result = F.binary_cross_entropy(pair[0].t(), pair[1].t(), reduction=reduction)
                        torch.npu.synchronize()
                        print("answered", result)
                    except RuntimeError as error:
                        print(f"all elements of {kind} should be between 0 and 1" in str(error))
        print(F.binary_cross_entropy(fine, fine.round()).item() == F.binary_cross_entropy(fine.cpu(), fine.cpu().round()).item())
    """, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid", FLAGOS_SHARED_MEMORY=shared)
    assert out == "True\n" * 13, out


@pytest.mark.parametrize("env", [dict(FLAGOS_ROUTE="opencl"), dict(FLAGOS_ROUTE="opencl", FLAGOS_SHARED_MEMORY="0"), dict(FLAGOS_ROUTE="host")])
def test_bernoulli_refuses_what_is_no_probability_and_the_device_goes_on(env):
    out = good("""
        import torch
        for bad in (1.5, -0.1, float("nan")):
            for n, place in ((5, 4), (200, 17), (200, 199)):
                for dtype in (torch.float32, torch.bfloat16, torch.float64):
                    p = torch.full((n,), 0.5, device="npu", dtype=dtype)
                    p[place] = bad
                    for call in (lambda: torch.bernoulli(p), lambda: torch.empty(n, device="npu").bernoulli_(p)):
                        try:
                            result = call()
                            torch.npu.synchronize()
                            print("answered", result)
                        except RuntimeError as error:
                            print("Expected p_in >= 0 && p_in <= 1" in str(error), torch.ones(3, device="npu").sum().item() == 3)
        ends = torch.tensor([0.0, 1.0] * 70, device="npu")
        print(torch.bernoulli(ends).equal(ends))
        print(torch.bernoulli(torch.full((9000,), 0.25, device="npu")).mean().sub(0.25).abs().item() < 0.02)
    """, FLAGOS_FALLBACK="forbid", **env)
    assert out == "True True\n" * 54 + "True\n" * 2, out


def test_clblast_gives_the_products_of_the_cpu_where_a_rule_asks_for_it(tmp_path):
    # On a device of kind cpu nothing but a rule chooses it; libclblast1 is among the packages of ./dev setup.
    rules = tmp_path / "rules.json"
    names = ("mm", "addmm", "bmm", "baddbmm", "addmv", "dot")
    rules.write_text(json.dumps({"version": 1, "rules": [{"op": f"aten::{name}", "use": "opencl.gemm.clblast"} for name in names]}))
    out = good("""
        import itertools, json, torch
        torch.manual_seed(0)
        def both(f, *tensors):
            want, got = f(*tensors), f(*(t.npu() if torch.is_tensor(t) else t for t in tensors)).cpu()
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-4 if want.dtype == torch.float32 else 1e-12)
        count = 0
        for dtype in (torch.float32, torch.float64):
            r = lambda *s: torch.randn(*s, dtype=dtype)
            for (m, n, k), (ta, tb) in itertools.product([(1, 1, 1), (5, 7, 3), (64, 130, 33), (200, 96, 257)], itertools.product((0, 1), (0, 1))):
                a, b = r(k, m).t() if ta else r(m, k), r(n, k).t() if tb else r(k, n)
                both(torch.mm, a, b)
                both(lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=-2), r(n), a, b)
                both(lambda c, a, b: torch.addmm(c, a, b, beta=0), torch.full((m, n), float("nan"), dtype=dtype), a, b)
                both(lambda c, a, b: c.clone().addmm_(a, b, beta=3), r(m, n), a, b)
                both(torch.bmm, r(3, m, k), b.expand(3, k, n))
                both(lambda c, a, b: torch.baddbmm(c, a, b, beta=2, alpha=0.25), r(3, m, n), r(3, m, k), r(3, k, n))
                count += 6
            big = r(80, 90)
            both(lambda big: torch.mm(big[3:40:2, 5:60:3], big[7:26, 11:50]), big)
            both(lambda big: torch.mm(big[1:30, 2:12], big[10:20, :]).t().contiguous(), big)
            out = torch.zeros(40, 40, dtype=dtype)
            for o in (out, out.npu()):
                torch.mm(big.to(o.device)[:19, :20], big.to(o.device)[:20, :19], out=o[1:20, 3:22])
                last = o.cpu() if o is not out else out.clone()
            torch.testing.assert_close(last, out, rtol=1e-5, atol=1e-4)
            both(torch.mv, r(9, 70), r(70)), both(torch.dot, r(70), r(70)), both(torch.mm, r(3, 0), r(0, 4))
        x, w = torch.randn(6, 8, requires_grad=True), torch.randn(8, 5, requires_grad=True)
        xd, wd = x.detach().npu().requires_grad_(), w.detach().npu().requires_grad_()
        (x @ w).square().sum().backward(), (xd @ wd).square().sum().backward()
        torch.testing.assert_close(xd.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4), torch.testing.assert_close(wd.grad.cpu(), w.grad, rtol=1e-4, atol=1e-4)
        half = torch.randn(4, 4).bfloat16()
        torch.testing.assert_close(torch.mm(half.npu(), half.npu()).cpu(), torch.mm(half, half))
        rows = [(r["op"], r["kernel"]) for r in torch.flagos._C.route_counts() if r["op"].split(".")[0].split("::")[1] in ("mm", "addmm", "bmm", "baddbmm")]
        used = sum(r["calls"] for r in torch.flagos._C.route_counts() if r["kernel"] == "opencl.gemm.clblast")
        print(count, sorted({kernel for _, kernel in rows}), used > 200)
    """, FLAGOS_RULES=str(rules), FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid")
    assert out == "192 ['opencl.gemm.clblast', 'opencl.gemm.wide'] True\n", out


def test_a_fallback_is_warned_about_once_per_operator():
    code = f"import torch\nfor _ in range(3): {RARE}"
    status, _, err = python(code, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="warn")
    assert status == 0, err
    assert err.count("aten::_linalg_svd.U has no OpenCL kernel") == 1


def test_a_forbidden_fallback_names_operator_dtype_and_shape():
    code = f"""
        import torch
        try:
            {RARE}
        except NotImplementedError as error:
            print(error)
    """
    out = good(code, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid")
    for word in ("aten::_linalg_svd", "float32[3,3]", "npu:0", "no OpenCL kernel", "FLAGOS_FALLBACK"):
        assert word in out, out


def test_an_allowed_fallback_on_a_discrete_card_counts_its_bytes():
    code = f"""
        import torch, json
        {RARE}
        print(json.dumps([[r["op"], r["calls"], r["bytes"]] for r in torch.flagos._C.fallback_counts()]))
    """
    status, out, err = python(code, FLAGOS_SHARED_MEMORY=0, FLAGOS_FALLBACK="allow")
    assert status == 0, err
    assert "no OpenCL kernel" not in err
    rows = {op: (calls, size) for op, calls, size in json.loads(out)}
    calls, size = rows["aten::_linalg_svd.U"]
    assert calls == 1 and size >= 36


def test_views_are_never_a_fallback():
    code = """
        import torch
        x = torch.arange(24.0, device="npu").reshape(2, 3, 4)
        views = [x[1], x.t() if x.dim() == 2 else x.transpose(0, 2), x.view(-1), x.unfold(2, 2, 1), x.expand(2, 2, 3, 4), x.diagonal(0, 1, 2),
                 x.unbind(0)[1], x.split(2, 1)[0], x.squeeze(), x.permute(2, 0, 1), x.as_strided((2, 2), (1, 2)), x.detach(),
                 x.view(torch.int32), x.narrow(1, 1, 2), x.movedim(0, 1), torch.view_as_complex(x.view(2, 3, 2, 2)).real]
        assert all(v.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for v in views)
        print(len(views), torch.flagos._C.fallback_counts())
    """
    assert good(code, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid", FLAGOS_SHARED_MEMORY=0) == "16 []\n"


def test_live_bytes_of_all_lines_sum_to_memory_allocated():
    code = """
        import torch, json
        def make(n): return torch.ones(n, device="npu")
        a = make(1000)
        b = torch.zeros(64, 64, device="npu")
        c = a * 2
        v = b[3:]
        del a
        rows = torch.flagos._C.site_counts()
        print(json.dumps([sum(r["live_bytes"] for r in rows), torch.npu.memory_allocated(),
                          {r["line"]: r["live_bytes"] for r in rows if r["live_bytes"]}]))
    """
    total, allocated, lines = json.loads(good(code))
    assert total == allocated
    assert lines == {"5": 64 * 64 * 4, "6": 4096}


def test_backward_work_is_credited_to_its_forward_line():
    code = """
        import torch, json
        w = torch.ones(16, 16, device="npu", requires_grad=True)
        x = torch.ones(16, 16, device="npu")
        y = torch.mm(x, w)
        z = torch.tanh(y)
        z.sum().backward()
        rows = torch.flagos._C.site_counts()
        print(json.dumps(sorted([r["line"], r["backward"]] for r in rows if r["calls"] and r["line"])))
    """
    rows = json.loads(good(code))
    assert [5, True] in rows and [6, True] in rows and [5, False] in rows and [6, False] in rows


def test_the_kernel_table_and_the_registrations_agree():
    assert good("import torch; print(torch.flagos._C.catalog_differences())") == "[]\n"
