"""Runs the `flagos` program as a user does; machines are recorded ones, so that answers do not depend on this one."""
import json
import os
import subprocess

import pytest

ROOT = os.environ.get("FLAGOS_SOURCE_DIR", os.path.abspath(os.path.join(os.path.dirname(__file__), "../../..")))
BUILD = os.environ.get("FLAGOS_BINARY_DIR", os.path.join(ROOT, "build"))
WAIT = 120  # seconds until a wait counts as a hang


class Program:
    def __init__(self, folder):
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("FLAGOS_")}
        self.env.update(FLAGOS_RUNTIME_DIR=str(folder / "run"), FLAGOS_CACHE_DIR=str(folder / "cache"), XDG_CONFIG_HOME=str(folder / "config"),
                        FLAGOS_ROOT=os.path.join(ROOT, "tests/fixtures/machines/cpu-only"), NO_COLOR="1")

    def run(self, *args, **env):
        done = subprocess.run([os.path.join(BUILD, "bin", "flagos"), *args], capture_output=True, text=True, timeout=WAIT,
                              env={**self.env, **env})
        assert done.returncode in range(5), done   # never a signal
        assert "terminate called" not in done.stderr
        return done

    def json(self, *args, **env):
        done = self.run(*args, "--json", **env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def flagos(tmp_path):
    return Program(tmp_path)


@pytest.fixture
def rules(tmp_path):
    def write(*rows):
        path = tmp_path / "rules.json"
        path.write_text(json.dumps({"version": 1, "rules": list(rows)}, indent=1))
        return str(path)
    return write
