"""The example trains on npu:0 with OpenCL kernels alone, in both memory modes, and gives the CPU's numbers."""
import collections
import json
import os
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from running import EXAMPLE, ONLY_OPENCL, ROOT  # noqa: E402

CODE = """
import json, sys
sys.argv = ['train_digits.py', '--device', DEVICE, '--epochs', '15', '--json', OUT]
import runpy, torch
runpy.run_path(EXAMPLE, run_name='__main__')
if DEVICE != 'cpu':
    from flagos import _C
    torch.npu.synchronize()
    json.dump({'routes': _C.route_counts(), 'fallbacks': _C.fallback_counts()}, open(OUT + '.counts', 'w'), default=str)
"""


def run(device, out, env):
    code = f"DEVICE, OUT, EXAMPLE = {device!r}, {str(out)!r}, {EXAMPLE!r}\n" + CODE
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    with open(out) as f:
        return json.load(f)


@pytest.fixture(scope="module")
def cpu(tmp_path_factory):
    return run("cpu", tmp_path_factory.mktemp("cpu") / "cpu.json", {})


@pytest.mark.parametrize("shared", ["1", "0"], ids=["shared", "discrete"])
def test_opencl_alone_gives_the_cpus_numbers(tmp_path, cpu, shared):
    npu = run("npu:0", tmp_path / "npu.json", {**ONLY_OPENCL, "FLAGOS_SHARED_MEMORY": shared})
    assert len(npu["losses"]) == 20
    worst = max(abs(a - b) / abs(b) for a, b in zip(npu["losses"], cpu["losses"]))
    assert worst < 1e-3
    assert npu["correct"] >= 0.96
    assert abs(npu["correct"] - cpu["correct"]) <= 0.01
    counts = json.loads((tmp_path / "npu.json.counts").read_text())
    assert not counts["fallbacks"]
    text = json.dumps(counts["routes"])
    assert "opencl.conv" in text and "opencl.gemm" in text
    assert "host.aten" not in text and "cpu.fallback" not in text


def test_the_same_run_twice_gives_the_same_numbers(tmp_path):
    first = run("npu:0", tmp_path / "a.json", {})
    second = run("npu:0", tmp_path / "b.json", {})
    assert first["losses"] == second["losses"]
    assert first["correct"] == second["correct"]


def launches(trace):
    """Kernel name -> finished launches, from PoCL's own text trace (one line per state of an event)."""
    counts = collections.Counter()
    with open(trace, errors="replace") as f:
        for line in f:
            fields = [field.strip() for field in line.split("|")]
            if "ndrange_kernel" in fields and "complete" in fields:
                counts[fields[-1].removeprefix("name=")] += 1
    return counts


def test_pocls_trace_shows_the_launches_that_we_count(tmp_path):
    trace = tmp_path / "pocl.trace"
    code = """
import json, torch
from flagos import _C
a = torch.randn(64, 48).to('npu:0'); b = torch.randn(48, 80).to('npu:0')
for _ in range(7): c = a @ b
torch.npu.synchronize()
print(json.dumps([[r['op'], r['kernel'], r['calls']] for r in _C.route_counts()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **ONLY_OPENCL, "POCL_TRACING": "text", "POCL_TRACING_OPT": str(trace)})
    assert done.returncode == 0, done.stderr[-2000:]
    ours = {op: (kernel, calls) for op, kernel, calls in json.loads(done.stdout.splitlines()[-1])}
    kernel, calls = next(v for k, v in ours.items() if k.startswith("aten::mm"))
    assert kernel.startswith("opencl.gemm.") and calls == 7
    assert os.path.exists(trace) and os.path.getsize(trace) > 0
    gemm = sum(n for name, n in launches(trace).items() if "gemm" in name)
    assert gemm == 7, launches(trace)


def test_a_rule_changes_the_kernel_that_pocl_runs_for_1025_and_not_for_1024(tmp_path):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"version": 1, "rules": [{"name": "tall", "op": "aten::mm", "when": {"m": "> 1024"}, "use": "opencl.gemm.tiled"}]}))
    trace = tmp_path / "pocl.trace"
    code = """
import torch
b = torch.randn(16, 24).to('npu:0')
for rows, times in ((1024, 5), (1025, 3)):
    a = torch.randn(rows, 16).to('npu:0')
    for _ in range(times): c = a @ b
    assert torch.allclose(c.cpu(), a.cpu() @ b.cpu(), atol=1e-4)
torch.npu.synchronize()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **ONLY_OPENCL, "FLAGOS_RULES": str(rules), "POCL_TRACING": "text", "POCL_TRACING_OPT": str(trace)})
    assert done.returncode == 0, done.stderr[-2000:]
    counts = launches(trace)
    tiled = sum(n for name, n in counts.items() if "gemm" in name and "wide" not in name)
    wide = sum(n for name, n in counts.items() if "gemm" in name and "wide" in name)
    assert (wide, tiled) == (5, 3), counts


def test_the_published_check_runs_unchanged():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "check_device.py")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert any(line.startswith("npu:0") or line == "npu:0" for line in lines)
    assert any("[1024, 1024]" in line or "(1024, 1024)" in line for line in lines)
