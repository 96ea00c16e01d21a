"""layers.py on OpenCL kernels alone, on the host first, and on a device treated as a discrete card."""
import os

import layers
import pytest
import torch
from support import python

MODES = {
    "opencl only": {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"},
    "host first": {"FLAGOS_ROUTE": "host"},
    "discrete, opencl only": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """mode -> (check -> "ok" or "FAILED", errors, file of random numbers); one process a mode."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "layers.py")
    out = {}
    for mode, env in MODES.items():
        file = str(tmp_path_factory.mktemp("layers") / "random.pt")
        code = f"import sys, runpy; sys.argv = ['layers.py', {file!r}]; runpy.run_path({script!r}, run_name='__main__')"
        status, text, err = python(code, timeout=1800, **env)
        done = {line.split()[1]: line.split()[0] for line in text.splitlines() if line.startswith(("ok ", "FAILED "))}
        out[mode] = (done, f"exit {status}\n{err[-6000:]}", file)
    return out


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("check", [f.__name__ for f in layers.CHECKS])
def test_layers(results, mode, check):
    done, err, _ = results[mode]
    assert done.get(check) == "ok", err


def test_the_same_seed_gives_the_same_numbers_on_every_route(results):
    numbers = {mode: torch.load(file) for mode, (_, _, file) in results.items()}
    first = numbers["opencl only"]
    for mode, drawn in numbers.items():
        for i, (a, b) in enumerate(zip(first, drawn)):
            assert torch.equal(a, b), f"{mode}: draw {i} differs"
