"""The newer operator families in every dtype, with OpenCL kernels alone, in both memory modes."""
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.mark.parametrize("shared", ["1", "0"])
def test_every_dtype_equals_the_cpu(shared):
    env = {**os.environ, "FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid", "FLAGOS_SHARED_MEMORY": shared, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, os.path.join(HERE, "opencl_ops.py")], env=env, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert lines[:-1] == []
    assert int(lines[-1].split()[0]) > 500
