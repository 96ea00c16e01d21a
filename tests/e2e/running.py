"""A real training process for end-to-end tests: examples/train_digits.py (or a changed copy) on npu:0, kept running."""
import json
import os
import subprocess
import sys
import tempfile
import time

ROOT = os.environ.get("FLAGOS_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("FLAGOS_BINARY_DIR") or os.path.join(ROOT, "build")
BIN = os.path.join(BUILD, "bin")
EXAMPLE = os.path.join(ROOT, "examples", "train_digits.py")
ONLY_OPENCL = {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"}


def program(name, *args, timeout=120, check=None):
    """Runs one of our programs; returns (exit code, stdout, stderr). check: the exit code it must have."""
    done = subprocess.run([os.path.join(BIN, name), *map(str, args)], capture_output=True, text=True, timeout=timeout)
    if check is not None:
        assert done.returncode == check, f"{name} {args}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.returncode, done.stdout, done.stderr


def top(pid, interval=1.0):
    """The process's row of `flagos top --once --json`."""
    _, out, _ = program("flagos", "top", "--once", "--json", "--pid", pid, "--interval", interval, check=0)
    document = json.loads(out)
    return next(p for p in document["processes"] if p["pid"] == pid)


class Training:
    """Runs a script until the context ends. `script` defaults to the example; extra arguments are the script's."""

    def __init__(self, *args, script=EXAMPLE, env=ONLY_OPENCL):
        self.folder = tempfile.mkdtemp(prefix="flagos-e2e-")
        self.watched = os.path.join(self.folder, "watched")
        self.log = os.path.join(self.folder, "log")
        open(self.watched, "w").close()
        command = [sys.executable, script, "--epochs", "1", "--while-exists", self.watched, *args]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **env})
        self.pid = self.process.pid
        self.script = script

    def __enter__(self):
        return self

    def line(self, text):
        with open(self.script) as f:
            return next(n for n, line in enumerate(f, 1) if text in line)

    def wait_until_working(self, text="self.conv2(x)", calls=20, seconds=180):
        """Until `calls` operator calls were counted on the line that holds `text`."""
        line, end = self.line(text), time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.process.poll() is None, f"the training ended: {self.output()}"
            code, out, _ = program("flagos", "top", "--once", "--json", "--pid", self.pid, "--interval", 0.1)
            if code == 0:
                sites = [s for p in json.loads(out)["processes"] for s in p["sites"]]
                if any(s["line"] == line and s["calls"] >= calls for s in sites):
                    return
            time.sleep(0.2)
        raise AssertionError(f"no work on line {line} after {seconds} s: {self.output()}")

    def output(self):
        with open(self.log) as f:
            return f.read()[-3000:]

    def finish(self):
        """Lets the training end by itself; returns its exit code."""
        if os.path.exists(self.watched):
            os.unlink(self.watched)
        return self.process.wait(300)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
