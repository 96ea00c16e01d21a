"""A small LSP client over stdio for tests: no library, exact about framing, with a deadline on every wait."""
import json
import os
import queue
import subprocess
import threading
import time


class Client:
    def __init__(self, server, *args, env=None):
        self.process = subprocess.Popen([server, "--stdio", *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
        self.messages = queue.Queue()
        self.notifications = []
        self.next_id = 1
        self.replies = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        out = self.process.stdout
        while True:
            length = None
            while True:
                line = out.readline()
                if not line:
                    self.messages.put(None)
                    return
                if line in (b"\r\n", b"\n"):
                    break
                name, _, value = line.partition(b":")
                assert name.lower() == b"content-length", f"not a header: {line!r}"
                length = int(value)
            self.messages.put(json.loads(out.read(length)))

    def raw(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    @staticmethod
    def frame(message):
        body = json.dumps(message).encode()
        return b"Content-Length: %d\r\n\r\n" % len(body) + body

    def notify(self, method, params):
        self.raw(self.frame({"jsonrpc": "2.0", "method": method, "params": params}))

    def send(self, method, params):
        request = self.next_id
        self.next_id += 1
        self.raw(self.frame({"jsonrpc": "2.0", "id": request, "method": method, "params": params}))
        return request

    def receive(self, timeout=20):
        message = self.messages.get(timeout=timeout)
        if message is None:
            raise EOFError("the server ended: " + self.process.stderr.read().decode(errors="replace"))
        if "method" in message:
            self.notifications.append(message)
            if "id" in message:  # a request of the server's
                self.raw(self.frame({"jsonrpc": "2.0", "id": message["id"], "result": None}))
        else:
            assert message.get("id") not in self.replies or message.get("id") is None, f"two replies: {message}"
            self.replies[message.get("id")] = message
        return message

    def reply(self, request, timeout=20):
        end = time.monotonic() + timeout
        while request not in self.replies:
            self.receive(max(0.01, end - time.monotonic()))
        return self.replies[request]

    def call(self, method, params, timeout=20):
        answer = self.reply(self.send(method, params), timeout)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait(self, method, test=lambda params: True, timeout=20, since=0):
        """The first notification of this method (from index `since` on) whose params pass the test."""
        end = time.monotonic() + timeout
        while True:
            for n in self.notifications[since:]:
                if n["method"] == method and test(n["params"]):
                    return n["params"]
            self.receive(max(0.01, end - time.monotonic()))

    def initialize(self, capabilities=None, options=None, root=None):
        result = self.call("initialize", {"processId": os.getpid(), "rootUri": root, "capabilities": capabilities or {},
                                          "initializationOptions": options or {}})
        self.notify("initialized", {})
        return result

    def open(self, uri, text, version=1):
        self.notify("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "python", "version": version, "text": text}})

    def change(self, uri, version, *changes):
        self.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": list(changes)})

    def hover(self, uri, line, character):
        return self.call("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}})

    def close(self):
        self.call("shutdown", None)
        self.notify("exit", None)
        return self.process.wait(20)
