"""A running process: explain --at and route set, against what the process itself counts."""
import subprocess
import sys

import pytest

from conftest import BUILD, WAIT

SCRIPT = """\
import sys, torch
a = torch.ones(1025, 64, device="npu:0")
b = torch.ones(64, 16, device="npu:0")
small = torch.ones(1024, 64, device="npu:0")
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(3):
        big = torch.mm(a, b)
        c = torch.mm(small, b)
    torch.npu.synchronize()
    print("done", big.sum().item(), flush=True)
"""
BIG, SMALL = 8, 9   # lines of the two products


class Training:
    def __init__(self, flagos, tmp_path):
        self.path = tmp_path / "train.py"
        self.path.write_text(SCRIPT)
        env = {**flagos.env, "PYTHONPATH": f"{BUILD}/python", "FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "warn"}
        env.pop("FLAGOS_ROOT")
        self.process = subprocess.Popen([sys.executable, str(self.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=env)
        line = self.process.stdout.readline()
        assert line == "ready\n", self.process.stderr.read()

    def step(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().startswith("done"), self.process.stderr.read()


@pytest.fixture
def training(flagos, tmp_path):
    t = Training(flagos, tmp_path)
    yield t
    t.process.stdin.close()
    assert t.process.wait(WAIT) == 0


def at(flagos, training, line):
    return flagos.json("explain", "--at", f"{training.path}:{line}", "--pid", str(training.process.pid))


def test_explain_and_route_follow_the_process(flagos, training, rules):
    training.step()
    doc = at(flagos, training, BIG)
    assert doc["pid"] == training.process.pid
    assert doc["signature"]["op"] == "aten::mm.out"
    assert doc["signature"]["args"][0]["shape"] == [1025, 64]
    assert doc["chosen"] == "opencl.gemm.wide"
    assert doc["counts"] == {"calls": 3, "by_route": {"opencl.gemm.wide": 3}}
    assert doc["query"]["line"] == BIG

    path = rules({"name": "big-mm", "op": "aten::mm", "when": {"m": "> 1024"}, "use": "opencl.gemm.tiled"})
    set_ = flagos.json("route", "set", path, "--pid", str(training.process.pid))
    assert set_["processes"][0]["rules"]["rules"][0]["name"] == "big-mm"
    training.step()
    after = at(flagos, training, BIG)
    assert after["counts"] == {"calls": 6, "by_route": {"opencl.gemm.tiled": 3, "opencl.gemm.wide": 3}}
    assert after["chosen"] == "opencl.gemm.tiled"
    assert at(flagos, training, SMALL)["counts"] == {"calls": 6, "by_route": {"opencl.gemm.wide": 6}}

    flagos.json("route", "reset", "--pid", str(training.process.pid))
    flagos.json("route", "set", "--op", "aten::mm", "--use", "opencl.gemm.tiled", "--pid", str(training.process.pid))
    training.step()
    assert at(flagos, training, SMALL)["counts"]["by_route"] == {"opencl.gemm.tiled": 3, "opencl.gemm.wide": 6}
    listed = flagos.json("route", "list", "--pid", str(training.process.pid))["processes"][0]["rules"]
    assert (listed["rules"][0]["op"], listed["rules"][0]["use"], listed["mode"]) == ("aten::mm", "opencl.gemm.tiled", "opencl")


def test_a_line_that_ran_nothing_is_exit_3(flagos, training):
    training.step()
    done = flagos.run("explain", "--at", f"{training.path}:1", "--pid", str(training.process.pid))
    assert done.returncode == 3
    assert "nothing ran there yet" in done.stderr
