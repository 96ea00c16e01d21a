"""tensors.py in both memory modes, on the default route, on OpenCL kernels first, and on the host first."""
import pytest
import tensors
from support import python

MODES = {
    "default": {},
    "host first": {"FLAGOS_ROUTE": "host"},
    "opencl first": {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"},
    "discrete": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"},
    "discrete, opencl first": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"},
}


@pytest.fixture(scope="module", params=list(MODES))
def results(request):
    """One process a mode: check -> "ok", or its traceback."""
    import os

    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensors.py")
    code = f"import sys, runpy; sys.argv = ['tensors.py']; sys.path.insert(0, {os.path.dirname(script)!r}); runpy.run_path({script!r}, run_name='__main__')"
    status, out, err = python(code, timeout=900, **MODES[request.param])
    done = {line.split()[1]: line.split()[0] for line in out.splitlines() if line.startswith(("ok ", "FAILED "))}
    return done, err, status


@pytest.mark.parametrize("check", [f.__name__ for f in tensors.CHECKS])
def test_tensors(results, check):
    done, err, status = results
    assert check in done, f"the process ended before this check (exit {status})\n{err[-4000:]}"
    assert done[check] == "ok", err[-6000:]
