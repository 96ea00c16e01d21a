"""What a server must survive: foreign bytes, sizes, storms, half-typed code, and its own crash."""
import json
import os
import random
import signal
import subprocess

import pytest
from conftest import SERVER
from running import EXAMPLE

URI = "file:///some/where.py"
SITE = "x = torch.zeros(3, device='npu:0')"


def said(c, uri, line, character):
    answer = c.hover(uri, line, character)
    return answer["contents"]["value"] if answer else ""


def test_bytes_that_are_no_json_text_still_open_the_file(server):
    c = server()
    c.initialize()
    body = json.dumps({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": {
        "uri": URI, "languageId": "python", "version": 1, "text": "import torch\n# BYTES \\ud83d half\n" + SITE}}}).encode()
    body = body.replace(b"BYTES", b"\xff\xfe\xc3").replace(b"\\\\ud83d", b"\\ud83d")
    c.raw(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert "npu:0" in said(c, URI, 2, 8)
    assert c.close() == 0


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_and_marks(server, end):
    c = server()
    c.initialize()
    # A byte order mark that a client leaves in the text is a character.
    c.open(URI, "\ufeffimport torch" + end + "s = '\U0001f600'; " + SITE + end)
    answer = c.hover(URI, 1, 18)
    assert answer["range"] == {"start": {"line": 1, "character": 14}, "end": {"line": 1, "character": 44}}
    c.change(URI, 2, {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 10}}, "text": end})
    assert c.hover(URI, 2, 8)["range"]["start"] == {"line": 2, "character": 4}


@pytest.mark.parametrize("uri", ["untitled:Untitled-1", "file:///a%20b/c%23d%C3%A9.py", "FILE-like:odd", "file://server/share/x.py", "vscode-vfs://github/o/r/x.py", "file:///x.py?q#f", "%%%"])
def test_uris_of_any_kind(server, uri):
    c = server()
    c.initialize(root="untitled:nowhere")
    c.open(uri, "import torch\n" + SITE)
    assert "npu:0" in said(c, uri, 1, 8)
    found = c.wait("textDocument/publishDiagnostics", lambda p: p["uri"] == uri)
    assert found["version"] == 1
    assert c.close() == 0


def test_a_line_of_a_hundred_megabytes(server):
    c = server()
    c.initialize()
    c.open(URI, "import torch\n" + SITE)
    big = b"x" * (100 << 20)
    head = b'{"jsonrpc":"2.0","method":"textDocument/didOpen","params":{"textDocument":{"uri":"file:///big.py","languageId":"python","version":1,"text":"'
    tail = b'"}}}'
    c.raw(b"Content-Length: %d\r\n\r\n" % (len(head) + len(big) + len(tail)) + head + big + tail)
    # Smaller than a message may be, larger than a file that is read: said in the file.
    c.open("file:///long.py", "x = '" + "y" * (3 << 20) + "'")
    found = c.wait("textDocument/publishDiagnostics", lambda p: p["uri"] == "file:///long.py")
    assert "larger than 2 MiB" in found["diagnostics"][0]["message"]
    assert "npu:0" in said(c, URI, 1, 8)
    assert "64 MiB" in c.replies[None]["error"]["message"]
    with open(f"/proc/{c.process.pid}/status") as f:
        peak = next(int(row.split()[1]) for row in f if row.startswith("VmHWM:"))
    assert peak < 300 << 10, f"{peak} KiB"
    assert c.close() == 0


@pytest.mark.parametrize("text", [
    "import torch\nx = torch.zeros(3, device='npu:0'", "import torch\nx = torch.zeros(3, devi", "import torch\ndef f(:\n", "import torch\nx = (" * 300,
    "import torch\n" + "[" * 5000, "import torch\nx = " + "-" * 5000 + "1", "import torch\n" + "if x:\n" * 3000, "import torch\nf'{" * 500, "'''\nimport torch",
    "\x00\x01\x02", "import torch\nx = torch.zeros(3, device='npu:0').to(\n" * 200, "@" * 3000, "lambda: " * 2000, "x" + ".y" * 20000, "a if b else " * 3000,
    "import torch\nmatch x:\n  case [" * 200, "\\\n" * 5000, "\t" * 5000 + "x", "class A:\n" * 90], ids=range(19))
def test_half_typed_and_deeply_nested_code(server, text):
    c = server()
    c.initialize()
    c.open(URI, text)
    c.call("flagos/sync", {}, timeout=30)
    for line in (0, 1, text.count("\n")):
        c.hover(URI, line, 5)
    c.call("textDocument/documentSymbol", {"textDocument": {"uri": URI}})
    # The next text is read as if nothing had been.
    c.change(URI, 2, {"text": "import torch\n" + SITE})
    assert "npu:0" in said(c, URI, 1, 8)
    assert c.close() == 0


def test_a_storm_of_random_edits_ends_in_the_same_answers_as_the_final_text(server, tmp_path):
    with open(EXAMPLE) as f:
        lines = f.read().split("\n")
    c = server()
    c.initialize({"general": {"positionEncodings": ["utf-8"]}})
    c.open(URI, "\n".join(lines))
    rng = random.Random(5)
    for version in range(2, 302):
        if rng.random() < 0.7 and len(lines) > 30:   # a deletion of whole lines or across two of them
            first = rng.randrange(10, len(lines) - 1)
            start = rng.randrange(len(lines[first]) + 1)
            end = rng.randrange(len(lines[first + 1]) + 1)
            c.change(URI, version, {"range": {"start": {"line": first, "character": start}, "end": {"line": first + 1, "character": end}}, "text": ""})
            lines[first:first + 2] = [lines[first][:start] + lines[first + 1][end:]]
        else:
            at = rng.randrange(2, len(lines))
            new = rng.choice(["    y = torch.zeros(3).to('npu:0')", "def g(", "x = 1", "'''", ")"])
            c.change(URI, version, {"range": {"start": {"line": at, "character": 0}, "end": {"line": at, "character": 0}}, "text": new + "\n"})
            lines.insert(at, new)
    found = c.wait("textDocument/publishDiagnostics", lambda p: p["uri"] == URI and p["version"] == 301)["diagnostics"]
    final = tmp_path / "final.py"
    final.write_text("\n".join(lines))
    done = subprocess.run([SERVER, "--check", str(final), "--json", "--devices", "npu:0", "--encoding", "utf-8"], capture_output=True, text=True, timeout=60)
    expected = json.loads(done.stdout)["files"][0]["findings"]
    assert [(d["code"], d["range"]) for d in found] == [(f["code"], f["range"]) for f in expected]
    assert c.close() == 0


def test_a_crash_names_the_message(server):
    c = server()
    c.initialize()
    c.open(URI, "import torch\n" + SITE)
    request = c.send("textDocument/hover", {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 8}})
    c.reply(request)
    os.kill(c.process.pid, signal.SIGSEGV)
    assert c.process.wait(20) == 1   # an exit code, not a signal
    told = c.process.stderr.read().decode()
    assert f"textDocument/hover {request}" in told and told.count("\n") == 1, told


def test_requests_are_answered_once_whatever_is_cancelled(server):
    c = server()
    c.initialize()
    c.open(URI, "import torch\n" + SITE)
    ids, burst = list(range(5000, 5200)), b""
    rng = random.Random(1)
    for i in ids:
        cancel = c.frame({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": i}})
        request = c.frame({"jsonrpc": "2.0", "id": i, "method": rng.choice(["textDocument/hover", "textDocument/inlayHint", "flagos/sync", "no/such"]),
                           "params": {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 8}}})
        # Before its request, after it, twice, or for one that does not exist.
        burst += rng.choice([cancel + request, request + cancel, request + cancel + cancel, request, request + cancel.replace(b"5", b"9")])
    c.raw(burst)
    for i in ids:
        assert c.reply(i)["id"] == i
    assert c.close() == 0   # the client asserts that no reply came twice
