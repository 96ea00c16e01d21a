"""torch.profiler shows what ran on the npu, linked to the operators that asked for it."""
import json

from support import good, python

ENV = {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"}


def test_kernels_are_device_activities_of_their_operators():
    code = """
        import json, torch
        from torch.profiler import ProfilerActivity, profile
        x = torch.randn(300, 300, device="npu"); (torch.tanh(x) @ x).sum().item()      # warm
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as prof:
            y = torch.tanh(x)
            z = y @ x
            z.sum().item()
        device = [e for e in prof.events() if e.device_type.name == "NPU" or str(e.device_type).endswith("PrivateUse1")]
        averages = {e.key: e for e in prof.key_averages()}
        self_times = {k: e.self_device_time_total for k, e in averages.items() if k.startswith("aten::")}
        sorted_table = prof.key_averages().table(sort_by="self_npu_time_total", row_limit=1)      # as tutorials write it
        longest = max((e for e in averages.values()), key=lambda e: e.self_npu_time_total).key
        print(json.dumps(dict(rows=[e.name for e in device], times=self_times, table="Self NPU" in prof.key_averages().table(), first=longest in sorted_table,
                              lengths=[e.time_range.elapsed_us() for e in device])))
    """
    got = json.loads(good(code, **ENV).splitlines()[-1])
    assert len(got["rows"]) >= 3 and all(length > 0 for length in got["lengths"])
    assert got["table"] and got["first"]
    for operator in ("aten::tanh", "aten::mm"):
        assert got["times"][operator] > 0, got
    assert sum(got["times"].values()) <= sum(got["lengths"]) * 1.001


def test_the_trace_has_kernels_copies_and_streams(tmp_path):
    path = tmp_path / "trace.json"
    code = f"""
        import torch
        from torch.profiler import ProfilerActivity, profile
        x = torch.randn(64, 64, device="npu"); side = torch.npu.Stream(); torch.npu.synchronize()
        image, weight = torch.randn(2, 8, 12, 12, device="npu"), torch.randn(8, 8, 3, 3, device="npu")
        torch.conv2d(image, weight); torch.npu.synchronize()      # built
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as prof:
            with torch.npu.stream(side): y = torch.exp(x)
            side.synchronize()
            z = torch.sigmoid(x).to("cpu")
            torch.conv2d(image, weight)      # more than one kernel
            torch.npu.synchronize()
        prof.export_chrome_trace({str(path)!r})
        print(side.stream_id)
    """
    status, out, errors = python(code, FLAGOS_SHARED_MEMORY="0", **ENV)
    assert status == 0 and "flow" not in errors, errors
    side = int(out)
    events = json.load(open(path))["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert {e["args"]["operator"] for e in kernels} >= {"aten::exp.out", "aten::sigmoid.out"}
    assert all(e["args"]["route"].startswith("opencl.") and e["pid"] == 0 for e in kernels)
    assert {e["tid"] for e in kernels} == {0, side}
    assert [e for e in events if e.get("cat") == "gpu_memcpy"]
    operators = {e["args"]["External id"]: e["name"] for e in events if e.get("cat") == "cpu_op"}
    assert {operators[e["args"]["External id"]] for e in kernels} >= {"aten::exp", "aten::sigmoid"}
    # Arrows: one from a moment inside the operator, on the host, to each command.
    starts = {e["id"]: e for e in events if e.get("ph") == "s" and e.get("cat") == "ac2g"}
    ends = [e for e in events if e.get("ph") == "f" and e.get("cat") == "ac2g"]
    assert len(ends) == len([e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]) >= 5
    assert len({e["id"] for e in ends}) == len(ends) and {e["id"] for e in ends} == set(starts)
    assert [e["args"]["operator"] for e in kernels].count("aten::convolution_overrideable") >= 2
    hosts = [e for e in events if e.get("name") in ("clEnqueueNDRangeKernel", "clEnqueueCopyBuffer")]
    assert hosts and all(e["args"]["External id"] in operators for e in hosts)
    for e in hosts:
        op = next(o for o in events if o.get("cat") == "cpu_op" and o["args"]["External id"] == e["args"]["External id"])
        assert op["ts"] - 1 <= e["ts"] <= op["ts"] + op["dur"] + 1 and op["tid"] == e["tid"]
    names = {e["args"]["name"] for e in events if e.get("ph") == "M" and e["name"] == "process_name" and e["pid"] == 0}
    assert "npu:0" in names
    start, end = min(e["ts"] for e in events if e.get("cat") == "cpu_op"), max(e["ts"] + e["dur"] for e in events if e.get("cat") == "cpu_op")
    assert all(start - 1e3 <= e["ts"] <= end + 1e3 for e in kernels)   # one clock


def test_cpu_only_profiles_and_repeated_ones():
    code = """
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule
        x = torch.randn(64, 64, device="npu")
        def rows(prof): return sum(str(e.device_type).endswith(("PrivateUse1", "NPU")) for e in prof.events())
        counts = []
        for activities in ([ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.NPU], [ProfilerActivity.NPU], [ProfilerActivity.CPU]):
            with profile(activities=activities) as prof: torch.exp(x); torch.npu.synchronize()
            counts.append(rows(prof))
        seen = []
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
                     on_trace_ready=lambda p: seen.append(rows(p))) as prof:
            for _ in range(6): torch.exp(x); prof.step()
        print(counts, seen)
    """
    assert good(code, **ENV).splitlines()[-1] == "[0, 1, 1, 0] [2]"


def test_an_operator_is_one_event_whatever_its_form():
    """PyTorch derives most operators from their out= form; a profile has what a CPU's or a CUDA device's would have."""
    code = """
        import json, torch
        from torch.profiler import ProfilerActivity, profile
        def work(device):
            torch.manual_seed(0)
            a, b = torch.randn(40, 40).to(device), torch.randn(40, 40).to(device)
            c, d = torch.empty_like(a), a.clone()
            calls = [lambda: a + b, lambda: a.sin(), lambda: d.sin_(), lambda: d.add_(b), lambda: torch.maximum(a, b), lambda: d.mul_(2.0),
                     lambda: torch.add(a, b, out=c), lambda: torch.sin(a, out=c), lambda: a.cumsum(0), lambda: torch.topk(a, 3),
                     lambda: a.amax(1), lambda: a.clamp(0, 1), lambda: torch.lerp(a, b, 0.5), lambda: a @ b, lambda: a.softmax(1),
                     lambda: torch.addmm(a, a, b), lambda: a.digamma(), lambda: torch.nn.functional.avg_pool2d(a[None], 2)]
            return lambda: [call() for call in calls]
        def profiled(device, *activities):
            run = work(device)
            run()
            torch.npu.synchronize()
            with profile(activities=[ProfilerActivity.CPU, *activities]) as prof:
                run()
                torch.npu.synchronize()
            return prof
        cpu, npu = profiled("cpu"), profiled("npu", ProfilerActivity.NPU)
        names = ["add", "add_", "sin", "sin_", "maximum", "mul_", "cumsum", "topk", "amax", "clamp", "lerp", "mm", "softmax", "_softmax",
                 "addmm", "digamma", "avg_pool2d"]
        count = lambda prof: {e.key[6:]: e.count for e in prof.key_averages() if e.key[6:] in names and e.key.startswith("aten::")}
        rows = {e.key: e for e in npu.key_averages()}
        device = [e for e in npu.events() if str(e.device_type).endswith(("PrivateUse1", "NPU"))]
        print(json.dumps(dict(cpu=count(cpu), npu=count(npu), own=sum(e.self_device_time_total for k, e in rows.items() if k.startswith("aten::")),
                              kernels=sum(e.time_range.elapsed_us() for e in device),
                              add=[rows["aten::add"].device_time_total, rows["aten::add"].self_device_time_total],
                              empty=[sorted(e.key for e in p.key_averages() if e.key.startswith("aten::empty")) for p in (npu, cpu)])))
    """
    for env in (ENV, {"FLAGOS_ROUTE": "host"}):
        got = json.loads(good(code, **env).splitlines()[-1])
        assert len(got["cpu"]) == 17 and got["cpu"]["add"] == 2 and got["npu"] == got["cpu"], got
        assert set(got["empty"][0]) <= set(got["empty"][1]), "results are made without a row of their own, as on the CPU"
        if env is ENV:
            assert got["add"][0] == got["add"][1] > 0, "a kernel is counted once in its operator's total"
            assert abs(got["own"] - got["kernels"]) <= got["kernels"] * 1e-3, got


def test_one_addition_is_one_operator_and_one_kernel():
    code = """
        import torch
        from torch.profiler import ProfilerActivity, profile
        a, b = torch.randn(8, 8, device="npu"), torch.randn(8, 8, device="npu")
        a + b; torch.npu.synchronize()
        for view in (slice(None), slice(None, None, 2)):      # the short way, and the general one
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.NPU]) as prof:
                a[:, view] + b[:, view]
                torch.npu.synchronize()
            print({e.key: e.count for e in prof.key_averages() if e.key not in ("aten::slice", "aten::as_strided", "aten::alias")})
    """
    rows = good(code, **ENV).splitlines()[-2:]
    assert rows == ["{'aten::add': 1, 'clEnqueueNDRangeKernel': 1, 'flat': 1}", "{'aten::add': 1, 'clEnqueueNDRangeKernel': 1, 'rows': 1}"], rows


def test_what_an_operator_calls_is_still_seen_and_an_error_leaves_recording_on():
    code = """
        import torch
        from torch.profiler import ProfilerActivity, profile
        a, b = torch.randn(8, 8, device="npu"), torch.randn(3, device="npu")
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            try: torch.maximum(a, b)
            except RuntimeError as error: print(str(error)[:30])
            try: a.digamma_().sin_(1)
            except TypeError: pass
            a.var(0)
            torch.nn.functional.linear(a, a)
        print(sorted(e.key for e in prof.key_averages() if e.key.startswith("aten::")))
    """
    lines = good(code).splitlines()[-2:]
    assert lines[0] == "The size of tensor a (8) must " and "'aten::var'" in lines[1]
    assert all(f"'aten::{name}'" in lines[1] for name in ("maximum", "digamma_", "linear", "mm", "t", "transpose")), lines[1]
