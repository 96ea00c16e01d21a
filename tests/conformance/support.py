"""Runs a piece of Python in a fresh process, with the environment a test asks for."""
import os
import subprocess
import sys
import textwrap


def python(code, timeout=300, **env):
    """(exit code, stdout, stderr). A value of None removes a variable."""
    full = dict(os.environ)
    for key, value in env.items():
        if value is None:
            full.pop(key, None)
        else:
            full[key] = str(value)
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=full, capture_output=True, text=True,
                          timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def good(code, **env):
    """stdout of a process that must end well."""
    status, out, err = python(code, **env)
    assert status == 0, f"exit {status}\n{out}\n{err[-4000:]}"
    return out
