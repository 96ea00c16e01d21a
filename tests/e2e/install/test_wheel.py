"""The wheel, installed by pip into a clean environment that sees only PyTorch, brings the device and the programs."""
import os
import subprocess
import sys
import zipfile

import pytest
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.path.join(ROOT, "build")
PROGRAMS = ["flagos", "flagos-lsp", "flagos-top"]


def run(*command, **env):
    # The environment of this test run must not help: no path to the build, no torch of another place.
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/", env={**clean, **env})
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheels")
    return run(sys.executable, os.path.join(ROOT, "cmake", "wheel.py"), BUILD, str(out)).strip()


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """A fresh virtual environment; a path file lends it the torch that is here, so that nothing is downloaded."""
    folder = str(tmp_path_factory.mktemp("clean") / "venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = os.path.join(folder, "bin", "python")
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    with open(os.path.join(site, "torch.pth"), "w") as file:
        file.write(os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__))) + "\n")
    before = run(python, "-c", "import torch; print(hasattr(torch, 'npu'))")
    assert before == "False\n", "the clean environment has the backend before the wheel is installed"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--disable-pip-version-check", wheel)
    return folder, site


def test_the_published_check_passes(environment):
    folder, site = environment
    out = run(os.path.join(folder, "bin", "python"), os.path.join(ROOT, "examples", "check_device.py")).splitlines()
    assert out[0].startswith("npu:0 ") and out[1] == "torch.Size([1024, 1024])" and int(out[3]) == 3 * 1024 * 1024 * 4
    where = run(os.path.join(folder, "bin", "python"), "-c", "import torch, flagos._C as c; print(c.__file__, torch.flagos.__file__)")
    assert all(path.startswith(site) for path in where.split())


def test_the_programs_come_along(environment):
    folder, _ = environment
    programs = {name: os.path.join(folder, "bin", name) for name in PROGRAMS}
    assert all(os.access(path, os.X_OK) for path in programs.values())
    assert "npu:0" in run(programs["flagos"], "devices")
    version = run(os.path.join(folder, "bin", "python"), "-c", "import flagos; print(flagos.__version__)").strip()
    for path in programs.values():
        assert version in run(path, "--version")


def test_what_is_inside(wheel):
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    record = [line.split(",")[0] for line in archive.read(next(n for n in names if n.endswith("/RECORD"))).decode().splitlines()]
    assert sorted(record) == sorted(names)
    metadata = archive.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert "Requires-Dist: torch<2.14,>=2.13" in metadata
    module = archive.read(next(n for n in names if "/_C." in n))
    assert ROOT.encode() + b"/build" not in module and b"$ORIGIN/../torch/lib" in module
    assert os.path.basename(wheel).startswith("flagos_devtools-") and f"cp{sys.version_info[0]}{sys.version_info[1]}-linux" in wheel
