"""Prediction beside measurement, on the lines of a real training on npu:0, and the sentences for what is not there."""
import os
import re
import time

import pytest
from client import Client
from conftest import SERVER
from running import ROOT, Training

PROGRAM = '''import os
import sys
import time

import torch
from torch import nn

device = torch.device("npu:0")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 512)
        self.second = nn.Linear(512, 64)

    def forward(self, x):
        hidden = self.first(x)
        return self.second(torch.relu(hidden))


def evaluate(net):
    return torch.zeros(3, 256, device=device).sum()


def main():
    torch.manual_seed(0)
    net = Net().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    host = torch.randn(128, 256)
    while os.path.exists(sys.argv[4]):
        batch = host.to(device)
        weights = torch.ones(128, 64, device=device)
        loss = (net(batch) * weights).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
    if len(sys.argv) > 5:
        evaluate(net)


main()
'''
UNITS = {"s": 1, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
TIME = r"([\d.]+) (s|ms|us|ns)"
READ = r"\(measured, read [\d.]+ s ago\)"


def seconds(match, group=1):
    return float(match[group]) * UNITS[match[group + 1]]


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "job.py"
    path.write_text(PROGRAM)
    with Training(script=str(path)) as t:
        t.wait_until_working("self.first(x)", calls=40)
        yield t


class Editor:
    """An editor with the program open; `on(text)` is the hover on the place where the text begins."""

    def __init__(self, path, text=PROGRAM, attached=True, **env):
        self.uri = "file://" + str(path)
        self.lines = text.split("\n")
        self.version = 1
        self.client = Client(SERVER, env=env)
        self.client.initialize()
        self.client.open(self.uri, text)
        if attached:
            self.client.wait("flagos/status", lambda p: p["state"] == "attached")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.process.kill()

    def line(self, text):
        return next(i for i, line in enumerate(self.lines) if text in line)

    def on(self, text, until=None, wait=30):
        line = self.line(text)
        end = time.monotonic() + wait
        while True:
            answer = self.client.hover(self.uri, line, self.lines[line].index(text))
            said = answer["contents"]["value"] if answer else ""
            if until is None or re.search(until, said):
                return said
            assert time.monotonic() < end, f"no {until!r} in:\n{said}"
            time.sleep(0.2)

    def replace(self, old, new):
        line = self.line(old)
        at = self.lines[line].index(old)
        self.version += 1
        self.client.change(self.uri, self.version, {"text": new, "range": {"start": {"line": line, "character": at},
                                                                          "end": {"line": line, "character": at + len(old)}}})
        self.lines = "\n".join(self.lines).replace(old, new).split("\n")


def test_the_measured_value_and_the_error_stand_beside_the_prediction(training):
    with Editor(training.script) as editor:
        said = editor.on("torch.ones(", until="a forward run of the line")
        assert "- needs 32 KiB (float32 [128, 64])" in said
        assert re.search(r"- npu:0 had [\d.]+ [GM]iB free \(sysfs, read [\d.]+ s ago\)", said)
        predicted = re.search(rf"- predicted {TIME}, bound by (\w+) \(fill_; opencl\.fill\.wide; rates: measured\)", said)
        assert predicted and predicted[3] in ("memory", "launch")
        measured = re.search(rf"- measured {TIME} a forward run of the line; the prediction is (?:([\d.e+-]+) times the|as) measured", said)
        assert float(measured[3] or 1) == pytest.approx(seconds(predicted) / seconds(measured), rel=0.08)   # two digits are shown
        assert f"**exact, pid {training.pid}**" in said
        assert re.search(rf"- on npu:0: live 32 KiB, peak (32|64) KiB {READ}, \d+ calls", said)
        assert re.search(rf"- device time [\d.]+ % of the process \(forward {TIME}; measured, read [\d.]+ s ago\)", said)
        assert re.search(rf"aten::fill_\.Scalar → opencl\.fill\.wide, \d+ calls, measured {TIME} a call, predicted {TIME} \(.* measured\)", said)


def test_a_line_without_a_device_of_its_own_is_compared_too_and_its_backward_pass_is_not_part_of_it(training):
    with Editor(training.script) as editor:
        said = editor.on("self.first(x)", until="a forward run of the line")
        predicted = re.search(rf"predicted {TIME}, bound by \w+ \(linear; opencl\.gemm\.wide; rates: measured\)", said)
        forward = re.search(rf"- aten::addmm\.out → opencl\.gemm\.wide, \d+ calls, measured {TIME} a call", said)
        whole = re.search(rf"measured {TIME} a forward run of the line; the prediction is (?:([\d.e+-]+) times the|as) measured", said)
        assert seconds(whole) == pytest.approx(seconds(forward), rel=0.02)       # one call a run: the backward's products do not count
        assert float(whole[3] or 1) == pytest.approx(seconds(predicted) / seconds(whole), rel=0.08)
        assert re.search(rf"- backward: aten::mm\.out → opencl\.gemm\.wide, \d+ calls, measured {TIME} a call", said)
        assert re.search(rf"\(forward {TIME}, backward {TIME}; measured, read", said)
        # Two expressions of one line: the prediction is the line's, and so is the measured.
        said = editor.on("torch.relu(hidden)", until="a forward run of the line")
        assert "(relu, linear; opencl.gemm.wide; rates: measured)" in said
        relu = re.search(rf"- aten::relu → opencl\.pointwise\.wide, \d+ calls, measured {TIME} a call", said)
        assert seconds(re.search(rf"measured {TIME} a forward run", said)) > seconds(relu)


def test_an_edited_line_keeps_its_old_value_marked_and_is_not_compared(training):
    with Editor(training.script) as editor:
        editor.on("torch.ones(", until="a forward run of the line")
        number = editor.line("torch.ones(") + 1
        editor.replace("torch.ones(128, 64", "torch.ones(999, 64")
        said = editor.on("torch.ones(")
        assert f"**edited, pid {training.pid}: measured before this edit (line {number}); the process runs the old code**" in said
        assert "- needs 250 KiB (float32 [999, 64])" in said                     # of the text as it is now
        assert "live 32 KiB" in said                                             # of the text that ran
        assert "the prediction is" not in said
        other = editor.on("host.to(device)")
        assert f"**exact, pid {training.pid}**" in other
        assert "file changed since the run; the process runs the old code" in other
        editor.replace("    torch.manual_seed(0)", "    # a line more\n    torch.manual_seed(0)")
        moved = editor.on("self.second(torch", until="a forward run of the line")
        assert f"**exact, pid {training.pid}**" in moved                         # above the new line
        assert f"measured on line {editor.line('host.to(device)')}" in editor.on("host.to(device)")


def test_what_is_missing_is_said_in_four_different_sentences(training, tmp_path):
    said = {}
    with Editor(training.script) as editor:
        said["not executed yet"] = editor.on("torch.zeros(")
        assert f"**attached to pid {training.pid}, line not executed yet**" in said["not executed yet"]
        editor.replace("time.sleep(0.02)", "time.sleep(0.03)")
        said["file changed since the run"] = editor.on("Net().to(device)")
    other = tmp_path / "other.py"
    other.write_text(PROGRAM)
    with Editor(other, attached=False) as editor:      # a process runs, but not this file
        editor.client.wait("flagos/status", lambda p: p["state"] == "attached")
        beside = editor.on("torch.ones(", until="none of the running ones")
        assert f"no process attached: none of the running ones has executed this file (pid {training.pid} `{training.script}`)" in beside
    empty = tmp_path / "run"
    empty.mkdir(mode=0o700)
    with Editor(other, attached=False, FLAGOS_RUNTIME_DIR=str(empty)) as editor:
        said["no process attached"] = editor.on("torch.ones(", until="no process attached$")
    # A recorded machine whose driver says nothing of its memory in use.
    machine = os.path.join(ROOT, "tests", "fixtures", "machines", "amd-mi300x")
    with Editor(other, attached=False, FLAGOS_RUNTIME_DIR=str(empty), FLAGOS_ROOT=machine) as editor:
        said["not reported by the driver"] = editor.on("torch.ones(", until="not reported")
        assert "free memory of npu:0 not reported by the driver (neither the driver nor sysfs reports it); it has 192 GiB in all" in said["not reported by the driver"]
    for sentence in said:
        for where, text in said.items():
            assert (sentence in text) == (where == sentence or (sentence == "no process attached" and where == "not reported by the driver")), (sentence, where)


def test_a_process_that_ended_leaves_what_was_seen_last(training):
    with Editor(training.script) as editor:
        editor.on("torch.ones(", until="a forward run of the line")
        calls = int(re.search(r"(\d+) calls", editor.on("torch.ones("))[1])
        seen = len(editor.client.notifications)
        assert training.finish() == 0, training.output()
        editor.client.wait("flagos/status", lambda p: p["state"] == "ended", since=seen)
        said = editor.on("torch.ones(", until="which ended")
        assert f"**exact, last seen in pid {training.pid}, which ended**" in said
        assert int(re.search(r"(\d+) calls", said)[1]) >= calls
        assert re.search(READ, said)
        assert f"pid {training.pid} ended; it had not executed this line when last seen" in editor.on("torch.zeros(")
