"""Measured choice: times are taken once, before the first use, without any effect on the program, and kept for later runs."""
import json
import os

import pytest
from support import good, python

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

PROGRAM = """
    import hashlib, json, torch
    torch.manual_seed(0)
    a, b = torch.randn(700, 900), torch.randn(700, 900)
    x, y = a.to("npu"), b.to("npu")
    results = [x + y, x @ y.T, x.softmax(1), x.sum(0), torch.nn.functional.gelu(x), torch.nn.functional.layer_norm(x, [900]),
               torch.nn.functional.conv2d(x[:512, :784].reshape(8, 64, 28, 28), y[:64, :576].reshape(64, 64, 3, 3), padding=1)]
    digest = hashlib.sha256(b"".join(r.cpu().numpy().tobytes() for r in results)).hexdigest()
    kernels = {op: kernel for op, kernel, calls, launches in torch.flagos._C.kernel_log()}
    print(json.dumps([digest, kernels]))
"""


def times(cache):
    path = cache / "measured.json"
    if not path.exists():
        return {}
    (device, shapes), = json.loads(path.read_text())["devices"].items()
    return shapes


def run(cache, program=PROGRAM, **env):
    return json.loads(good(program, FLAGOS_CACHE_DIR=str(cache), FLAGOS_FALLBACK="allow", **env).splitlines()[-1])


def test_the_same_program_takes_the_same_routes_again(tmp_path):
    first = run(tmp_path, FLAGOS_MEASURE="on")
    shapes = times(tmp_path)
    for op in ("aten::add.out", "aten::mm.out", "aten::_softmax.out", "aten::sum.IntList_out", "aten::gelu.out",
               "aten::native_layer_norm", "aten::convolution_overrideable"):
        (kept,) = [v for k, v in shapes.items() if k.startswith(op + "(")]
        assert len(kept) == 2 and "host.aten" in kept and all(m["seconds"] > 0 and m["runs"] >= 1 for m in kept.values()), (op, kept)
        (other,) = set(kept) - {"host.aten"}
        # The wait for the queue is counted for the host: it wins only where it is faster by more than nothing.
        if first[1][op] == "host.aten":
            assert kept["host.aten"]["seconds"] < kept[other]["seconds"]
        else:
            assert first[1][op] == other
    before = (tmp_path / "measured.json").read_bytes()
    for measure in ("on", "use", None):
        assert run(tmp_path, FLAGOS_MEASURE=measure) == first
    assert (tmp_path / "measured.json").read_bytes() == before


def test_kept_times_choose_and_forgetting_them_undoes_it(tmp_path):
    run(tmp_path, FLAGOS_MEASURE="on")
    path = tmp_path / "measured.json"
    document = json.loads(path.read_text())
    for shapes in document["devices"].values():
        for kept in shapes.values():
            for candidate, m in kept.items():
                m["seconds"] = 1e-6 if candidate == "host.aten" else 1.0
    path.write_text(json.dumps(document))
    on_host = run(tmp_path)[1]
    assert {on_host[op] for op in ("aten::add.out", "aten::mm.out", "aten::gelu.out")} == {"host.aten"}
    assert run(tmp_path, FLAGOS_MEASURE="off")[1]["aten::gelu.out"].startswith("opencl.")
    program = "import subprocess, sys; sys.exit(subprocess.run([%r, *%r]).returncode)"
    flagos = os.path.join(ROOT, "build", "bin", "flagos")
    shown = good(program % (flagos, ["explain", "aten::gelu.out", "--shapes", "[700,900]"]), FLAGOS_CACHE_DIR=str(tmp_path))
    assert "chosen: host.aten: measured fastest of" in shown and "timed to choose: 1 s in " in shown and "timed to choose: 1 us in " in shown
    said = good(program % (flagos, ["route", "forget", "--op", "aten::gelu"]), FLAGOS_CACHE_DIR=str(tmp_path))
    assert said == "forgot the times of 1 shape of aten::gelu\n"
    after = run(tmp_path)[1]
    assert after["aten::gelu.out"].startswith("opencl.") and after["aten::add.out"] == "host.aten"


def test_measuring_leaves_no_trace_in_values_statistics_or_counts(tmp_path):
    code = """
        import torch
        def work(device):
            torch.manual_seed(3)
            x = torch.randn(600, 800).to(device); y = torch.full((600, 800), 2.0).to(device)
            version = x._version
            x.add_(y); x.mul_(x)                      # the result is an argument
            assert x._version == version + 2
            out = torch.zeros(600, 800).to(device)
            torch.add(x, y, out=out); torch.sub(out, x, out=out[:])
            norm = torch.nn.BatchNorm1d(800).to(device)
            z = norm(x)
            generator = torch.npu.get_rng_state() if device == "npu" else None
            w = torch.nn.functional.gelu(x); v = x @ y.T; s = x.sum()
            if device == "npu": assert torch.equal(generator, torch.npu.get_rng_state())
            return [t.cpu() for t in (x, out, z, norm.running_mean, norm.running_var, norm.num_batches_tracked, w, v, s)]
        for mine, theirs in zip(work("npu"), work("cpu")): torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        log = torch.flagos._C.kernel_log()
        print([sum(n for name, kernel, n, launches in log if name == op) for op in ("aten::add.out", "aten::mul.out", "aten::sub.out", "aten::gelu.out", "aten::mm.out", "aten::sum.IntList_out")])
    """
    assert good(code, FLAGOS_CACHE_DIR=str(tmp_path), FLAGOS_MEASURE="on").splitlines()[-1] == "[3, 1, 1, 1, 1, 1]"   # the batch counter is an addition too
    assert any(k.startswith("aten::add.out(") for k in times(tmp_path)) and not any("batch_norm(" in k for k in times(tmp_path))


def test_the_memory_of_trials_is_in_no_peak(tmp_path):
    """The results of tried candidates are up to eight at a time; the program's own peak is one."""
    code = """
        import json, torch
        x = torch.randn(600, 800, device="npu")
        torch.npu.synchronize()
        start = torch.npu.memory_allocated(); torch.npu.reset_peak_memory_stats()
        y = torch.nn.functional.gelu(x); z = x.softmax(1); del y, z
        torch.npu.synchronize()
        stats = torch.npu.memory_stats()
        print(json.dumps([torch.npu.max_memory_allocated() - start, torch.accelerator.max_memory_allocated() - start,
                          stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"]]))
    """
    off = run(tmp_path / "off", code, FLAGOS_MEASURE="off")
    assert run(tmp_path / "on", code, FLAGOS_MEASURE="on") == off
    assert times(tmp_path / "on") and off[0] == off[1] and off[2] == 2 * 600 * 800 * 4


@pytest.mark.parametrize("env", [{"FLAGOS_MEASURE": None}, {"FLAGOS_MEASURE": "use"}, {"FLAGOS_MEASURE": "off"},
                                 {"FLAGOS_MEASURE": "on", "FLAGOS_ROUTE": "opencl"}, {"FLAGOS_MEASURE": "on", "FLAGOS_ROUTE": "host"}])
def test_nothing_is_timed_unless_asked_for(tmp_path, env):
    run(tmp_path, **env)
    assert times(tmp_path) == {}


def test_nothing_is_timed_and_no_time_chooses_under_deterministic_algorithms(tmp_path):
    code = """
        import json, torch
        x = torch.randn(900, 900, device="npu")
        def kernels(): return {op: kernel for op, kernel, calls, launches in torch.flagos._C.kernel_log()}
        torch.use_deterministic_algorithms(True)
        torch.nn.functional.gelu(x); first = kernels()["aten::gelu.out"]
        torch.use_deterministic_algorithms(False)
        for _ in range(3): torch.nn.functional.gelu(x)
        seen = sorted(k for op, k, *_ in torch.flagos._C.kernel_log() if op == "aten::gelu.out")
        torch.use_deterministic_algorithms(True)
        before = sum(n for op, k, n, _ in torch.flagos._C.kernel_log() if op == "aten::gelu.out" and k == "host.aten")
        torch.nn.functional.gelu(x)
        after = sum(n for op, k, n, _ in torch.flagos._C.kernel_log() if op == "aten::gelu.out" and k == "host.aten")
        print(json.dumps([first, seen, before, after]))
    """
    assert run(tmp_path, code.replace("torch.use_deterministic_algorithms(False)", "pass"), FLAGOS_MEASURE="on")
    assert times(tmp_path) == {}
    run(tmp_path, FLAGOS_MEASURE="on")
    path = tmp_path / "measured.json"
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1'))   # all slow ...
    document = json.loads(path.read_text())
    for shapes in document["devices"].values():
        shapes["aten::gelu.out(float32[1024,1024] contiguous)"] = {"host.aten": {"seconds": 1e-6}, "opencl.pointwise.wide": {"seconds": 1}}
    path.write_text(json.dumps(document))
    first, seen, before, after = run(tmp_path, code)
    assert first == "opencl.pointwise.wide" and seen == ["host.aten", "opencl.pointwise.wide"] and before == after == 3


def test_a_folder_that_cannot_be_written_keeps_the_models_choice():
    status, out, errors = python(PROGRAM, FLAGOS_CACHE_DIR="/proc/nowhere", FLAGOS_MEASURE="on")
    assert status == 0, errors
    plain = json.loads(good(PROGRAM, FLAGOS_CACHE_DIR="/proc/nowhere", FLAGOS_MEASURE="off").splitlines()[-1])
    assert json.loads(out.splitlines()[-1]) == plain


def test_threads_measure_one_after_the_other(tmp_path):
    code = """
        import threading, torch
        x = torch.randn(500, 700, device="npu"); want = torch.tanh(x.cpu())
        bad = []
        def work(i):
            for f, g in ((torch.tanh, None), (torch.sigmoid, None)):
                for _ in range(5):
                    r = f(x)
            if not torch.allclose(torch.tanh(x).cpu(), want, atol=1e-5): bad.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]
        print(bad, len({k for op, k, *_ in torch.flagos._C.kernel_log() if op == "aten::tanh.out"}))
    """
    assert good(code, FLAGOS_CACHE_DIR=str(tmp_path), FLAGOS_MEASURE="on").splitlines()[-1] == "[] 1"


def test_an_earlier_bad_index_is_not_lost_in_a_measurement(tmp_path):
    code = """
        import torch
        x, i = torch.randn(900, 900, device="npu"), torch.tensor([7, 901]).to("npu")
        torch.flagos._C.route_set("aten::index_select", "opencl.index.wide")
        torch.npu.synchronize()
        x.index_select(0, i)
        try: torch.nn.functional.gelu(x); torch.npu.synchronize(); print("lost")
        except RuntimeError as error: print("index 901 is out of bounds" in str(error), "index_select" in str(error))
        want = torch.nn.functional.gelu(x.cpu())
        print(torch.allclose(torch.nn.functional.gelu(x).cpu(), want, atol=1e-5))
    """
    assert good(code, FLAGOS_CACHE_DIR=str(tmp_path), FLAGOS_MEASURE="on").splitlines() == ["True True", "True"]
