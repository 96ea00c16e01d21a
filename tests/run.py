"""Runs every test of the project and ends with one line: N passed, N failed, N skipped.

    ./dev test            all parts
    ./dev test PART ...   some parts
    ./dev test --list     their names
"""
import glob
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build")


def environment():
    env = dict(os.environ)
    scratch = os.path.join(BUILD, "test-home")
    os.makedirs(scratch, exist_ok=True)
    # Tests never read or write the user's own caches, configuration or running processes.
    env.update(
        FLAGOS_CACHE_DIR=os.path.join(scratch, "cache"),
        XDG_CONFIG_HOME=os.path.join(scratch, "config"),
        POCL_CACHE_DIR=os.path.join(scratch, "pocl"),
        FLAGOS_RUNTIME_DIR=tempfile.mkdtemp(prefix="flagos-test-"),
        OMP_WAIT_POLICY="passive",
        PYTHONDONTWRITEBYTECODE="1",
    )
    for name in list(env):
        if name in ("FLAGOS_ROUTE", "FLAGOS_MEASURE", "FLAGOS_FALLBACK", "FLAGOS_RULES", "FLAGOS_ROOT", "FLAGOS_SHARED_MEMORY"):
            del env[name]
    return env


def run_catch(path, env):
    """A Catch2 program: its XML report gives the counts; a program that dies counts as one failure."""
    report = tempfile.NamedTemporaryFile(suffix=".xml", delete=False).name
    done = subprocess.run([path, "-r", "xml", "-o", report], cwd=ROOT, env=env, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, errors="replace", timeout=1200)
    try:
        cases = ElementTree.parse(report).getroot().findall(".//OverallResultsCases")[-1]
        passed, failed = int(cases.get("successes")), int(cases.get("failures"))
        skipped = int(cases.get("skips") or 0)
    except (ElementTree.ParseError, IndexError, OSError):
        passed, failed, skipped = 0, 1, 0
    if done.returncode != 0:
        failed = max(failed, 1)
        again = subprocess.run([path], cwd=ROOT, env=env, capture_output=True, text=True, errors="replace", timeout=1200)
        print((again.stdout + again.stderr)[-6000:])
    os.unlink(report)
    return passed, failed, skipped


def run_pytest(path, env):
    """A folder of pytest files; every skip prints its reason."""
    report = tempfile.NamedTemporaryFile(suffix=".xml", delete=False).name
    # The files of this folder only: a folder inside it is a part of its own.
    files = sorted(glob.glob(os.path.join(path, "test_*.py")))
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--junitxml", report, *files],
                          cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    try:
        suite = ElementTree.parse(report).getroot().find("testsuite")
        total, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        passed = total - skipped - failed
    except (ElementTree.ParseError, AttributeError, OSError):
        passed, failed, skipped = 0, 1, 0
    if done.returncode not in (0, 5):
        failed = max(failed, 1)
    if failed or skipped:
        print(done.stdout[-8000:])
    os.unlink(report)
    return passed, failed, skipped


def parts():
    """Name -> (runner, path), in order: the cheap ones first."""
    found = {}
    for path in sorted(glob.glob(os.path.join(BUILD, "tests", "unit_*"))):
        if os.access(path, os.X_OK):
            found["unit." + os.path.basename(path)[5:]] = (run_catch, path)
    for folder in ("e2e", "conformance", "fuzz"):
        for path in sorted(glob.glob(os.path.join(ROOT, "tests", folder, "**", "test_*.py"), recursive=True)):
            part = os.path.relpath(os.path.dirname(path), os.path.join(ROOT, "tests")).replace(os.sep, ".")
            found[part] = (run_pytest, os.path.dirname(path))
    return found


def main(names):
    found = parts()
    if names == ["--list"]:
        print("\n".join(found))
        return 0
    chosen = [p for p in found if not names or any(p == n or p.startswith(n + ".") or p.split(".")[-1] == n for n in names)]
    if not chosen:
        print(f"no test part {' '.join(names)}; there are: {', '.join(found)}", file=sys.stderr)
        return 2
    env, total = environment(), [0, 0, 0]
    for name in chosen:
        runner, path = found[name]
        start = time.monotonic()
        print(f"==> {name} ... ", end="", flush=True)
        try:
            counts = runner(path, env)
        except subprocess.TimeoutExpired:
            print("timed out")
            counts = (0, 1, 0)
        print(f"{counts[0]} passed, {counts[1]} failed, {counts[2]} skipped in {time.monotonic() - start:.0f} s", flush=True)
        total = [a + b for a, b in zip(total, counts)]
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
