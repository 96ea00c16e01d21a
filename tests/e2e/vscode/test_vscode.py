"""The packaged extension in a real VS Code (web build, headless Chromium) while a real training process runs."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from running import BIN, BUILD, EXAMPLE, Training  # noqa: E402

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/tmp"), ".cache"), "flagos", "vscode-e2e")
SHOTS = os.path.join(BUILD, "screenshots")


def node():
    own = os.path.join(BUILD, "node", "bin", "node")
    return own if os.path.exists(own) else shutil.which("node")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Editor:
    """VS Code with the .vsix installed and a folder with the example open. Every flagos/status is kept in `statuses`."""

    def __init__(self):
        subprocess.run([os.path.join(HERE, "setup.sh"), CACHE], check=True, timeout=900,
                       env={**os.environ, "PATH": os.path.dirname(node()) + ":" + os.environ["PATH"]}, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.home = tempfile.mkdtemp(prefix="vs")        # short: socket names are limited to 107 bytes
        self.folder = os.path.join(self.home, "work")
        os.mkdir(self.folder)
        self.script = os.path.join(self.folder, "train_digits.py")
        shutil.copy(EXAMPLE, self.script)
        # A wrapper in the server's place keeps what it says, so that the text on screen can be compared with it.
        self.said = os.path.join(self.home, "said")
        wrapper = os.path.join(self.home, "server")
        with open(wrapper, "w") as f:
            f.write(f"#!/bin/sh\n{BIN}/flagos-lsp \"$@\" | tee {self.said}\n")
        os.chmod(wrapper, 0o755)
        user = os.path.join(self.home, "u")
        os.makedirs(os.path.join(user, "User"))
        with open(os.path.join(user, "User", "settings.json"), "w") as f:
            json.dump({"flagos.server.path": wrapper, "workbench.startupEditor": "none", "workbench.tips.enabled": False}, f)
        entry = [node(), os.path.join(CACHE, "node_modules", "code-server", "out", "node", "entry.js"),
                 "--user-data-dir", user, "--extensions-dir", os.path.join(self.home, "e")]
        env = {**os.environ, "HOME": self.home}
        subprocess.run([*entry, "--install-extension", os.path.join(BUILD, "flagos-devtools.vsix")], check=True, env=env,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=180)
        self.port = free_port()
        self.server = subprocess.Popen([*entry, "--auth", "none", "--bind-addr", f"127.0.0.1:{self.port}", "--disable-telemetry",
                                        "--disable-update-check", "--disable-workspace-trust", self.folder], env=env,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.2)
        os.makedirs(SHOTS, exist_ok=True)
        self.browser = subprocess.Popen([node(), os.path.join(HERE, "drive.mjs"), CACHE, str(self.port), self.folder, self.script, SHOTS],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert json.loads(self.browser.stdout.readline())["ready"]

    def do(self, command):
        self.browser.stdin.write(command + "\n")
        self.browser.stdin.flush()
        answer = json.loads(self.browser.stdout.readline())
        assert "error" not in answer, f"{command}: {answer['error']}"
        return answer

    def status(self):
        return self.do("status")

    def statuses(self):
        """Texts of all flagos/status notifications so far, oldest first."""
        with open(self.said, "rb") as f:
            data = f.read()
        texts = []
        for body in re.split(rb"Content-Length: \d+\r\n(?:[^\r\n]+\r\n)*\r\n", data)[1:]:
            try:
                message = json.loads(body)
            except ValueError:
                continue
            if message.get("method") == "flagos/status":
                texts.append(message["params"])
        return texts

    def wait(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            got = self.status()
            if condition(got["text"]):
                return got
            time.sleep(0.1)
        raise AssertionError(f"{what}: the status bar still says {got['text']!r}")

    def close(self):
        try:
            self.browser.stdin.write("quit\n")
            self.browser.stdin.flush()
            self.browser.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.browser.kill()
        self.server.terminate()
        self.server.wait()
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.fixture(scope="module")
def editor():
    e = Editor()
    yield e
    e.close()


def plain(text):
    return " ".join(text.split())


def test_the_status_bar_follows_a_real_process_and_says_when_it_ended(editor):
    idle = editor.status()
    assert idle["right"] < 700 and idle["bottom"] < 5, "the item stands at the bottom right"
    with Training(script=editor.script) as training:
        training.wait_until_working()
        first = editor.wait(lambda t: "npu:0" in t and "GiB" in t, 30, "after the training began")
        editor.do("shot attached")
        assert any(plain(s["text"]) in first["text"] for s in editor.statuses() if s["state"] == "attached")
        second = editor.wait(lambda t: "npu:0" in t and "%" in t and t != first["text"], 60, "a second reading")
        assert second["text"] != first["text"]
        assert any(plain(s["text"]) in second["text"] for s in editor.statuses() if s["state"] == "attached")

        line = training.line("Net().to(device)")
        with open(editor.script) as f:
            column = f.read().splitlines()[line - 1].index("to(device)") + 1
        hover = editor.do(f"hover {line} {column}")["text"]
        editor.do("shot hover")
        assert "npu:0" in hover
        assert str(training.pid) in hover, hover

        training.process.kill()
        training.process.wait()
        killed = time.monotonic()
        editor.wait(lambda t: "ended" in t, 10, "after kill -9")
        said = time.monotonic() - killed
        editor.do("shot ended")
        # The promise is 2 s; the browser's own answer time comes on top.
        assert said < 4
        assert any(s["state"] == "ended" for s in editor.statuses())
