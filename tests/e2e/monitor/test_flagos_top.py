"""The monitors against a real training process: window, terminal and JSON show the same values."""
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from running import BIN, Training, program, top  # noqa: E402


@pytest.fixture(scope="module")
def training():
    with Training() as t:
        t.wait_until_working()
        yield t


def site(row, line):
    return [s for s in row["sites"] if s["line"] == line and s["file"].endswith("train_digits.py")]


def test_lines_hold_what_memory_allocated_says(training):
    row = top(training.pid)
    device = row["devices"][0]
    total = sum(s["live_bytes"]["value"] for s in row["sites"])
    # Both are read while the program runs: they differ at most by what one step holds for a moment.
    assert total > 0
    assert abs(total - device["memory"]["allocated"]["value"]) < 0.5 * device["memory"]["allocated"]["value"] + (1 << 20)
    assert row["pid"] == training.pid and row["state"] == "live"


def test_the_models_line_holds_its_parameters(training):
    # 16*9+16 + 32*16*9+32 + 64*512+64 + 10*64+10 floats, plus rounding of each of 8 blocks.
    parameters = 4 * (16 * 9 + 16 + 32 * 16 * 9 + 32 + 64 * 512 + 64 + 10 * 64 + 10)
    rows = site(top(training.pid), training.line("Net().to(device)"))
    live = sum(s["live_bytes"]["value"] for s in rows)
    assert parameters <= live <= parameters * 1.125 + 8 * 128


def test_the_window_shows_the_same_snapshot_as_the_json(training, tmp_path):
    _, out, _ = program("flagos", "top", "--once", "--json", "--pid", training.pid, check=0)
    saved = tmp_path / "top.json"
    saved.write_text(out)
    picture = tmp_path / "top.png"
    command = [os.path.join(BIN, "flagos-top"), "--file", str(saved), "--screen", "lines", "--screenshot", str(picture)]
    if not os.environ.get("DISPLAY"):
        assert shutil.which("xvfb-run"), "xvfb-run is missing: ./dev setup installs it"
        command = ["xvfb-run", "-a", "-s", "-screen 0 1600x1000x24", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    words = (tmp_path / "top.txt").read_text().splitlines()
    line = training.line("Net().to(device)")
    assert f"train_digits.py:{line}" in words
    _, table, _ = program("flagos", "top", "--once", "--file", saved, check=0)
    row = next(r for r in table.splitlines() if f" train_digits.py:{line} " in r and "backward" not in r)
    live = site(json.loads(out)["processes"][0], line)[0]["live_bytes"]
    assert live["unit"] == "B"
    # The bytes drawn are the document's own.
    shown = [w for w in words if w.endswith((" KiB", " MiB", " B"))]
    kib = live["value"] / 1024
    assert any(abs(float(w.split()[0]) - kib) < 0.51 for w in shown if w.endswith(" KiB")), (kib, shown)
    assert str(training.pid) in row


def test_routes_carry_prediction_measurement_and_reason(training):
    row = top(training.pid)
    conv = [r for r in row["routes"] if "convolution" in r["op"]]
    assert conv
    for r in conv:
        assert r["kernel"].startswith("opencl.conv.")
        assert r["reason"]
        assert r["calls"] > 0
    assert any(r["device_time"]["value"] for r in conv)


def test_a_viewer_killed_mid_frame_does_not_touch_the_training(training):
    for _ in range(5):
        viewer = subprocess.Popen([os.path.join(BIN, "flagos"), "top", "--json", "--follow", "--interval", "0.1", "--pid", str(training.pid)],
                                  stdout=subprocess.PIPE)
        viewer.stdout.read(100)
        viewer.kill()
        viewer.wait()
    calls = sum(r["calls"] for r in top(training.pid, 0.1)["routes"])
    assert training.process.poll() is None
    assert sum(r["calls"] for r in top(training.pid, 0.1)["routes"]) > calls


def test_a_killed_process_reads_as_ended_with_its_last_values():
    with Training() as t:
        t.wait_until_working()
        time.sleep(1.0)   # the last snapshot is written at most twice a second
        t.process.kill()
        t.process.wait()
        row = top(t.pid, 0.1)
    assert row["state"] == "ended"
    assert site(row, t.line("Net().to(device)"))


def test_a_wrong_pid_is_one_sentence_and_exit_3():
    code, out, err = program("flagos", "top", "--once", "--pid", 999999999)
    assert code == 3
    assert "999999999" in err and err.count("\n") == 1
    assert out == ""
