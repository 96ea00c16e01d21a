"""op_db, float32, forward, on the default routes: at least 97 % equal, none wrong, the names of the others checked in."""
import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
SHARDS = 4


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
def rows(tmp_path_factory):
    """All entries; each shard in a process of its own, so that a crash names its entry and loses only the rest of it."""
    folder = tmp_path_factory.mktemp("opinfo")
    out = []
    for i in range(SHARDS):
        result, progress = str(folder / f"{i}.json"), str(folder / f"{i}.txt")
        done = subprocess.run([sys.executable, os.path.join(HERE, "opinfo.py"), "--shard", f"{i}/{SHARDS}", "--json", result,
                               "--progress", progress], capture_output=True, text=True, timeout=3000)
        if done.returncode != 0:
            with open(progress) as f:
                last = f.read().splitlines()[-1:]
            pytest.fail(f"shard {i} ended with {done.returncode} at {last}\n{done.stderr[-3000:]}")
        with open(result) as f:
            out += json.load(f)
    return out


def test_entries(rows):
    executed = [r for r in rows if r["verdict"] != "none"]
    equal = [r for r in executed if r["verdict"] == "equal"]
    wrong = {r["name"]: r["reason"] for r in rows if r["verdict"] == "wrong"}
    others = {r["name"]: r["verdict"] for r in rows if r["verdict"] not in ("equal", "none")}
    print(f"executed {len(executed)}, equal {len(equal)}, refused {len(others) - len(wrong)}, wrong {len(wrong)}")
    assert not wrong
    assert len(executed) > 600
    assert len(equal) >= 0.97 * len(executed)
    assert others == baseline("opinfo_float32.txt")


def test_opencl_kernels_take_part(rows):
    assert sum(any(k.startswith("opencl.") for k in r["kernels"]) for r in rows) > 100
