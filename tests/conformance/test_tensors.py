"""tensors.py, attention.py, sorting.py, indexing.py and faults.py in both memory modes, on the default route, on OpenCL kernels first, and on the host first."""
import os

import attention
import faults
import indexing
import pytest
import sorting
import tensors
from support import python

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = {
    "default": {},
    "host first": {"FLAGOS_ROUTE": "host"},
    "opencl first": {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"},
    "discrete": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"},
    "discrete, opencl first": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"},
}
FAULT_MODES = ["default", "opencl first", "discrete, opencl first"]


def run_file(name, mode):
    """One process a file and mode: check -> "ok" or "FAILED", its messages, its exit code."""
    code = f"""
        import sys, runpy
        sys.argv = [{name!r}]
        sys.path.insert(0, {HERE!r})
        runpy.run_path({os.path.join(HERE, name)!r}, run_name="__main__")
    """
    status, out, err = python(code, timeout=1200, **MODES[mode])
    done = {line.split()[1]: line.split()[0] for line in out.splitlines() if line.startswith(("ok ", "FAILED "))}
    return done, err, status


def expect(results, check):
    done, err, status = results
    assert check in done, f"the process ended before this check (exit {status})\n{err[-4000:]}"
    assert done[check] == "ok", err[-6000:]


@pytest.fixture(scope="module", params=list(MODES))
def results(request):
    return run_file("tensors.py", request.param)


@pytest.mark.parametrize("check", [f.__name__ for f in tensors.CHECKS])
def test_tensors(results, check):
    expect(results, check)


@pytest.fixture(scope="module", params=FAULT_MODES)
def attention_results(request):
    return run_file("attention.py", request.param)


@pytest.mark.parametrize("check", [f.__name__ for f in attention.CHECKS])
def test_attention(attention_results, check):
    expect(attention_results, check)


@pytest.fixture(scope="module", params=FAULT_MODES[1:])   # the default route takes PyTorch's own kernels for most of it
def sorting_results(request):
    return run_file("sorting.py", request.param)


@pytest.mark.parametrize("check", [f.__name__ for f in sorting.CHECKS])
def test_sorting(sorting_results, check):
    expect(sorting_results, check)


@pytest.fixture(scope="module", params=FAULT_MODES[1:])
def indexing_results(request):
    return run_file("indexing.py", request.param)


@pytest.mark.parametrize("check", [f.__name__ for f in indexing.CHECKS])
def test_indexing(indexing_results, check):
    expect(indexing_results, check)


@pytest.fixture(scope="module", params=FAULT_MODES)
def fault_results(request):
    return run_file("faults.py", request.param)


@pytest.mark.parametrize("check", [f.__name__ for f in faults.CHECKS])
def test_known_faults(fault_results, check):
    expect(fault_results, check)
