"""`flagos doctor`: the settings with values and warnings, drivers, and PyTorch found by its files."""
import json
import os
import subprocess

import pytest
from conftest import BUILD


@pytest.fixture
def site(tmp_path):
    """A virtual environment with a torch of our making: version.py is all that doctor reads."""
    folder = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    (folder / "torch").mkdir(parents=True)

    def make(version="2.13.0+cpu", cuda="None", flagos=True, other=None):
        (folder / "torch" / "version.py").write_text(f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n")
        if flagos:
            (folder / "flagos").mkdir(exist_ok=True)
            (folder / "flagos" / "__init__.py").write_text("")
        if other:
            info = folder / f"{other}-1.0.dist-info"
            info.mkdir()
            (info / "entry_points.txt").write_text(f"[console_scripts]\nx = y:z\n\n[torch.backends]\n{other} = {other}:_autoload\n")
        return str(tmp_path / "venv")
    return make


def doctor(flagos, **env):
    rc, out, err = flagos("doctor", "--json", **env)
    assert err == ""
    return rc, json.loads(out)


def test_nothing_wrong(flagos, site):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site())
    assert rc == 0 and doc["problems"] == []
    assert doc["torch"]["version"] == "2.13.0+cpu" and doc["torch"]["flagos_package"] is True and doc["torch"]["cuda"] is None
    assert doc["opencl"]["loader"].endswith("libOpenCL.so.1") and doc["opencl"]["drivers"]
    assert doc["devices"][0]["device"] == "npu:0"


def test_settings_with_values_and_warnings(flagos, site):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(), FLAGOS_FALBACK="warn", FLAGOS_ROUTE="sideways", FLAGOS_INCLUDE_CPU="1")
    rows = {s["name"]: s for s in doc["settings"]}
    assert rows["FLAGOS_INCLUDE_CPU"]["value"] == "1" and rows["FLAGOS_RULES"]["value"] is None
    assert all(s["effect"] and s["default"] for s in doc["settings"])
    assert rc == 1
    assert any("FLAGOS_FALBACK" in w and "FLAGOS_FALLBACK" in w for w in doc["warnings"])
    assert any("sideways" in w for w in doc["warnings"])


@pytest.mark.parametrize("name, value, words", [
    ("FLAGOS_MEMORY_LIMIT", "lots", ["FLAGOS_MEMORY_LIMIT=lots", "8G"]),
    ("FLAGOS_MEMORY_LIMIT", "1e300", ["more than any device has"]),
    ("FLAGOS_MEMORY_LIMIT", "0", ["no memory at all"]),
    ("FLAGOS_VISIBLE_DEVICES", "0,9", ["'9' names no device", "index 0"]),
    ("FLAGOS_VISIBLE_DEVICES", "0000:ff:00.0", ["'0000:ff:00.0' names no device"]),
    ("FLAGOS_TELEMETRY_TCP", "70000", ["no port"]),
    ("FLAGOS_DEVICE_NAME", "1st", ["no device name"]),
    ("FLAGOS_DEVICE_NAME", "cuda", ["a device of PyTorch's own"]),
    ("FLAGOS_FINGERPRINTS", "/no/such", ["/no/such", "no folder"]),
    ("FLAGOS_ROOT", "/no/such", ["/no/such", "no folder"]),
])
def test_a_value_that_a_process_would_refuse_is_a_problem(flagos, site, name, value, words):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(), **{name: value})
    text = "\n".join(p["what"] for p in doc["problems"])
    assert rc in (1, 3) and all(w in text for w in words), text


@pytest.mark.parametrize("name, value", [
    ("FLAGOS_MEMORY_LIMIT", "8GiB"), ("FLAGOS_VISIBLE_DEVICES", "0"), ("FLAGOS_TELEMETRY_TCP", "0"), ("FLAGOS_DEVICE_NAME", "ai")])
def test_a_good_value_is_no_problem(flagos, site, name, value):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(), **{name: value})
    assert rc == 0, doc["problems"]


def test_cuda_build_says_what_accelerator_means(flagos, site):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site("2.13.0+cu126", "'12.6'"))
    text = json.dumps(doc["problems"])
    assert rc == 1 and doc["torch"]["cuda"] == "12.6"
    assert "torch.accelerator means npu" in text and "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in text


@pytest.mark.parametrize("kwargs, words", [
    ({"version": "2.12.1"}, ["2.12.1", "torch==2.13.0"]),
    ({"flagos": False}, ["flagos/__init__.py", "./dev build"]),
    ({"other": "torch_npu"}, ["torch_npu", "room for one"]),
])
def test_each_problem_says_what_and_what_to_do(flagos, site, kwargs, words):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(**kwargs))
    text = json.dumps(doc["problems"])
    assert rc == 1 and all(w in text for w in words), text


def test_autoload_switched_off_is_a_finding(flagos, site):
    for value, wrong in (("0", True), ("true", True), ("1", False)):
        rc, doc = doctor(flagos, VIRTUAL_ENV=site(), TORCH_DEVICE_BACKEND_AUTOLOAD=value)
        assert rc == (1 if wrong else 0), value


def test_no_driver_names_the_place_that_was_searched(flagos, site, tmp_path):
    gone, empty = str(tmp_path / "gone"), tmp_path / "icd"
    empty.mkdir()
    for folder in (gone, str(empty)):
        # OCL_ICD_VENDORS wins over OPENCL_VENDOR_PATH, as in the loader.
        rc, doc = doctor(flagos, VIRTUAL_ENV=site(), OCL_ICD_VENDORS=folder, OPENCL_VENDOR_PATH="/etc/OpenCL/vendors")
        text = json.dumps(doc["problems"])
        assert rc == 3 and f"{folder} (set by OCL_ICD_VENDORS)" in text and "pocl-opencl-icd" in text, text
        assert "/etc/OpenCL" not in text
        opencl = next(p for p in doc["probes"] if p["name"] == "opencl")
        assert f"{folder} (set by OCL_ICD_VENDORS)" in opencl["why_nothing"]


def test_a_package_named_by_a_pth_file_is_installed(flagos, site, tmp_path):
    environment = site(flagos=False)
    folder = tmp_path / "build" / "python"
    (folder / "flagos").mkdir(parents=True)
    (folder / "flagos" / "__init__.py").write_text("")
    sites = next((tmp_path / "venv").rglob("site-packages"))
    (sites / "flagos.pth").write_text(f"# comment\nimport os\n{folder}\n")
    rc, doc = doctor(flagos, VIRTUAL_ENV=environment)
    assert rc == 0 and doc["torch"]["flagos_package"] is True, doc["problems"]


@pytest.mark.parametrize("name, value, words", [
    ("FLAGOS_CACHE_DIR", "/proc/x", ["/proc/x", "compiles them again", "FLAGOS_CACHE_DIR"]),
    ("FLAGOS_RUNTIME_DIR", "/proc/x", ["/proc/x", "cannot be announced"]),
    ("FLAGOS_RUNTIME_DIR", "TMP/" + "d" * 120, ["too long for a socket"]),
    ("FLAGOS_RULES", "/nonexistent/rules.json", ["/nonexistent/rules.json", "cannot open"]),
])
def test_a_folder_or_file_that_cannot_be_used_is_a_problem(flagos, site, tmp_path, name, value, words):
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(), **{name: value.replace("TMP", str(tmp_path))})
    text = json.dumps(doc["problems"])
    assert rc == 1 and all(w in text for w in words), text


def test_a_refused_rule_is_a_problem_with_its_place(flagos, site, tmp_path):
    path = tmp_path / "rules.json"
    path.write_text('{"version": 1, "rules": [\n{"op": "aten::mm", "use": "opencl.gem.tiled"}]}')
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(), FLAGOS_RULES=str(path))
    assert rc == 1 and "rules.json:2:" in json.dumps(doc["problems"]) and "opencl.gemm.tiled" in json.dumps(doc["problems"])
    path.write_text('{"version": 1, "rules": [{"op": "aten::mm", "use": "opencl.gemm.tiled"}]}')
    rc, doc = doctor(flagos, VIRTUAL_ENV=site(), FLAGOS_RULES=str(path))
    assert rc == 0 and doc["rules"]["rules"] == 1


def test_a_report_that_a_full_disk_cuts_short_is_an_error():
    for command in (["devices"], ["doctor", "--json"], ["explain", "aten::mm", "--shapes", "[2,2] [2,2]"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([os.path.join(BUILD, "bin", "flagos"), *command], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 4 and "not all of the output could be written" in done.stderr, command


def test_home_is_not_named(flagos, site, tmp_path):
    home = str(tmp_path)
    rc, out, _ = flagos("doctor", VIRTUAL_ENV=site(), HOME=home, XDG_CONFIG_HOME="", FLAGOS_RULES=home + "/rules.json")
    assert home not in out and "~/rules.json" in out
