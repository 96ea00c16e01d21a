"""Language servers over their pipes, timed from the client's side: ours, pyright's and ruff's, driven by the same code."""
import json
import os
import shutil
import subprocess
import time

from figures import BIN, ROOT

HERE = os.path.dirname(os.path.abspath(__file__))


def node():
    own = os.path.join(ROOT, "build", "node", "bin", "node")
    return own if os.path.exists(own) else shutil.which("node")


def command(name):
    """How a server is started; an AssertionError says what is missing."""
    if name == "flagos":
        return [os.path.join(BIN, "flagos-lsp"), "--devices", "npu:0"]
    if name == "pyright":
        server = os.path.join(HERE, "node_modules", "pyright", "langserver.index.js")
        assert os.path.exists(server), "pyright is missing: run ./dev setup"
        return [node(), server, "--stdio"]
    found = os.path.join(ROOT, ".venv", "bin", "ruff")
    assert os.path.exists(found), "ruff is missing: run ./dev setup"
    return [found, "server"]


class Server:
    def __init__(self, name, root=None, capabilities=None, options=None, cores=None):
        self.name = name
        self.started = time.perf_counter()
        self.process = subprocess.Popen(command(name), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        preexec_fn=(lambda: os.sched_setaffinity(0, cores)) if cores else None)
        self.id = 0
        self.versions = {}
        self.request("initialize", {"processId": os.getpid(), "rootUri": root and "file://" + root, "capabilities": capabilities or {},
                                    "workspaceFolders": root and [{"uri": "file://" + root, "name": "bench"}],
                                    "initializationOptions": options or {}})
        self.ready = time.perf_counter()
        self.send({"method": "initialized", "params": {}})

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def read(self):
        length = 0
        while line := self.process.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = self.process.stdout.read(length)
        if not body:
            raise EOFError(f"{self.name} ended")
        message = json.loads(body)
        if "id" in message and "method" in message:   # a request of the server's: it gets an empty answer
            items = message.get("params", {}).get("items") if message["method"] == "workspace/configuration" else None
            self.send({"id": message["id"], "result": [{} for _ in items] if items else None})
        return message

    def request(self, method, params):
        self.id += 1
        mine = self.id
        self.send({"id": mine, "method": method, "params": params})
        while True:
            message = self.read()
            if message.get("id") == mine and "method" not in message:
                return message

    def until(self, test):
        while True:
            message = self.read()
            if test(message):
                return message

    def published(self, uri, version):
        self.until(lambda m: m.get("method") == "textDocument/publishDiagnostics" and m["params"]["uri"] == uri
                   and m["params"].get("version", version) >= version)

    def open(self, path, text, wait=True):
        uri = "file://" + path
        self.versions[uri] = 1
        self.send({"method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": text}}})
        if wait:
            self.published(uri, 1)
        return uri

    def hover(self, uri, line, character):
        """Milliseconds of one hover."""
        start = time.perf_counter()
        self.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}})
        return (time.perf_counter() - start) * 1e3

    def edit(self, uri, line, start, end, text):
        """Milliseconds from an edit to the diagnostics of the edited text."""
        self.versions[uri] += 1
        at = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
        began = time.perf_counter()
        self.send({"method": "textDocument/didChange", "params": {"textDocument": {"uri": uri, "version": self.versions[uri]}, "contentChanges": [{"range": at, "text": text}]}})
        self.published(uri, self.versions[uri])
        return (time.perf_counter() - began) * 1e3

    def memory(self):
        """Resident bytes of the process now."""
        with open(f"/proc/{self.process.pid}/status") as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS:"))

    def close(self):
        try:
            self.request("shutdown", None)
            self.send({"method": "exit"})
            self.process.wait(10)
        except (OSError, EOFError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
