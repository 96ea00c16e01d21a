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


def test_every_operator_is_proven_or_says_why_not():
    """What is not proven is a list that may only shrink: nothing to compare, or kernels that only CUDA has."""
    done = certify("--coverage", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["denominator"] > 1100 and report["counts"]["wrong"] == 0
    of = {kind: {r["op"].removeprefix("aten::"): r["detail"] for r in report["operators"] if r["kind"] == kind} for kind in report["counts"]}
    assert set(of["untested"]) <= {"_foreach_clone", "record_stream", "sspaddmm.out"}
    assert all(len(reason) > 30 for reason in of["untested"].values())
    only_cuda = [op for op, reason in of["unsupported"].items() if "neither an OpenCL kernel nor a CPU kernel" in reason]
    assert set(of["unsupported"]) - set(only_cuda) <= {"_spdiags"} and len(only_cuda) <= 27
    assert report["counts"]["native"] + report["counts"]["composite"] >= 1015
    for op in ("_stack.out", "mm.dtype", "baddbmm.dtype_out", "_foreach_addcdiv_.Tensor", "_fused_adamw_", "searchsorted.Tensor"):
        assert op in of["native"] or op in of["composite"], op


def test_a_wrong_answer_is_found():
    """Results, what is written to, and shapes are compared; a call in double precision excuses only what the CPU has wrong too."""
    import torch
    from flagos.coverage.__main__ import equal, excused

    x, y = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1])
    assert equal(x, x.npu()) is None and equal([x, 3], [x.npu(), 4]) is None
    assert equal(x, y.npu()) == "values differ"
    assert equal(x, x[:1].npu()) == "torch.float32[1] instead of torch.float32[2]"
    call = ((torch.tensor([1.0, 2.0]),), {})
    assert not excused(call, torch.clone, None, x, y.npu())
    assert excused(call, lambda t: t + 0.05, None, x, y.npu())   # both are 0.05 off, of a number that the CPU misses as well


def test_bad_calls_are_refused():
    assert certify().returncode == 2 and "--coverage" in certify().stderr
    assert certify("--coverage", "--list", "nothing").returncode == 2
    unknown = certify("--coverage", "--only", "mm,tanhh")
    assert unknown.returncode == 2 and unknown.stderr == "flagos certify: no operator is named 'tanhh'; did you mean tanh?\n"
    composite = certify("--coverage", "--only", "transpose")
    assert composite.returncode == 2 and "none is a dense operator" in composite.stderr
