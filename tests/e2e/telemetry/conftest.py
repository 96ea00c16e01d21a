"""A puppet process (puppet.cpp) that runs the real recorder and server, and the real `websockets` package as viewer."""
import json
import os
import shutil
import signal
import subprocess
import tempfile

import pytest
from websockets.sync.client import unix_connect

ROOT = os.environ.get("FLAGOS_SOURCE_DIR", os.path.abspath(os.path.join(os.path.dirname(__file__), "../../..")))
BUILD = os.environ.get("FLAGOS_BINARY_DIR", os.path.join(ROOT, "build"))
WAIT = 120  # seconds until a wait counts as a hang; nothing below depends on how fast anything is


class Puppet:
    def __init__(self, directory, **env):
        self.dir = directory
        environ = {k: v for k, v in os.environ.items() if not k.startswith("FLAGOS_TELEMETRY")}
        environ.update(FLAGOS_RUNTIME_DIR=directory, **env)
        self.process = subprocess.Popen([os.path.join(BUILD, "tests", "telemetry_puppet")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)
        self.pid = self.process.pid

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process died at {line!r}: {self.process.stderr.read()}"
        return answer.strip()

    def path(self, suffix):
        return os.path.join(self.dir, f"{self.pid}{suffix}")

    def view(self, **options):
        """A connected viewer; its hello is already read."""
        options = {"subprotocols": ["flagos.v1"], "compression": None, "max_size": None, "open_timeout": WAIT, **options}
        socket = unix_connect(self.path(".sock"), "ws://localhost/telemetry", **options).__enter__()
        return Viewer(socket)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(WAIT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.stderr = self.process.stderr.read() if not self.process.stderr.closed else ""
        return self.process.returncode


class Viewer:
    def __init__(self, socket):
        self.socket = socket
        self.hello = self.receive()
        self.last_id = 0

    def receive(self):
        return json.loads(self.socket.recv(WAIT))

    def send(self, message):
        self.socket.send(message if isinstance(message, str) else json.dumps(message))

    def ask(self, method, params=None):
        """The reply to one request; messages before it are returned too."""
        self.last_id += 1
        request = {"jsonrpc": "2.0", "id": self.last_id, "method": method}
        if params is not None:
            request["params"] = params
        self.send(request)
        while True:
            message = self.receive()
            if message.get("id") == self.last_id:
                return message

    def subscribe(self, **params):
        reply = self.ask("subscribe", params)
        assert "result" in reply, reply
        snapshot = self.receive()
        assert snapshot["type"] == "snapshot"
        return reply["result"], snapshot

    def until(self, kind, part=None):
        """The next message of a kind; with `part`, the next that has something to say about it."""
        while True:
            message = self.receive()
            if message.get("type") == kind and (part is None or part in message):
                return message

    def close(self):
        self.socket.close()


@pytest.fixture
def runtime_dir():
    # Short: a Unix socket's path has at most 107 characters.
    directory = tempfile.mkdtemp(prefix="fl-", dir="/tmp")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def make_puppet(runtime_dir):
    made = []

    def make(start=True, **env):
        puppet = Puppet(env.pop("directory", runtime_dir), **env)
        made.append(puppet)
        if start:
            assert puppet.do("start /x/train.py") == "ok"
        return puppet

    yield make
    for puppet in made:
        if puppet.process.poll() is None:
            puppet.close()


@pytest.fixture
def puppet(make_puppet):
    return make_puppet()
