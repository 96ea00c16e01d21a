"""Pinned memory, copies that need not wait, statistics, snapshots and what is said when memory runs out."""
import json

import pytest
from support import good

MODES = [pytest.param({}, id="shared"), pytest.param({"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"}, id="discrete")]


@pytest.mark.parametrize("mode", MODES)
def test_copies_that_need_not_wait_are_right(mode):
    """Source freed or changed at once, strided and converting copies, both directions, with work pending."""
    code = """
        import torch
        torch.manual_seed(0)
        wrong = 0
        for round in range(40):
            size = 1000 + 37 * round
            host = torch.randn(size, size // 10)
            for source in (host.pin_memory(), host.clone(), host.t().contiguous().t().pin_memory(), host.pin_memory()[:, ::2]):
                expected = source.clone()
                up = source.to("npu", non_blocking=True)
                half = source.to("npu", torch.float16, non_blocking=True)
                if not source.is_pinned(): source.zero_()      # pageable memory may be changed at once
                del source
                up2 = up * 2
                down = up2.to("cpu", non_blocking=True)
                target = torch.empty(expected.shape, pin_memory=True)
                target.copy_(up2, non_blocking=True)
                torch.npu.synchronize()
                wrong += (not torch.equal(up.cpu(), expected)) + (not torch.equal(half.cpu(), expected.half()))
                wrong += (not torch.equal(down, expected * 2)) + (not torch.equal(target, expected * 2))
        print(wrong)
    """
    assert good(code, **mode) == "0\n"


@pytest.mark.parametrize("mode", MODES)
def test_pinned_memory_is_not_reused_while_a_copy_reads_it(mode):
    code = """
        import torch
        wrong = 0
        sink = []
        for round in range(200):
            pinned = torch.full((50_000,), float(round)).pin_memory()
            sink.append(pinned.to("npu", non_blocking=True))
            del pinned
            torch.full((50_000,), -1.0).pin_memory()   # may get the same pages
        torch.npu.synchronize()
        print(sum(not (t == i).all().item() for i, t in enumerate(sink)), torch.npu.host_memory_stats()["active_bytes.current"])
    """
    assert good(code, **mode) == "0 0\n"


@pytest.mark.parametrize("mode", MODES)
def test_loaders_that_pin(mode):
    code = """
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        torch.ones(1, device="npu") + 1
        data = TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
        for workers in (0, 2):
            total, pinned = 0, True
            for x, y in DataLoader(data, batch_size=5, num_workers=workers, pin_memory=True):
                pinned &= x.is_pinned() and y.is_pinned()
                total += (x.to("npu", non_blocking=True).sum(1) * y.to("npu", non_blocking=True)).sum().item()
            print(pinned, total == (data.tensors[0].sum(1) * data.tensors[1]).sum().item())
    """
    assert good(code, **mode) == "True True\nTrue True\n"


def test_statistics_of_the_accelerator_module():
    code = """
        import torch
        a = torch.accelerator
        base = a.memory_allocated()
        x = torch.empty(1 << 20, dtype=torch.uint8, device="npu")
        y = torch.empty(1 << 18, dtype=torch.uint8, device="npu")
        assert a.memory_allocated() - base == (1 << 20) + (1 << 18) == torch.npu.memory_allocated() - base
        peak = a.max_memory_allocated()
        del y
        assert a.max_memory_allocated() == peak and a.memory_allocated() - base == 1 << 20
        a.reset_peak_memory_stats()
        assert a.max_memory_allocated() == a.memory_allocated()
        assert a.memory_reserved() >= a.memory_allocated() and a.max_memory_reserved() >= a.memory_reserved()
        stats = a.memory_stats()
        assert stats["allocated_bytes.all.current"] == a.memory_allocated()
        made = stats["allocation.all.allocated"]
        torch.empty(5, device="npu")
        assert a.memory_stats()["allocation.all.allocated"] == made + 1
        a.reset_accumulated_memory_stats()
        assert a.memory_stats()["allocation.all.allocated"] == 0
        free, total = a.get_memory_info()
        assert 0 < free < total
        del x
        reserved = a.memory_reserved()
        a.empty_cache()
        assert a.memory_reserved() < reserved
        a.memory.empty_host_cache()
        print(a.current_device_index(), a.device_count(), str(a.current_accelerator()), a.is_available())
    """
    assert good(code) == "0 1 npu True\n"


def test_snapshots_are_in_torchs_own_format(tmp_path):
    path = tmp_path / "snapshot.pickle"
    code = f"""
        import json, pickle, torch
        torch.npu.memory._record_memory_history()
        def make(n): return torch.empty(n, dtype=torch.uint8, device="npu")
        kept = make(1 << 20)
        gone = torch.empty(1 << 19, dtype=torch.uint8, device="npu")
        address = gone.data_ptr()
        del gone
        torch.npu.memory._dump_snapshot({str(path)!r})
        torch.npu.memory._record_memory_history(None)
        from torch.cuda import _memory_viz as viz
        snapshot = pickle.load(open({str(path)!r}, "rb"))
        texts = [viz.segsum(snapshot), viz.trace(snapshot), viz.segment_plot(snapshot), viz.trace_plot(snapshot)]
        blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
        for s in snapshot["segments"]:
            assert sum(b["size"] for b in s["blocks"]) == s["total_size"] and s["device"] == 0
            assert s["allocated_size"] == sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated")
        held = [b for b in blocks if b["state"] == "active_allocated"]
        assert sum(b["size"] for b in held) == torch.npu.memory_allocated()
        assert [b["address"] for b in held] == [kept.data_ptr()]
        events = [(e["action"], e["addr"] == address, e["size"], e["frames"][0]["line"] if e["frames"] else None) for e in snapshot["device_traces"][0]]
        print(json.dumps([held[0]["frames"][0]["line"], held[0]["frames"][0]["name"], events, [len(t) > 100 for t in texts]]))
        assert torch.accelerator.memory._snapshot()["segments"] == torch.npu.memory_snapshot()
    """
    line, name, events, texts = json.loads(good(code))
    assert (line, name) == (5, "<module>") or (line, name) == (4, "make")
    assert texts == [True] * 4
    assert [e[:3] for e in events] == [["segment_alloc", False, 64 << 20], ["alloc", False, 1 << 20], ["alloc", True, 1 << 19], ["free_requested", True, 1 << 19],
                                       ["free_completed", True, 1 << 19]]
    assert events[2][3] == 6


def test_the_trace_of_a_snapshot_tells_of_segments():
    code = """
        import torch
        torch.ones(1, device="npu"); torch.npu.empty_cache()
        torch.npu.memory._record_memory_history()
        size = 200 << 20
        big = torch.empty(size, dtype=torch.uint8, device="npu"); address = big.data_ptr()
        part = torch.empty(10, device="npu")
        del big
        torch.npu.empty_cache()
        snapshot = torch.npu.memory._snapshot()
        events = [e for e in snapshot["device_traces"][0] if e["addr"] == address]
        print([(e["action"], e["size"] >= size) for e in events], events[0]["frames"][0]["line"], address in [s["address"] for s in snapshot["segments"]])
        torch.npu.memory._record_memory_history(None)
        from torch.cuda import _memory_viz
        print([word in _memory_viz.trace(snapshot) for word in ("cudaMalloc", "cudaFree")])
    """
    lines = good(code).splitlines()
    assert lines == ["[('segment_alloc', True), ('alloc', True), ('free_requested', True), ('free_completed', True), ('segment_free', True)] 6 False", "[True, True]"]


def test_out_of_memory_names_request_free_and_the_lines_that_hold(tmp_path):
    script = tmp_path / "hungry.py"
    script.write_text("import torch\nimport sys\n"
                      "big = torch.empty(30 << 20, dtype=torch.uint8, device='npu')\n"
                      "small = [torch.empty(1 << 20, dtype=torch.uint8, device='npu') for _ in range(5)]\n"
                      "try:\n"
                      "    torch.empty(60 << 20, dtype=torch.uint8, device='npu')\n"
                      "except torch.OutOfMemoryError as error:\n"
                      "    print(error)\n"
                      "del big\n"
                      "print(torch.empty(25 << 20, dtype=torch.uint8, device='npu').shape)\n")
    out = good(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", FLAGOS_MEMORY_LIMIT="64M")
    text = out.splitlines()
    assert "npu:0" in text[0] and "requested 60 MiB" in text[0] and "free 29 MiB" in text[0] and "of 64 MiB" in text[0], out
    holders = text[text.index("Largest holders:") + 1:-1]
    assert [h.split(": ")[1] for h in holders[:2]] == [f"{script}:3", f"{script}:4"], out
    assert "30 MiB in 1 block:" in holders[0] and "5 MiB in 5 blocks:" in holders[1]
    assert text[-1] == f"torch.Size([{25 << 20}])"


def test_host_view_is_the_same_memory_and_waits():
    code = """
        import numpy as np, torch
        x = torch.zeros(3, 4, device="npu")
        for _ in range(50): x.add_(1)
        v = torch.npu.host_view(x)
        a = v.numpy()
        print(a.sum(), v.device, v.data_ptr() == x.data_ptr(), v.is_contiguous())
        a[1, 2] = -5
        print(x[1, 2].item(), torch.npu.host_view(x.t()).stride(), np.from_dlpack(torch.npu.host_view(x))[1, 2])
        b = np.from_dlpack(x, device="cpu")
        b[0, 0] = 9
        print(x[0, 0].item())
        del x
        torch.empty(12, device="npu").fill_(7)
        print(a[1, 2], v.sum().item())     # the view keeps the memory alive
        try: torch.npu.host_view(torch.ones(2))
        except RuntimeError as error: print(error)
    """
    assert good(code, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="allow") == (
        "600.0 cpu True True\n-5.0 (1, 4) -5.0\n9.0\n-5.0 504.0\nhost_view takes an npu tensor; got one on cpu\n")


def test_host_view_is_refused_where_memory_is_not_shared():
    code = """
        import numpy as np, torch
        x = torch.ones(3, device="npu")
        try: torch.npu.host_view(x)
        except RuntimeError as error: print("npu:0" in str(error), ".cpu()" in str(error))
        print(np.from_dlpack(x, device="cpu").sum())
        try: np.from_dlpack(x, device="cpu", copy=False); print("a copy was made")
        except BufferError as error: print("npu:0" in str(error))
    """
    assert good(code, FLAGOS_SHARED_MEMORY="0", FLAGOS_FALLBACK="allow") == "True True\n3.0\nTrue\n"
