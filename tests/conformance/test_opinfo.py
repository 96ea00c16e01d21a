"""op_db, float32, forward, on the default routes: at least 99 % equal, none wrong, the names of the others checked in."""
import os

import pytest
import run

HERE = os.path.dirname(os.path.abspath(__file__))


def baseline(name):
    """Entry -> reason, from lines `entry: verdict: reason`."""
    out = {}
    with open(os.path.join(HERE, "baselines", name)) as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                entry, verdict, _ = line.split(": ", 2)
                out[entry] = verdict
    return out


@pytest.fixture(scope="module")
def rows():
    return run.survey(["forward"], ["float32"])


def test_entries(rows):
    executed = [r for r in rows if r["verdict"] != "none"]
    equal = [r for r in executed if r["verdict"] == "equal"]
    wrong = {r["name"]: r["reason"] for r in rows if r["verdict"] == "wrong"}
    others = {r["name"]: r["verdict"] for r in rows if r["verdict"] not in ("equal", "none")}
    print(run.table(rows))
    assert not wrong
    assert len(executed) > 600
    assert len(equal) >= 0.99 * len(executed)
    assert others == baseline("opinfo_float32.txt")


def test_opencl_kernels_take_part(rows):
    launched = sum(any(kernel.startswith("opencl.") and launches for _, kernel, _, launches in r["kernels"]) for r in rows)
    assert launched > 100
