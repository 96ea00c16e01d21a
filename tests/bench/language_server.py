"""Start and hover of flagos-lsp on the example."""
import json
import os
import statistics
import subprocess
import time

from figures import BIN, ROOT, figure, median_of

EXAMPLE = os.path.join(ROOT, "examples", "train_digits.py")


class Server:
    def __init__(self):
        self.start = time.perf_counter()
        self.process = subprocess.Popen([os.path.join(BIN, "flagos-lsp")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.id = 0

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def request(self, method, params):
        self.id += 1
        self.send({"id": self.id, "method": method, "params": params})
        while True:
            length = 0
            while (line := self.process.stdout.readline().strip()):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            message = json.loads(self.process.stdout.read(length))
            if message.get("id") == self.id and "method" not in message:
                return message

    def close(self):
        self.request("shutdown", None)
        self.send({"method": "exit"})
        self.process.wait(10)


def initialized():
    server = Server()
    server.request("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": {}})
    return server


@figure("lsp.start", "ms", 50)
def lsp_start():
    def once():
        server = initialized()
        took = (time.perf_counter() - server.start) * 1e3
        server.close()
        return took
    return median_of(once)


@figure("lsp.hover", "ms", 5)
def lsp_hover():
    """95th percentile over every 4th column of every line of the example."""
    server = initialized()
    server.send({"method": "initialized", "params": {}})
    uri = "file://" + EXAMPLE
    with open(EXAMPLE) as f:
        text = f.read()
    server.send({"method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri, "languageId": "python", "version": 1, "text": text}}})
    took = []
    for number, line in enumerate(text.splitlines()):
        for column in range(0, len(line), 4):
            start = time.perf_counter()
            server.request("textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": number, "character": column}})
            took.append((time.perf_counter() - start) * 1e3)
    server.close()
    return statistics.quantiles(took, n=20)[18]
