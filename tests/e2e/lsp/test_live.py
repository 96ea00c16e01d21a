"""The server beside a real training on npu:0: values, drift while it runs, and the end of the process."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import SERVER
from running import EXAMPLE, Training, top

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Client  # noqa: E402

WORK = "self.conv2(x)"


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    script = str(tmp_path_factory.mktemp("job") / "job.py")
    shutil.copy(EXAMPLE, script)
    with Training(script=script) as t:
        t.wait_until_working()
        yield t


def attached(path, pid):
    done = subprocess.run([SERVER, "--check", path, "--attach", str(pid), "--json", "--devices", "npu:0"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["files"][0]


def test_values_of_the_lines_are_those_of_the_process(training):
    found = attached(training.script, training.pid)
    model = next(s for s in found["sites"] if s["call"] == "Module.to")
    assert model["live"]["state"] == "exact"
    assert model["live"]["pid"] == training.pid
    row = [s for s in top(training.pid)["sites"] if s["line"] == model["range"]["start"]["line"] + 1]
    assert model["live"]["live_bytes"]["value"] == sum(s["live_bytes"]["value"] for s in row)
    conv = next(m for m in found["measured"] if m["text"] == WORK)
    forward = next(r for r in conv["live"]["routes"] if r["op"].startswith("aten::convolution_overrideable"))
    assert forward["kernel"].startswith("opencl.conv.")
    assert forward["measured"]["value"] > 0
    assert conv["live"]["share"]["value"] > 0
    assert conv["live"]["fallbacks"] == []
    shares = [s["live"]["share"]["value"] for s in found["sites"] + found["measured"] if s["live"]]
    assert 90 <= sum(v for v in shares if v is not None) <= 100.5


def test_drift_of_an_edited_buffer(training):
    with open(training.script) as f:
        text = f.read()
    uri = "file://" + training.script
    c = Client(SERVER, "--devices", "npu:0")
    try:
        c.initialize()
        c.open(uri, text)
        c.wait("flagos/status", lambda p: p["state"] == "attached" and p["text"].startswith("npu:0  "))
        line = text.split("\n").index("    model = Net().to(device)")
        before = c.hover(uri, line, 14)["contents"]["value"]
        assert f"**exact, pid {training.pid}**" in before
        c.change(uri, 2, {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "# one line more\n"})
        assert f"measured on line {line + 1}" in c.hover(uri, line + 1, 14)["contents"]["value"]
        assert c.hover(uri, line + 1, 14)["range"]["start"]["line"] == line + 1
        # An identical call above: the value stays with the one that ran.
        c.change(uri, 3, {"range": {"start": {"line": line + 1, "character": 0}, "end": {"line": line + 1, "character": 0}}, "text": "    model = Net().to(device)\n"})
        assert "not executed yet" in c.hover(uri, line + 1, 14)["contents"]["value"]
        assert "**moved" in c.hover(uri, line + 2, 14)["contents"]["value"]
        c.change(uri, 4, {"range": {"start": {"line": line + 2, "character": 21}, "end": {"line": line + 2, "character": 27}}, "text": "'npu:0'"})
        edited = c.hover(uri, line + 2, 14)["contents"]["value"]
        assert "**edited" in edited and "measured before this edit" in edited
    finally:
        c.process.kill()


def test_a_killed_process_is_said_to_have_ended(tmp_path):
    script = str(tmp_path / "killed.py")
    shutil.copy(EXAMPLE, script)
    with open(script) as f:
        text = f.read()
    with Training(script=script) as t:
        t.wait_until_working()
        c = Client(SERVER, "--devices", "npu:0")
        try:
            c.initialize()
            c.open("file://" + script, text)
            c.wait("flagos/status", lambda p: p["state"] == "attached")
            line = text.split("\n").index("    model = Net().to(device)")
            end = time.monotonic() + 20
            while "exact, pid" not in c.hover("file://" + script, line, 14)["contents"]["value"] and time.monotonic() < end:
                time.sleep(0.1)
            time.sleep(1)   # a killed process leaves the snapshot that it wrote last, at most half a second old
            seen = len(c.notifications)
            os.kill(t.pid, signal.SIGKILL)
            t.process.wait()
            ended = c.wait("flagos/status", lambda p: p["state"] == "ended", timeout=20, since=seen)
            assert "ended" in ended["text"]
            assert "last seen in pid" in c.hover("file://" + script, line, 14)["contents"]["value"]
        finally:
            c.process.kill()
