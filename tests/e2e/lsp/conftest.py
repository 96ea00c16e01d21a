"""The language server under test, and a runtime directory of its own so that other processes do not show up."""
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from client import Client  # noqa: E402
from running import BIN  # noqa: E402

SERVER = os.path.join(BIN, "flagos-lsp")


@pytest.fixture
def server(tmp_path):
    clients = []

    def start(*args, devices="npu:0", **env):
        runtime = tmp_path / "run"
        runtime.mkdir(mode=0o700, exist_ok=True)
        client = Client(SERVER, "--devices", devices, *args, env={"FLAGOS_RUNTIME_DIR": str(runtime), **env})
        clients.append(client)
        return client

    yield start
    for client in clients:
        if client.process.poll() is None:
            client.process.kill()
            client.process.wait()
