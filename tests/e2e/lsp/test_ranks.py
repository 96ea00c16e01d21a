"""Two processes of one job on npu:0, as torchrun names them: maximum and spread by rank; and a line explained."""
import os
import shutil
import sys
import time

import pytest
from conftest import SERVER
from running import EXAMPLE, ONLY_OPENCL, Training

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Client  # noqa: E402


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    script = str(tmp_path_factory.mktemp("ranks") / "job.py")
    shutil.copy(EXAMPLE, script)
    named = [{**ONLY_OPENCL, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29511"} for rank in (0, 1)]
    with Training(script=script, env=named[0]) as first, Training(script=script, env=named[1]) as second:
        first.wait_until_working()
        second.wait_until_working()
        yield script, first.pid, second.pid


def eventually(get, test, seconds=20):
    end = time.monotonic() + seconds
    while not test(got := get()):
        assert time.monotonic() < end, got
        time.sleep(0.1)
    return got


def test_ranks_are_named_and_never_added_up(job):
    script, first, second = job
    with open(script) as f:
        text = f.read()
    uri, line = "file://" + script, text.split("\n").index("    model = Net().to(device)")
    c = Client(SERVER, "--devices", "npu:0")
    try:
        c.initialize()
        c.open(uri, text)
        said = eventually(lambda: c.hover(uri, line, 14)["contents"]["value"], lambda s: "over 2 processes" in s)
        assert f"**exact, pid {first}**" in said
        assert f"rank 0 (pid {first})" in said or f"rank 1 (pid {second})" in said
        listed = c.call("workspace/executeCommand", {"command": "flagos.processes"})
        assert {(p["pid"], p["rank"]) for p in listed if p["script"] == script} == {(first, 0), (second, 1)}
        # Attached to one of them by hand: its own values, beside the spread over its job.
        c.call("workspace/executeCommand", {"command": "flagos.attach", "arguments": [second]})
        assert f"**exact, pid {second}**" in c.hover(uri, line, 14)["contents"]["value"]
    finally:
        c.process.kill()


def test_a_line_is_explained_by_the_process_that_runs_it(job):
    script, *ranks = job
    with open(script) as f:
        text = f.read()
    uri = "file://" + script
    line = next(i for i, row in enumerate(text.split("\n")) if "self.conv2(x)" in row)
    c = Client(SERVER, "--devices", "npu:0")
    try:
        c.initialize()
        c.open(uri, text)
        column = text.split("\n")[line].index("self.conv2(x)") + 6
        eventually(lambda: (c.hover(uri, line, column) or {"contents": {"value": ""}})["contents"]["value"], lambda s: "opencl.conv" in s)
        answer = c.call("workspace/executeCommand", {"command": "flagos.explain", "arguments": [{"uri": uri, "line": line, "show": True}]})
        # Either rank runs the line; which of them is seen first is a matter of time.
        assert answer["pid"] in ranks and answer["line"] == line + 1
        assert any(e["chosen"].startswith("opencl.conv.") for e in answer["explanations"])
        assert "opencl.conv." in answer["text"]
        shown = c.wait("window/showMessage")
        assert "→ opencl." in shown["message"]
        actions = c.call("textDocument/codeAction", {"textDocument": {"uri": uri}, "context": {"diagnostics": []},
                                                     "range": {"start": {"line": line, "character": column}, "end": {"line": line, "character": column}}})
        assert any(a.get("command", {}).get("command") == "flagos.explain" for a in actions)
    finally:
        c.process.kill()
