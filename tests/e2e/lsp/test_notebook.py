"""Notebooks over the pipes: --check, cell sync, and the values of a kernel that really runs the cells on npu:0."""
import json
import os
import subprocess
import sys
import time

import pytest
from conftest import SERVER

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from client import Client  # noqa: E402

CELLS = [("markdown", "# A notebook\n"),
         ("code", "%matplotlib inline\nimport torch\ndevice = torch.device('npu:0')"),
         ("code", "!ls\nx = torch.ones(256, 4)\ny = torch.zeros(256, 256).to(device)"),
         ("code", "%time z = y @ y")]
NOTEBOOK = "file:///project/n.ipynb"

def check(path, *options):
    done = subprocess.run([SERVER, "--check", str(path), "--devices", "npu:0", *options], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def write(path, cells=CELLS, **metadata):
    path.write_text(json.dumps({"cells": [{"cell_type": kind, "source": source, "metadata": {}} for kind, source in cells],
                                "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}))
    return path


def test_check_says_cells_and_lines_within_them(tmp_path):
    path = write(tmp_path / "n.ipynb")
    code, out, err = check(path, "--json")
    assert code == 0, err
    found = json.loads(out)["files"][0]
    move = next(s for s in found["sites"] if s["call"] == "Tensor.to")
    assert move["cell"] == 2 and move["range"]["start"] == {"line": 2, "character": 4}
    assert [(d["device"], d["at"]["cell"], d["at"]["line"]) for d in move["devices"]] == [("npu:0", 1, 3)]
    assert [(f["code"], f["cell"], f["range"]["start"]["line"]) for f in found["findings"]] == [("make-then-move", 2, 2)]
    assert all(e["cell"] == 2 for e in found["findings"][0]["edits"])
    text = check(path)[1]
    assert f"{path}:cell 3:3:5: Tensor.to (move): npu:0" in text
    assert "(cell 2, line 3)" in text


def test_a_folder_is_searched_for_notebooks(tmp_path):
    write(tmp_path / "n.ipynb")
    (tmp_path / "broken.ipynb").write_text('{"cells": [')
    write(tmp_path / "julia.ipynb", kernelspec={"language": "julia"})
    code, out, _ = check(tmp_path, "--json")
    files = {os.path.basename(f["path"]): f for f in json.loads(out)["files"]}
    assert code == 0 and len(files) == 3
    assert files["n.ipynb"]["findings"]
    assert "not a notebook" in files["broken.ipynb"]["skipped"] and "julia" in files["julia.ipynb"]["skipped"]
    assert check(tmp_path / "broken.ipynb")[0] == 4


def cell_uri(i):
    return f"vscode-notebook-cell:/project/n.ipynb#W{i}"


def open_notebook(c, cells=CELLS):
    c.notify("notebookDocument/didOpen", {
        "notebookDocument": {"uri": NOTEBOOK, "notebookType": "jupyter-notebook", "version": 1,
                             "cells": [{"kind": 2 if kind == "code" else 1, "document": cell_uri(i)} for i, (kind, _) in enumerate(cells)]},
        "cellTextDocuments": [{"uri": cell_uri(i), "languageId": "python" if kind == "code" else "markdown", "version": 1, "text": source}
                              for i, (kind, source) in enumerate(cells)]})


def test_cells_in_the_editor(server):
    c = server()
    capabilities = c.initialize({"notebookDocument": {"synchronization": {}}})["capabilities"]
    assert capabilities["notebookDocumentSync"]["notebookSelector"]
    open_notebook(c)
    found = c.wait("textDocument/publishDiagnostics", lambda p: p["uri"] == cell_uri(2))
    assert [d["code"] for d in found["diagnostics"]] == ["make-then-move"] and found["version"] == 1
    assert "npu:0" in c.hover(cell_uri(2), 2, 30)["contents"]["value"]
    # Two hundred structure edits without a pause: a cell goes up and down, is removed and comes back.
    for version in range(2, 202):
        at = version % 4
        c.notify("notebookDocument/didChange", {"notebookDocument": {"uri": NOTEBOOK, "version": version}, "change": {"cells": {"structure": {
            "array": {"start": at, "deleteCount": 1, "cells": [{"kind": 2 if at else 1, "document": cell_uri(at)}]}}}}})
    assert "npu:0" in c.hover(cell_uri(2), 2, 30)["contents"]["value"]
    c.notify("notebookDocument/didClose", {"notebookDocument": {"uri": NOTEBOOK}, "cellTextDocuments": []})
    c.wait("textDocument/publishDiagnostics", lambda p: p["uri"] == cell_uri(2) and p["diagnostics"] == [])
    assert c.close() == 0


@pytest.fixture
def kernel(tmp_path):
    watched, cells = tmp_path / "watched", tmp_path / "cells.json"
    watched.touch()
    cells.write_text(json.dumps([source for kind, source in CELLS if kind == "code"]))
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel.py")
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen([sys.executable, script, str(cells), str(watched)], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout.readline() == "ready\n", (tmp_path / "log").read_text()
    yield process
    watched.unlink()
    process.wait(60)


def test_values_of_the_kernel_stay_on_their_cells(kernel, tmp_path):
    c = Client(SERVER, "--devices", "npu:0")
    try:
        c.initialize({"notebookDocument": {"synchronization": {}}})
        open_notebook(c)
        end = time.monotonic() + 20
        while True:
            said = c.hover(cell_uri(2), 2, 24)["contents"]["value"]
            if "exact, pid" in said:
                break
            assert time.monotonic() < end, said
            time.sleep(0.1)
        assert f"**exact, pid {kernel.pid}**" in said and "live 256 KiB" in said
        assert "pid" in c.hover(cell_uri(3), 0, 12)["contents"]["value"]
        change = {"document": {"uri": cell_uri(2), "version": 2}, "changes": [{"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "# more\n"}]}
        c.notify("notebookDocument/didChange", {"notebookDocument": {"uri": NOTEBOOK, "version": 2}, "change": {"cells": {"textContent": [change]}}})
        said = c.hover(cell_uri(2), 3, 24)["contents"]["value"]
        assert f"**moved, pid {kernel.pid}, measured on cell 3, line 3**" in said and "file changed since the run" in said
        # A cell put above it moves nothing: lines are counted within cells.
        c.notify("notebookDocument/didChange", {"notebookDocument": {"uri": NOTEBOOK, "version": 3}, "change": {"cells": {"structure": {
            "array": {"start": 1, "deleteCount": 0, "cells": [{"kind": 2, "document": cell_uri(9)}]},
            "didOpen": [{"uri": cell_uri(9), "languageId": "python", "version": 1, "text": "a = 1\nb = 2\n"}]}}}})
        assert "measured on cell 4, line 3" in c.hover(cell_uri(2), 3, 24)["contents"]["value"]
        assert "exact, pid" in c.hover(cell_uri(3), 0, 12)["contents"]["value"]
        path = write(tmp_path / "n.ipynb")
        code, out, err = check(path, "--attach", str(kernel.pid), "--json")
        assert code == 0, err
        live = next(s for s in json.loads(out)["files"][0]["sites"] if s["call"] == "Tensor.to")["live"]
        assert live["state"] == "exact" and live["live_bytes"]["value"] == 4 * 256 * 256
    finally:
        c.process.kill()
