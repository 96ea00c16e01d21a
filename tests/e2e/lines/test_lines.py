"""Bytes by source line are exact, follow the program when it changes, and belong to lines, not to names."""
import json
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from running import EXAMPLE, Training, program, top  # noqa: E402

BLOCK = 128   # smallest rounding of one allocation, bytes


def variant(folder, name, *changes):
    """A copy of the example with these replacements made; each must apply."""
    with open(EXAMPLE) as f:
        text = f.read()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def bytes_of(script, text, *args, key="live_bytes"):
    """Bytes on the line that holds `text`, from a real run of the script."""
    with Training(*args, script=script) as training:
        # Past the first steps: from the second batch on, a new one is uploaded while the last is still held.
        training.wait_until_working("optimizer.step()" if "optimizer.step()" in open(script).read() else "o.step()", calls=200)
        row, line = top(training.pid, 0.1), training.line(text)
    return sum(s[key]["value"] for s in row["sites"] if s["line"] == line and s["file"] == os.path.realpath(script) and not s.get("backward_of"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("lines"))


@pytest.fixture(scope="module")
def model_bytes(folder):
    return bytes_of(variant(folder, "plain.py"), "Net().to(device)")


def test_a_layer_more_is_its_parameters_more(folder, model_bytes):
    script = variant(folder, "layer.py",
                     ("        self.fc2 = nn.Linear(64, 10)\n", "        self.fc2 = nn.Linear(64, 10)\n        self.fc3 = nn.Linear(64, 64)\n"),
                     ("        return F.log_softmax", "        x = F.relu(self.fc3(x))\n        return F.log_softmax"))
    grown = bytes_of(script, "Net().to(device)") - model_bytes
    exact = 4 * (64 * 64 + 64)
    assert exact <= grown <= exact * 1.125 + 2 * BLOCK


def test_twice_the_batch_is_twice_the_upload(folder):
    script = variant(folder, "batch.py")
    one = bytes_of(script, "train_x[index].to(device)", "--batch-size", "64", key="peak_bytes")
    two = bytes_of(script, "train_x[index].to(device)", "--batch-size", "128", key="peak_bytes")
    assert one >= 64 * 64 * 4
    assert abs(two - 2 * one) <= 0.125 * two


def test_renaming_everything_changes_nothing_but_names(folder, model_bytes):
    script = variant(folder, "anders_benannt.py", ("conv1", "erste"), ("conv2", "zweite"), ("fc1", "dritte"), ("fc2", "vierte"),
                     ("Net", "Netz"), ("optimizer", "o"), ("model", "m"), ("losses", "verluste"))
    with open(script) as f:
        text = f.read()
    with open(script, "w") as f:
        f.write(re.sub(r"\btrain\b\(", "lernen(", text))
    assert bytes_of(script, "Netz().to(device)") == model_bytes


def check(script, pid):
    _, out, _ = program("flagos-lsp", "--check", script, "--attach", pid, "--json")
    return json.loads(out)["files"][0]["sites"]


def test_a_line_inserted_above_moves_the_value_and_an_edited_line_says_so(folder):
    script = variant(folder, "drift.py")
    with Training(script=script) as training:
        training.wait_until_working()
        line = training.line("Net().to(device)")
        before = next(s for s in check(script, training.pid) if s["range"]["start"]["line"] == line - 1)
        assert before["live"]["state"] == "exact" and before["live"]["pid"] == training.pid
        with open(script) as f:
            original = f.read()
        with open(script, "w") as f:
            f.write(original.replace("    model = Net()", "    # a line more\n    model = Net()"))
        moved = next(s for s in check(script, training.pid) if s["range"]["start"]["line"] == line)
        assert moved["live"]["state"] == "moved"
        assert moved["live"]["measured_line"] == line
        assert moved["live"]["live_bytes"]["value"] == before["live"]["live_bytes"]["value"]
        with open(script, "w") as f:
            f.write(original.replace("Net().to(device)", "Net().to(device=device)"))
        edited = next(s for s in check(script, training.pid) if s["range"]["start"]["line"] == line - 1)
        assert edited["live"]["state"] == "edited"
