"""The server over its real pipes: framing, bad input, exit codes, edits, positions."""
import json
import os
import re
import shutil
import subprocess
import tempfile

import pytest
from conftest import SERVER
from running import EXAMPLE, ROOT, program

TEXT = "import torch\n\u00e9\U0001f600 = 1; x = torch.zeros(3).to('npu:0')\n"
URI = "file:///some/where.py"


def test_one_byte_at_a_time(server):
    c = server()
    body = c.frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}})
    for i in range(len(body)):
        c.raw(body[i:i + 1])
    assert c.reply(1)["result"]["serverInfo"]["name"] == "flagos-lsp"


def test_malformed_json_and_frames_do_not_end_the_session(server):
    c = server()
    c.initialize()
    c.raw(b"Content-Length: 9\r\n\r\n{\"a\": nul")
    c.raw(b"nonsense\r\n\r\n")
    c.raw(b"Content-Length: 4\r\n\r\n1234")
    deep = b"[" * 100000
    c.raw(b"Content-Length: %d\r\n\r\n" % len(deep) + deep)
    c.open(URI, TEXT)
    assert "npu:0" in c.hover(URI, 1, 14)["contents"]["value"]
    assert c.replies[None]["error"]["code"] in (-32700, -32600)
    assert c.close() == 0


@pytest.mark.parametrize("last, code", [(["shutdown", "exit"], 0), (["exit"], 1), ([], 1)])
def test_exit_codes(server, last, code):
    c = server()
    c.initialize()
    for method in last:
        if method == "exit":
            c.notify("exit", None)
        else:
            c.call(method, None)
    c.process.stdin.close()
    assert c.process.wait(20) == code


@pytest.mark.parametrize("encoding, start", [("utf-8", 17), ("utf-16", 14), ("utf-32", 13)])
def test_the_same_place_in_each_encoding(server, encoding, start):
    c = server()
    chosen = c.initialize({"general": {"positionEncodings": [encoding]}})
    assert chosen["capabilities"]["positionEncoding"] == encoding
    text = TEXT.replace(" = 1; x = ", " = 1; xy = ")
    c.open(URI, text)
    found = c.wait("textDocument/publishDiagnostics", lambda p: p["uri"] == URI)["diagnostics"]
    assert [d["code"] for d in found] == ["make-then-move"]
    assert found[0]["range"]["start"] == {"line": 1, "character": start}


def test_a_cancelled_request_is_answered_once(server):
    c = server()
    c.initialize()
    c.open(URI, TEXT)
    burst = b""
    ids = list(range(1000, 1050))
    for i in ids:
        burst += c.frame({"jsonrpc": "2.0", "id": i, "method": "textDocument/hover",
                          "params": {"textDocument": {"uri": URI}, "position": {"line": 1, "character": 16}}})
        burst += c.frame({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": i}})
    c.raw(burst)
    for i in ids:
        answer = c.reply(i)
        assert "result" in answer or answer["error"]["code"] == -32800
    assert c.close() == 0


def test_two_hundred_deletions_without_pause(server):
    c = server()
    c.initialize()
    c.open(URI, "import torch\n" + "# padding\n" * 200 + "x = torch.zeros(3, device='npu:0')\n")
    for version in range(2, 202):
        c.change(URI, version, {"range": {"start": {"line": 1, "character": 0}, "end": {"line": 2, "character": 0}}, "text": ""})
    hover = c.hover(URI, 1, 8)
    assert "**npu:0**" in hover["contents"]["value"]
    assert hover["range"]["start"] == {"line": 1, "character": 4}


def test_the_fix_ports_the_whole_idiom(server):
    c = server()
    c.initialize()
    text = 'import torch\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\nif torch.cuda.is_available():\n    x = torch.ones(1).cuda()\n'
    c.open(URI, text)
    found = c.wait("textDocument/publishDiagnostics", lambda p: p["diagnostics"])["diagnostics"]
    check = next(d for d in found if d["code"] == "cuda-only-check")
    actions = c.call("textDocument/codeAction", {"textDocument": {"uri": URI}, "range": check["range"], "context": {"diagnostics": [check]}})
    edits = actions[0]["edit"]["changes"][URI]
    lines = text.split("\n")
    for e in sorted(edits, key=lambda e: (e["range"]["start"]["line"], e["range"]["start"]["character"]), reverse=True):
        start, end = e["range"]["start"], e["range"]["end"]
        assert start["line"] == end["line"]
        line = lines[start["line"]]
        lines[start["line"]] = line[:start["character"]] + e["newText"] + line[end["character"]:]
    assert "\n".join(lines) == (
        "import torch\n"
        'device = torch.accelerator.current_accelerator().type if torch.accelerator.is_available() else "cpu"\n'
        "if torch.accelerator.is_available():\n"
        "    x = torch.ones(1).to(torch.accelerator.current_accelerator())\n")


def check(*args):
    done = subprocess.run([SERVER, "--check", *args], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_named_file_deeper_down_makes_its_folder_no_place_to_import_from(tmp_path):
    """Python would not find it there either; and a shared folder that is named is one."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "where.py").write_text("DEVICE = 'npu:1'\n")
    (tmp_path / "main.py").write_text("import torch\nfrom where import DEVICE\nx = torch.zeros(2, device=DEVICE)\n")
    (tmp_path / "deep" / "main.py").write_text((tmp_path / "main.py").read_text())

    def resolution(*args):
        _, out, _ = check(*map(str, args), "--json", "--devices", "npu:0,npu:1")
        return {os.path.relpath(f["path"], tmp_path): f["sites"][0]["resolution"] for f in json.loads(out)["files"] if f["sites"]}

    both = {"main.py": "unknown", "deep/main.py": "exact"}
    assert resolution(tmp_path / "main.py", tmp_path / "deep" / "main.py") == both
    assert resolution(tmp_path / "deep" / "main.py", tmp_path / "main.py") == both
    assert resolution(tmp_path) == both
    assert resolution(f"{tmp_path}/deep/../main.py", f"{tmp_path}//deep/", f"{tmp_path}/deep/main.py") == both


def test_what_a_terminal_takes_as_orders_is_written_out(tmp_path):
    path = tmp_path / "a\x1b[31m\nb\x9b.py"
    path.write_text("import torch\nx = torch.zeros(2, device='npu:0\x1b]0;t\x07')\ny = torch.zeros(2, device='npu:0')\n")
    code, out, err = check(str(path), "--devices", "npu:0")
    assert code == 0 and not err
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out), repr(out)
    for bad in (str(tmp_path / "absent\x1b[31m.py"), str(path) + "\n"):   # what goes to stderr, too
        code, out, err = check(bad, "--devices", "npu:0")
        assert code == 4 and err.count("\n") == 1 and not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", out + err), repr(out + err)
    _, out, _ = check(str(path), "--devices", "npu:0")
    assert f"{tmp_path}/a\\x1b[31m\\x0ab\\xc2\\x9b.py:3:5: torch.zeros (placement): npu:0\n" in out


def test_check_of_the_example():
    code, out, _ = check(EXAMPLE, "--json", "--devices", "npu:0")
    assert code == 0
    document = json.loads(out)
    assert document["version"] == 1
    sites = document["files"][0]["sites"]
    model = next(s for s in sites if s["call"] == "Module.to")
    assert [d["device"] for d in model["devices"]] == ["npu:0"]
    assert model["devices"][0]["because"] == "default of --device"
    assert model["resolution"] == "exact"
    assert model["bytes"]["value"] == 4 * (160 + 4640 + 32832 + 650)
    assert model["live"] is None
    assert {s["kind"] for s in sites} >= {"move", "copy", "source"}
    assert document["summary"]["resolved_share"] == 1.0


def test_check_exit_codes(tmp_path):
    assert check(str(tmp_path / "missing.py"))[0] == 4
    assert check("--jsn", EXAMPLE)[0] == 2
    assert "--json" in check("--jsn", EXAMPLE)[2]
    assert check("")[0] == 2 and "empty path" in check("")[2]
    big = tmp_path / "big.py"
    big.write_text("# x\n" * 800000)
    assert check(str(big))[0] == 4
    code, out, _ = check(str(big), EXAMPLE, "--json")
    assert code == 0
    assert "larger than" in json.loads(out)["files"][0]["skipped"]
    broken = tmp_path / "broken.py"
    broken.write_text("import torch\ndef f(:\n  x =\ny = torch.zeros(2, device='npu:0')\n")
    code, out, _ = check(str(broken), "--json", "--devices", "npu:0")
    assert code == 0
    assert [s["devices"][0]["device"] for s in json.loads(out)["files"][0]["sites"]] == ["npu:0"]


def test_what_python_would_not_read_is_skipped_with_a_reason(tmp_path):
    for name, data, why in (("a.py", b"import torch\nx = 1\0\n", "zero bytes"), ("b.py", "import torch\n".encode("utf-16"), "UTF-16"),
                            ("c.ipynb", b'{"cells": 5}', "a notebook")):
        path = tmp_path / name
        path.write_bytes(data)
        code, out, err = check(str(path), "--json", "--devices", "npu:0")
        assert code == 4 and why in json.loads(out)["files"][0]["skipped"] and err.count("\n") == 1, (name, out, err)


def test_a_folder_that_cannot_be_read_is_said_and_not_zero_findings():
    root = os.geteuid() == 0   # root reads everything: another user asks, with a copy of the program that it can reach
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        server = shutil.copy(SERVER, folder)
        closed = os.path.join(folder, "tree", "closed")
        os.makedirs(closed)
        os.chmod(os.path.dirname(closed), 0o755)
        with open(os.path.join(folder, "tree", "a.py"), "w") as f:
            f.write("import torch\nx = torch.zeros(2, device='npu:0')\n")
        os.chmod(closed, 0)

        def ask(path):
            done = subprocess.run([server, "--check", path, "--json", "--devices", "npu:0"], capture_output=True, text=True, cwd=folder,
                                  env={"HOME": folder, "PATH": os.environ["PATH"]}, user=65534 if root else None, timeout=60)
            return done.returncode, {os.path.basename(f["path"]): f.get("skipped") for f in json.loads(done.stdout)["files"]}, done.stderr

        code, files, error = ask(closed)
        assert code == 4 and "Permission denied" in files["closed"] and "Permission denied" in error
        code, files, _ = ask(os.path.dirname(closed))
        assert code == 0 and files["a.py"] is None and "Permission denied" in files["closed"]
        os.chmod(closed, 0o755)


def test_a_report_that_a_full_disk_cuts_short_is_an_error():
    with open("/dev/full", "w") as full:
        done = subprocess.run([SERVER, "--check", EXAMPLE, "--devices", "npu:0"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 4 and "not all of the output could be written" in done.stderr


def test_check_reads_line_ends_and_bytes_as_python_does(tmp_path):
    for data in (b'import torch\rx = torch.zeros(3, device="npu")\r', b'\xef\xbb\xbfimport torch\nx = torch.zeros(3, device="npu")\n',
                 b'import torch\r\nx = torch.zeros(3, device="npu")  # \xff\xfe\n'):
        path = tmp_path / "x.py"
        path.write_bytes(data)
        code, out, _ = check(str(path), "--json", "--devices", "npu:0")
        [site] = json.loads(out)["files"][0]["sites"]
        assert code == 0 and site["range"]["start"] == {"line": 1, "character": 4}, data


def test_a_part_that_does_not_parse_is_said(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text('import torch\nx = torch.zeros(3, device="npu:0")\ny = torch.ones(3, device="npu:0"\n')
    code, out, err = check(str(file), "--devices", "npu:0", "--json")
    error = json.loads(out)["files"][0]["syntax_error"]
    assert code == 0 and err == "" and 1 <= error["line"] <= error["last_line"] == 3, error
    code, out, err = check(str(file), "--devices", "npu:0")
    assert code == 0 and f"{file}:{error['line']}:{error['column']}: does not parse" in out
    file.write_text("import torch\n")
    code, out, err = check(str(file), "--devices", "npu:0", "--json")
    assert "syntax_error" not in json.loads(out)["files"][0]


def test_a_file_that_is_not_there_is_named_among_others(tmp_path):
    code, out, err = check(EXAMPLE, str(tmp_path / "none.py"), "--devices", "npu:0")
    assert code == 0 and "Module.to" in out   # CONTRACTS: 4 only if it was the only one named
    assert err.count("\n") == 1 and str(tmp_path / "none.py") in err and "No such file" in err


def test_options_of_a_check_without_a_check_are_refused():
    for call in (["--json"], ["--sarif"], ["--attach"], ["--check", EXAMPLE, "--json", "--sarif"]):
        done = subprocess.run([SERVER, *call], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, (call, done)


def test_sarif_says_what_could_not_be_read(tmp_path):
    (tmp_path / "half.py").write_text("import torch\nx = torch.zeros(2, device='npu:0')\ndef f(:\n    pass\n")
    (tmp_path / "binary.py").write_bytes(b"\x00\x01\x02")
    code, out, _ = program("flagos-lsp", "--check", str(tmp_path), "--sarif", "--devices", "npu:0")
    assert code == 0
    run = json.loads(out)["runs"][0]
    told = {os.path.basename(n["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]): n for n in run["invocations"][0]["toolExecutionNotifications"]}
    assert run["invocations"][0]["executionSuccessful"] is True
    assert sorted(told) == ["binary.py", "half.py"]
    assert told["half.py"]["level"] == "error" and told["half.py"]["locations"][0]["physicalLocation"]["region"]["startLine"] == 3
    assert told["binary.py"]["level"] == "warning" and "region" not in told["binary.py"]["locations"][0]["physicalLocation"]


def test_attach_without_a_process_says_so(tmp_path):
    done = subprocess.run([SERVER, "--check", EXAMPLE, "--attach", "--devices", "npu:0"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "FLAGOS_RUNTIME_DIR": str(tmp_path / "nobody")})
    assert done.returncode == 3
    assert "Module.to" in done.stdout
    assert ROOT


def test_the_share_of_known_sites_is_printed_and_may_only_rise():
    """Over the example projects; each has its own baseline in tests/fixtures/projects/baseline.tsv."""
    for folder, least in (("projects", 93), ("python", 88)):
        path = os.path.join(ROOT, "tests", "fixtures", folder)
        code, out, _ = program("flagos-lsp", "--check", path, "--devices", "npu:0,npu:1")
        assert code in (0, 1)   # 1: some fixtures hold errors on purpose
        sites, share = re.search(r"(\d+) device sites, (\d+) % exact or candidates", out.splitlines()[-1]).groups()
        assert int(sites) >= 45
        assert int(share) >= least
