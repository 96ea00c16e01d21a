"""Runs the built `flagos` program as a user does, on this machine and on the recorded ones."""
import json
import os
import subprocess

import pytest

ROOT = os.environ.get("FLAGOS_SOURCE_DIR", os.path.abspath(os.path.join(os.path.dirname(__file__), "../../..")))
BUILD = os.environ.get("FLAGOS_BINARY_DIR", os.path.join(ROOT, "build"))
MACHINES = os.path.join(ROOT, "tests", "fixtures", "machines")


def run_flagos(*args, stdin=None, **env):
    """(exit code, stdout, stderr); FLAGOS_* of the caller is not passed on, apart from caches."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith("FLAGOS_") or k in ("FLAGOS_CACHE_DIR", "FLAGOS_RUNTIME_DIR")}
    keep.update(env)
    done = subprocess.run([os.path.join(BUILD, "bin", "flagos"), *args], input=stdin, capture_output=True, text=True, env=keep, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def flagos():
    return run_flagos


@pytest.fixture
def flagos_json():
    def call(*args, code=0, **kwargs):
        rc, out, err = run_flagos(*args, "--json", **kwargs)
        assert rc == code, (rc, out, err)
        return json.loads(out)
    return call
