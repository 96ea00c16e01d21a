"""A real training process: bytes, calls and lines as a viewer sees them, against what the program says of itself."""
import glob
import json
import os
import subprocess
import sys

import pytest
from websockets.sync.client import unix_connect

from conftest import BUILD, WAIT, Viewer

PROGRAM = '''
import sys, torch
from torch import nn
batch = int(sys.argv[1])
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 10)
    def forward(self, v):
        h = torch.relu(
            self.first(v))
        return self.second(h)
model = Net().to("npu:0")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(batch, 64).to("npu:0")
y = torch.randint(0, 10, (batch,)).to("npu:0")
def step():
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
for line in sys.stdin:
    step()
    torch.npu.synchronize()
    print(torch.npu.memory_allocated(), flush=True)
'''


@pytest.fixture(scope="module")
def kernel_cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")  # one for all tests here: kernels are built once


@pytest.fixture
def train(runtime_dir, tmp_path, kernel_cache):
    if not glob.glob(os.path.join(BUILD, "python", "flagos", "_C.*")):
        pytest.skip(f"{BUILD} was built without the PyTorch backend")
    started = []

    class Training:
        def __init__(self, batch, head=""):
            self.dir, self.script = runtime_dir, str(tmp_path / f"script_{len(started)}.py")
            self.source = head + PROGRAM
            open(self.script, "w").write(self.source)
            env = {**os.environ, "FLAGOS_RUNTIME_DIR": runtime_dir, "FLAGOS_CACHE_DIR": os.environ.get("FLAGOS_CACHE_DIR", str(kernel_cache)),
                   "PYTHONPATH": os.path.join(BUILD, "python")}
            self.process = subprocess.Popen([sys.executable, self.script, str(batch)], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True, env=env)
            started.append(self.process)

        def step(self):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            return int(self.process.stdout.readline())

        def view(self):
            path = os.path.join(self.dir, f"{self.process.pid}.sock")
            return Viewer(unix_connect(path, "ws://localhost/telemetry", subprotocols=["flagos.v1"], compression=None,
                                       max_size=None, open_timeout=WAIT).__enter__())

        def line(self, text):
            return self.source[:self.source.index(text)].count("\n") + 1

        def sites(self, snapshot, text):
            return [s for s in snapshot["sites"] if s["file"] == self.script and s["line"] == self.line(text)]

    yield Training
    for process in started:
        process.kill()
        process.wait()


def within_rounding(got, asked, allocations=1):
    return asked <= got <= asked * 1.125 + 128 * allocations


def test_bytes_per_line(train):
    one, two = train(32), train(64, head="# one line more\n")
    for run in (one, two):
        for _ in range(3):
            allocated = run.step()
        run.snapshot = run.view().ask("snapshot")["result"]
        assert run.snapshot["pid"] == run.process.pid and run.snapshot["script"] == run.script
        assert sum(s["live_bytes"]["value"] for s in run.snapshot["sites"]) == allocated
        assert run.snapshot["totals"]["live_bytes"] == allocated
        assert run.snapshot["devices"][0]["memory"]["allocated"]["value"] == allocated
        (weights,) = run.sites(run.snapshot, 'model = Net().to')
        assert within_rounding(weights["live_bytes"]["value"], 4 * (64 * 128 + 128 + 128 * 10 + 10), 4)
        assert weights["qualname"] == "<module>" and weights["backward_of"] is None
    (x1,), (x2,) = one.sites(one.snapshot, "x = torch"), two.sites(two.snapshot, "x = torch")
    assert x1["live_bytes"]["value"] == 32 * 64 * 4 and x2["live_bytes"]["value"] == 64 * 64 * 4
    assert x2["line"] == x1["line"] + 1


def test_backward_work_is_on_its_forward_line(train):
    run = train(32)
    for _ in range(2):
        run.step()
    snapshot = run.view().ask("snapshot")["result"]
    by_id = {s["id"]: s for s in snapshot["sites"]}
    for text, bytes_held in (("self.first(v)", 4 * (64 * 128 + 128)), ("self.second(h)", 4 * (128 * 10 + 10))):
        forward, backward = sorted(run.sites(snapshot, text), key=lambda s: s["backward_of"] is not None)
        assert backward["backward_of"] == forward["id"] and forward["qualname"] == "Net.forward"
        assert within_rounding(backward["live_bytes"]["value"], bytes_held, 2)  # the gradients
        assert forward["calls"] > 0 and backward["calls"] > 0
    relu = run.sites(snapshot, "h = torch.relu")
    assert {(s["line"], s["end_line"]) for s in relu} == {(run.line("h = torch.relu"), run.line("self.first(v)"))}
    assert len(relu) == 2 and {s["backward_of"] for s in relu} == {None, [s for s in relu if not s["backward_of"]][0]["id"]}
    assert all(s["line"] in range(1, run.source.count("\n") + 1) for s in by_id.values() if s["id"])
    kernels = {(by_id[r["site"]]["line"], r["op"].split("::")[1].split(".")[0]) for r in snapshot["routes"] if r["site"] in by_id}
    assert (run.line("h = torch.relu"), "relu") in kernels


def test_timings_come_while_somebody_looks(train):
    run = train(32)
    run.step()
    viewer = run.view()
    _, snapshot = viewer.subscribe(rate_hz=60)
    assert all(s["device_time"]["value"] is None for s in snapshot["sites"])
    run.step()
    while True:
        delta = viewer.until("delta", "sites")
        if any(s.get("device_time", {}).get("value", 0) for s in delta["sites"]):
            break
        run.step()
    routes = viewer.ask("snapshot")["result"]["routes"]
    timed = [r for r in routes if r["device_time"]["value"]]
    assert timed and all(0 < r["timed_calls"] <= r["calls"] for r in timed)


def test_killed_run_reads_as_ended_and_a_normal_end_leaves_nothing(train):
    run = train(32)
    run.step()
    last = os.path.join(run.dir, f"{run.process.pid}.last")
    while not json.load(open(last))["sites"]:
        run.step()
    run.process.kill()
    run.process.wait()
    assert json.load(open(last))["script"] == run.script
    assert run.sites(json.load(open(last)), "model = Net().to")
    other = train(32)
    other.step()
    other.process.stdin.close()
    assert other.process.wait(WAIT) == 0
    assert not [f for f in os.listdir(other.dir) if f.startswith(str(other.process.pid))]
