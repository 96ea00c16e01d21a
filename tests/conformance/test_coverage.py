"""The coverage report: its denominator is the list that torchgen makes, and its kinds are what the kernel log proves."""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(ROOT, "runtime", "python", "flagos", "coverage", "dense_ops.txt")


def certify(*args):
    return subprocess.run([os.path.join(ROOT, "build", "bin", "flagos"), "certify", *args], capture_output=True, text=True, timeout=900,
                          env={**os.environ, "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]})


def test_the_denominator_is_what_torchgen_makes():
    made = subprocess.run([sys.executable, os.path.join(ROOT, "runtime", "python", "make_dense_ops.py")], capture_output=True, text=True,
                          env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, check=True).stdout
    with open(LIST) as f:
        assert f.read() == made
    assert 1100 < sum(not line.startswith("#") for line in made.splitlines()) < 1300


def test_kinds_are_proven_by_launches():
    done = certify("--coverage", "--json", "--only", "add,mm,tanh,transpose,as_strided,_linalg_eigh")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kinds = {r["op"]: r["kind"] for r in report["operators"]}
    assert report["denominator"] == len(kinds) == sum(report["counts"].values())
    for op in ("aten::add.Tensor", "aten::add.out", "aten::add_.Tensor", "aten::mm", "aten::mm.out", "aten::tanh", "aten::tanh_",
               "aten::as_strided"):
        assert kinds[op] == "native", (op, report)
    assert kinds["aten::_linalg_eigh"] == "host"
    assert report["counts"]["wrong"] == 0


def test_bad_calls_are_refused():
    assert certify().returncode == 2 and "--coverage" in certify().stderr
    assert certify("--coverage", "--list", "nothing").returncode == 2
