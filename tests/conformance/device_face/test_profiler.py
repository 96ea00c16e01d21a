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
        print(json.dumps(dict(rows=[e.name for e in device], times=self_times, table="Self NPU" in prof.key_averages().table(),
                              lengths=[e.time_range.elapsed_us() for e in device])))
    """
    got = json.loads(good(code, **ENV).splitlines()[-1])
    assert len(got["rows"]) >= 3 and all(length > 0 for length in got["lengths"])
    assert got["table"]
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
