"""Over the standard library's and torch's own sources there is no warning without a reviewed reason.

Each run reads a shard, the same for everybody (every 40th file of torch, every 25th of the standard library);
FLAGOS_TEST_WHOLE=1 reads them all. A source tree that is not there is a failure, never a skip.
"""
import importlib.util
import json
import os
import subprocess
import sysconfig

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
LSP = os.path.join(ROOT, "build", "bin", "flagos-lsp")
REVIEWED = os.path.join(ROOT, "tests", "fixtures", "reviewed", "warnings.tsv")
LOUD = ("error", "warning")


def tree(name):
    if name == "stdlib":
        folder = sysconfig.get_paths()["stdlib"]
    else:
        spec = importlib.util.find_spec("torch")
        assert spec and spec.submodule_search_locations, (
            "torch is not installed for this Python, so its sources cannot be checked; run ./dev setup")
        folder = spec.submodule_search_locations[0]
    assert os.path.isdir(folder), f"the sources of {name} are not at {folder}; install them, or run ./dev setup"
    return folder


def files(name):
    folder, out = tree(name), []
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(f for f in folders if f not in ("site-packages", "dist-packages", "__pycache__", "test", "tests", "lib2to3", "idlelib"))
        out += [os.path.join(base, n) for n in sorted(names) if n.endswith(".py")]
    assert len(out) > 100, f"only {len(out)} Python files under {folder}: this is not the whole of {name}"
    return folder, out


def reviewed(name):
    out = {}
    with open(REVIEWED, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if line.startswith("#") or not line.strip():
                continue
            cells = line.rstrip("\n").split("\t")
            assert len(cells) == 5 and cells[4].strip(), f"{REVIEWED}:{number}: an entry is tree, path, code, text, reason"
            if cells[0] == name:
                out[tuple(cells[1:4])] = cells[4]
    return out


def loud_findings(folder, paths):
    """(path, code, text of the range's first line) -> message; and the files that took too long to follow to their end"""
    out, incomplete = {}, set()
    for start in range(0, len(paths), 100):
        done = subprocess.run([LSP, "--check", *paths[start:start + 100], "--json", "--devices", "npu:0,npu:1", "--encoding", "utf-8"],
                              capture_output=True, timeout=900)
        assert done.returncode in (0, 1), done.stderr.decode()
        for entry in json.loads(done.stdout)["files"]:
            if entry.get("incomplete"):
                incomplete.add(os.path.relpath(entry["path"], folder))
            loud = [f for f in entry["findings"] if f["severity"] in LOUD]
            if not loud:
                continue
            with open(entry["path"], "rb") as f:
                lines = f.read().splitlines()
            for f in loud:
                begin, end = f["range"]["start"], f["range"]["end"]
                text = lines[begin["line"]][begin["character"]:end["character"] if end["line"] == begin["line"] else None]
                out[os.path.relpath(entry["path"], folder), f["code"], text.decode("utf-8", "replace")] = f"{entry['path']}:{begin['line'] + 1}: {f['message']} [{f['code']}]"
    return out, incomplete


@pytest.mark.parametrize("name, step", [("stdlib", 25), ("torch", 40)])
def test_no_unreviewed_warning(name, step):
    folder, paths = files(name)
    whole = os.environ.get("FLAGOS_TEST_WHOLE") == "1"
    known = reviewed(name)
    # Files with reviewed warnings are always read, so that an entry that is no longer true is noticed.
    chosen = paths if whole else sorted(set(paths[::step]) | {os.path.join(folder, k[0]) for k in known})
    found, incomplete = loud_findings(folder, chosen)
    assert not [m for k, m in found.items() if k not in known], "\n".join(["not in the reviewed list:"] + [m for k, m in found.items() if k not in known])
    gone = [k for k in known if k not in found and k[0] not in incomplete]
    assert not gone, "reviewed, but no longer found; remove: " + "; ".join(map(str, gone))
