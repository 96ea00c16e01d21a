"""PyTorch's operator database on the npu, in a short form; `run.py --all` is the whole. Four counts each, and none wrong.

Whole here: float32 forward on the default routes. Of the other checks, dtypes and the discrete mode every SLICE-th entry.
"""
import os
import subprocess
import sys

import pytest
import run
from opinfo import CHECKS

HERE = os.path.dirname(os.path.abspath(__file__))
SLICE = (5, 40)
DTYPES = ["int64", "bool", "bfloat16", "complex64"]
DISCRETE = {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"}


def baseline(name):
    """(check dtype entry) -> verdict, from lines `check dtype entry: verdict: reason`."""
    out = {}
    with open(os.path.join(HERE, "baselines", name)) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                entry, verdict, _ = line.split(": ", 2)
                out[entry] = verdict
    return out


def different(rows):
    return {f"{r['check']} {r['dtype']} {r['name']}": r["verdict"] for r in rows if r["verdict"] not in ("equal", "none")}


@pytest.fixture(scope="module")
def rows():
    return run.survey(["forward"], ["float32"], samples=4)


def test_every_entry_forward(rows):
    print(run.table(rows))
    executed = sum(r["verdict"] != "none" for r in rows)
    known = {k: v for k, v in baseline("opinfo.txt").items() if k.startswith("forward float32 ")}
    assert executed > 600
    assert sum(r["verdict"] == "equal" for r in rows) >= 0.99 * executed
    assert different(rows) == known


def test_opencl_kernels_take_part(rows):
    launched = sum(any(kernel.startswith("opencl.") and launches for _, kernel, _, launches in r["kernels"]) for r in rows)
    assert launched > 100


@pytest.mark.parametrize("name,checks,dtypes,env", [
    ("every check", [c for c in CHECKS if c != "forward"], ["float32"], {}),
    ("other dtypes", ["forward"], DTYPES, {}),
    ("a discrete card", ["forward", "backward", "out", "inplace"], ["float32"], DISCRETE),
])
def test_a_slice_of(name, checks, dtypes, env):
    got = run.survey(checks, dtypes, SLICE, env=env, samples=3)
    print(f"{name}\n{run.table(got)}")
    assert {(r["check"], r["dtype"]) for r in got} == {(c, d) for c in checks for d in dtypes}
    known = baseline("opinfo.txt")
    assert {k: v for k, v in different(got).items() if known.get(k) != v} == {}


def test_no_operator_was_silently_re_routed():
    """What the record says OpenCL computes in an entry must launch an OpenCL kernel still."""
    got = run.survey(["forward", "backward"], ["float32"], SLICE, env={"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"})
    launched = {f"{r['check']} {r['name']}": {op.removeprefix("aten::") for op, kernel, _, launches in r["kernels"]
                                             if kernel.startswith("opencl.")} for r in got}
    lost, compared = {}, 0
    with open(os.path.join(HERE, "baselines", "routes_float32.txt")) as f:
        for line in f:
            if line.startswith("#"):
                continue
            entry, ops = line.strip().split(": ")
            if entry in launched:
                compared += 1
                if missing := set(ops.split()) - launched[entry]:
                    lost[entry] = sorted(missing)
    assert compared > 15
    assert lost == {}


@pytest.mark.parametrize("kind,shard", [("modules", "3/12"), ("optimizers", "1/5")])
def test_modules_and_optimizers(kind, shard):
    done = subprocess.run([sys.executable, os.path.join(HERE, "modules.py"), "--kind", kind, "--shard", shard, "--samples", "2"],
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=1200)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "wrong 0" in done.stdout and "refused 0" in done.stdout and "executed 0" not in done.stdout
