"""The fuzz targets for some seconds each, built with g++ under address and undefined sanitizers: seeds, then mutations of
them, the same ones in every run. `./dev fuzz` goes on for longer."""
import os
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.environ.get("FLAGOS_SANITIZER_BUILD") or os.path.join(ROOT, "build-sanitized")
FLAGS = "-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
FIXTURES = os.path.join(ROOT, "tests", "fixtures", "python")

# Target -> how many mutations, and where its seeds are besides tests/fuzz/seeds/TARGET.
TARGETS = {
    "frames": (4000, []),
    "positions": (400, [FIXTURES]),
    "params": (1500, []),
    "edits": (1500, []),
    "bodies": (2000, [FIXTURES]),
    "notebook": (3000, [FIXTURES]),
    "analysis": (300, [FIXTURES]),
    "rules": (3000, [os.path.join(ROOT, "runtime", "kde", "rules")]),
    "snapshot": (3000, []),
}


@pytest.fixture(scope="session")
def build():
    options = ["FLAGOS_TORCH=OFF", "FLAGOS_OPENCL=OFF", "FLAGOS_GUI=OFF", "FLAGOS_TESTS=OFF", "FLAGOS_FUZZ=ON",
               f"CMAKE_C_FLAGS={FLAGS}", f"CMAKE_CXX_FLAGS={FLAGS}", "CMAKE_BUILD_TYPE=None"]
    steps = [["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *[f"-D{o}" for o in options]],
             ["ninja", "-C", BUILD, "-j", os.environ.get("FLAGOS_JOBS") or str(os.cpu_count()), *[f"fuzz_{t}" for t in TARGETS]]]
    for step in steps:
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout[-4000:]
    return BUILD


@pytest.mark.parametrize("target", TARGETS)
def test_target(build, target, tmp_path):
    runs, seeds = TARGETS[target]
    own = os.path.join(HERE, "seeds", target)
    last = tmp_path / "input"
    environment = {**os.environ, "FUZZ_LAST_INPUT": str(last), "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
                   "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([os.path.join(build, "fuzz", f"fuzz_{target}"), f"-runs={runs}", *seeds, *([own] if os.path.isdir(own) else [])],
                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=900)
    kept = last.read_bytes() if last.exists() else b""
    assert done.returncode == 0, f"{done.stdout[-6000:]}\ninput ({len(kept)} bytes): {kept[:400]!r}"
    assert f"{runs} mutations" in done.stdout
