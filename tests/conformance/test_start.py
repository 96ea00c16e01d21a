"""How the backend comes up, and how it stays out of the way when it cannot."""
import os
import re
import subprocess
import sys

import pytest
from support import good, python

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

USES = "x = torch.ones(3, device='npu:0') * 2; print(x.device, x.sum().item())"


@pytest.mark.parametrize("imports", ["import torch", "import flagos; import torch", "import torch; import flagos"])
def test_import_order_does_not_matter(imports):
    assert good(f"{imports}\n{USES}") == "npu:0 6.0\n"


def test_autoload_off_means_no_device_and_an_explicit_load_brings_it():
    code = """
        import torch
        try:
            torch.device("npu:0")
            print("named")
        except RuntimeError:
            print("unnamed")
        import flagos._backend
        flagos._backend.load()
        print(torch.ones(2, device="npu").sum().item())
    """
    assert good(code, TORCH_DEVICE_BACKEND_AUTOLOAD=0) == "unnamed\n2.0\n"


def test_import_alone_opens_no_device():
    assert good("import torch; print(torch.npu.is_available(), torch.npu.device_count(), torch.npu.is_initialized())") == (
        "True 1 False\n")


def test_the_published_check_prints_what_it_promises():
    done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "check_device.py")], capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"npu:0 \S.*", lines[0])
    assert lines[1] == "torch.Size([1024, 1024])"
    assert abs(float(lines[2])) < 1e6
    assert int(lines[3]) == 3 * 1024 * 1024 * 4


def test_a_device_that_does_not_exist_is_refused_with_both_numbers():
    code = """
        import torch
        for make in (lambda: torch.zeros(1, device="npu:7"), lambda: torch.zeros(1).to("npu:7"),
                     lambda: torch.npu.set_device(7), lambda: torch.npu.get_device_name(7)):
            try:
                make()
                print("made")
            except RuntimeError as error:
                print(str(error).splitlines()[0])
    """
    lines = good(code).splitlines()
    assert lines == ["npu:7 does not exist: this machine has 1 device (npu:0)."] * 4


def test_no_driver_leaves_torch_working():
    code = """
        import torch
        print(torch.npu.is_available(), torch.npu.device_count(), torch.ones(2).sum().item())
        try:
            torch.ones(2, device="npu:0")
        except RuntimeError as error:
            print(error)
    """
    out = good(code, OCL_ICD_VENDORS="/nonexistent", OCL_ICD_FILENAMES="")
    assert out.startswith("False 0 2.0\n")
    assert "flagos doctor" in out


def test_a_broken_rule_file_is_a_warning_with_place_and_reason(tmp_path):
    path = tmp_path / "rules.json"
    code = "import torch\nx = torch.ones(4, 4, device='npu'); print((x @ x).sum().item())"
    for name, data, place, why in ((path, b"\xa2\xff\x1b[31m", ":1:1: ", "invalid literal"), (path, b"", ":1:1: ", "unexpected end"),
                                   (path, b'{"version":1,"rules":[{"op":"aten::mm","use":"opencl.gem.tiled"}]}', ":1:46: ", "did you mean opencl.gemm.tiled?"),
                                   (tmp_path / "\udcff.json", None, ": ", "cannot open")):
        if data is not None:
            path.write_bytes(data)
        status, out, err = python(code, FLAGOS_RULES=name)
        assert (status, out) == (0, "64.0\n"), err
        assert err.count("UserWarning") == 1 and f".json{place}" in err and why in err, err


def test_a_second_owner_of_the_slot_is_named_and_torch_goes_on():
    code = """
        import torch, types, sys
        torch.utils.rename_privateuse1_backend("other")
        module = types.ModuleType("torch_other"); module.is_available = lambda: False
        torch._register_device_module("other", module)
        import flagos._backend
        flagos._backend.load()
        print(flagos._backend.state())
        print(torch.ones(2).sum().item())
    """
    status, out, err = python(code, TORCH_DEVICE_BACKEND_AUTOLOAD=0)
    assert status == 0, err
    sentence = out.splitlines()[0]
    assert "torch_other" in sentence and "flagos" in sentence and "'npu'" in sentence
    assert out.splitlines()[1] == "2.0"
    assert err.count("\n") == 1 and sentence in err


def test_another_device_name():
    code = """
        import torch
        x = torch.ones(2, device="ascend:0")
        print(x.device, x.is_ascend, torch.ascend.device(0), x.ascend().device, torch.npu if hasattr(torch, "npu") else None)
    """
    assert good(code, FLAGOS_DEVICE_NAME="ascend") == "ascend:0 True ascend:0 ascend:0 None\n"


def test_a_bad_device_name_is_one_sentence():
    status, out, err = python("import torch; print(torch.ones(2).sum().item())", FLAGOS_DEVICE_NAME="nn")
    assert status == 0 and out == "2.0\n"
    assert err.count("\n") == 1 and "FLAGOS_DEVICE_NAME=nn" in err


def test_spawned_children_have_the_device():
    script = os.path.join(ROOT, "tests", "conformance", "spawned.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr


def test_forked_data_loader_workers_are_safe():
    code = """
        import torch
        from torch.utils.data import DataLoader, Dataset
        data = torch.arange(12, dtype=torch.float32).reshape(6, 2)
        kept = torch.ones(2, device="npu") * 3          # the device is open before the fork
        class Rows(Dataset):
            def __len__(self): return 6
            def __getitem__(self, i): return data[i], torch.npu._is_in_bad_fork()
        rows, bad = [], []
        for batch, flag in DataLoader(Rows(), batch_size=2, num_workers=2):
            rows.append(batch.to("npu") * kept)
            bad += flag.tolist()
        print(torch.cat(rows).sum().item(), all(bad), torch.npu._is_in_bad_fork())
    """
    assert good(code) == "198.0 True False\n"


def test_a_kernel_in_a_forked_child_is_an_error_and_not_a_hang():
    code = """
        import os, torch
        x = torch.ones(4, device="npu")
        (x + 1).cpu()
        torch.npu.synchronize()
        pid = os.fork()
        if pid == 0:
            try:
                y = x + 1
                torch.npu.synchronize()
                os._exit(0)
            except RuntimeError as error:
                os._exit(17 if "fork" in str(error) else 18)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status))
        print((x + 1).sum().item())
    """
    lines = good(code, FLAGOS_ROUTE="opencl").splitlines()
    assert lines == ["17", "8.0"]


def test_unknown_settings_are_named():
    _, _, err = python("import torch", FLAGOS_FALBACK="warn")
    assert "FLAGOS_FALBACK" in err and "FLAGOS_FALLBACK" in err


@pytest.mark.parametrize("setting, said", [
    ({"FLAGOS_MEMORY_LIMIT": "lots"}, "FLAGOS_MEMORY_LIMIT=lots is not a number of bytes. Write a number, or one with K, M, G or T (8G)"),
    ({"FLAGOS_TELEMETRY_TCP": "70000"}, "FLAGOS_TELEMETRY_TCP=70000 is no port. Use 1 to 65535, or 0 for any free port"),
    ({"FLAGOS_BOGUS": "1"}, "FLAGOS_BOGUS is not a FlagOS setting; `flagos doctor` lists them"),
    ({"FLAGOS_ROUT": "host"}, "FLAGOS_ROUT is not a FlagOS setting; did you mean FLAGOS_ROUTE?"),
])
def test_a_bad_setting_is_said_once(setting, said):
    code = """
        import sys, torch, torch.multiprocessing as mp
        try: torch.ones(2, device="npu").add_(1).cpu()
        except RuntimeError as error: print(error, file=sys.stderr)
        child = mp.get_context("spawn").Process(target=print, args=("child",))
        child.start(); child.join()
    """
    status, out, errors = python(code, **setting)
    assert (status, out) == (0, "child\n") and errors.count(said) == 1 and errors.count(next(iter(setting))) == 1 + ("mean" in said), errors


def test_an_index_beyond_eight_bits_is_refused_where_it_is_seen():
    """torch.device() and .to() with a string wrap such an index inside PyTorch, before any backend sees it (docs/pytorch.md)."""
    code = """
        import torch
        x, m = torch.ones(1), torch.nn.Linear(1, 1)
        for i in (128, 256, 300):
            for make in (lambda: torch.npu.set_device(i), lambda: torch.npu.set_device(f"npu:{i}"), lambda: x.npu(i), lambda: m.npu(i),
                         lambda: torch.npu.device(i), lambda: torch.npu.synchronize(i), lambda: torch.npu.get_device_name(f"npu:{i}"),
                         lambda: torch.npu.memory_allocated(i), lambda: torch.npu.Stream(device=i), lambda: torch.npu.get_rng_state(i)):
                try: make(); print("made")
                except RuntimeError as error: assert str(error).startswith(f"npu:{i} does not exist: this machine has "), error
        for name in ("npu:300", "npu:128"):
            try: x.to(name); print("made")
            except RuntimeError as error: assert "does not exist" in str(error), error
        print(torch.npu.current_device())
    """
    assert good(code) == "0\n"
