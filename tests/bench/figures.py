"""Registry and helpers of the figures."""
import importlib
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
BIN = os.path.join(BUILD, "bin")
FIGURES = []


class Figure:
    def __init__(self, name, unit, bar, better, function):
        self.name, self.unit, self.bar, self.better, self.function = name, unit, bar, better, function

    def run(self):
        """The function gives a value, or (value, rival's name, rival's value) whose ratio is the figure."""
        got = self.function()
        value, rival, rival_value = got if isinstance(got, tuple) else (got, None, None)
        ratio = value / rival_value if rival_value else None
        shown = ratio if self.unit == "x" and ratio is not None else value
        ok = shown <= self.bar if self.better == "lower" else shown >= self.bar
        return {"name": self.name, "value": value, "unit": self.unit, "rival": rival, "rival_value": rival_value,
                "ratio": ratio, "bar": self.bar, "better": self.better, "ok": bool(ok)}


def figure(name, unit, bar, better="lower"):
    def register(function):
        FIGURES.append(Figure(name, unit, bar, better, function))
        return function
    return register


def median_of(function, runs=5):
    return statistics.median(function() for _ in range(runs))


def paired(first, second, pairs=9):
    """Medians of two functions measured alternately; each returns seconds."""
    a, b = [], []
    for _ in range(pairs):
        a.append(first())
        b.append(second())
    return statistics.median(a), statistics.median(b)


def python(code, env=None, timeout=600):
    """Runs code in a fresh interpreter of the project's environment and returns its stdout."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=timeout,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive", **(env or {})})
    if done.returncode:   # its own words are on stderr already
        raise RuntimeError(f"a measured program ended with {done.returncode}")
    return done.stdout


def load():
    for name in ("hot_paths", "training", "kernels", "first_steps", "language_server"):
        importlib.import_module(name)
