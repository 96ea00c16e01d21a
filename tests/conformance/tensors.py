"""What tensors on the npu must do, as plain functions: test_tensors.py runs them in each memory mode and on each route."""
import copy
import io
import itertools

import torch

D = "npu:0"


def close(a, b, **kw):
    torch.testing.assert_close(a.cpu() if isinstance(a, torch.Tensor) else a, b, **kw)


# ---- copies ----

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool,
          torch.complex64]


def layouts(t):
    """The same 2-D values in several layouts."""
    wide = torch.empty(t.size(0), t.size(1) * 2, dtype=t.dtype)
    wide[:, ::2] = t
    shifted = torch.empty(t.numel() + 3, dtype=t.dtype)
    shifted[3:] = t.reshape(-1)
    return {"plain": t.clone(), "transposed": t.t().contiguous().t(), "every second": wide[:, ::2],
            "with an offset": shifted[3:].view_as(t), "expanded": t[:1].clone().expand(3, t.size(1))}


def copies_keep_values_in_every_layout_and_dtype():
    base = torch.arange(12).reshape(3, 4) - 5
    for src, dst in itertools.product(DTYPES, DTYPES):
        if src == torch.complex64 and dst != torch.complex64:
            continue
        values = base.to(src)
        expected = values.to(dst)
        up = values.to(D)
        close(up, values)
        close(up.to(dst), expected)
        down = torch.empty(3, 4, dtype=dst)
        down.copy_(up)
        close(down, expected)
        target = torch.empty(3, 4, dtype=dst, device=D)
        target.copy_(values)
        close(target, expected)
    for name, view in layouts(torch.randn(3, 4)).items():
        close(view.to(D), view, msg=lambda m: f"{name}: {m}")
        whole = torch.zeros(4, 3, device=D)
        whole.t().copy_(view)
        close(whole.t(), view)
        close(whole.t().contiguous(), view)


def copies_handle_broadcast_zero_size_and_bits():
    row = torch.randn(4)
    t = torch.zeros(3, 4, device=D)
    t.copy_(row)
    close(t, row.expand(3, 4))
    t.copy_(row.to(D) * 2)
    close(t, (row * 2).expand(3, 4))
    assert torch.empty(0, 3).to(D).cpu().shape == (0, 3)
    torch.empty(0, device=D).copy_(torch.empty(0))
    c = torch.randn(3, dtype=torch.complex64)
    up = c.to(D)
    close(up.conj(), c.conj())
    close(up.conj().to("cpu"), c.conj())
    close(torch._neg_view(up.real), -c.real)
    target = torch.zeros(3, dtype=torch.complex64, device=D)
    target.copy_(up.conj())
    close(target, c.conj())
    target.conj().copy_(up)
    close(target, c.conj())
    target.copy_(c.conj())
    close(target, c.conj())


def overlapping_copies_are_refused():
    t = torch.arange(6.0, device=D)
    try:
        t[1:].copy_(t[:-1])
    except RuntimeError:
        return
    raise AssertionError("a copy onto itself, shifted by one, was accepted")


# ---- views, in place, out= ----


def views_share_memory():
    base = torch.zeros(4, 6, device=D)
    base[1:3, ::2].add_(1)
    base.t()[5].fill_(7)
    base.view(-1)[0] = 3
    base.unfold(1, 2, 2)[0, 0, 1] = 9
    expected = torch.zeros(4, 6)
    expected[1:3, ::2].add_(1)
    expected.t()[5].fill_(7)
    expected.view(-1)[0] = 3
    expected.unfold(1, 2, 2)[0, 0, 1] = 9
    close(base, expected)
    assert base.t().data_ptr() == base.data_ptr()
    assert base[1:].data_ptr() == base.data_ptr() + 24
    assert base.view(24).storage().data_ptr() == base.storage().data_ptr()
    z = torch.zeros(2, dtype=torch.complex64, device=D)
    torch.view_as_real(z)[0, 1] = 5
    close(z, torch.tensor([5j, 0], dtype=torch.complex64))


def in_place_on_strided_and_offset_views():
    for op in ("add_", "mul_", "sub_", "clamp_min_", "copy_", "fill_", "zero_", "relu_", "exp_", "addcmul_"):
        cpu = torch.randn(5, 6)
        npu = cpu.to(D)
        for t in (cpu, npu):
            view = t[1:4, 1::2]
            device = t.device
            other = torch.full((3, 3), 0.5, device=device)
            args = {"add_": (other,), "mul_": (other,), "sub_": (other,), "clamp_min_": (0.1,), "copy_": (other,),
                    "fill_": (2.5,), "addcmul_": (other, other)}.get(op, ())
            getattr(view, op)(*args)
        close(npu, cpu, msg=lambda m: f"{op}: {m}")


def out_arguments():
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    npu_a, npu_b = a.to(D), b.to(D)
    out = torch.empty(0, device=D)
    torch.mm(npu_a, npu_b, out=out)
    close(out, a @ b, atol=1e-5, rtol=1e-5)
    wide = torch.zeros(3, 8, device=D)
    torch.add(npu_a, 1, out=wide[:, ::2])
    expected = torch.zeros(3, 8)
    expected[:, ::2] = a + 1
    close(wide, expected)
    doubles = torch.empty(3, 4, dtype=torch.float64, device=D)
    torch.add(npu_a, npu_a, out=doubles)
    close(doubles, (a + a).double())
    values, indices = torch.empty(0, device=D), torch.empty(0, dtype=torch.int64, device=D)
    torch.max(npu_a, dim=1, out=(values, indices))
    close(values, a.max(dim=1).values)
    close(indices, a.max(dim=1).indices)
    torch.mode(npu_a.round(), dim=1, out=(values, indices))
    close(values, a.round().mode(dim=1).values)
    try:
        torch.add(npu_a, npu_a, out=torch.empty(3, 4))
    except RuntimeError as error:
        assert "npu:0" in str(error) and "cpu" in str(error)
    else:
        raise AssertionError("a CPU out= was accepted for npu inputs")


def resize_and_set():
    t = torch.arange(4.0, device=D)
    t.resize_(2, 3)
    close(t.reshape(-1)[:4], torch.arange(4.0))
    s = t.untyped_storage()
    s.resize_(0)
    assert s.nbytes() == 0
    s.resize_(24)
    assert s.nbytes() == 24
    u = torch.empty(0, device=D)
    u.set_(torch.arange(6.0, device=D).untyped_storage(), 2, (2, 2), (2, 1))
    close(u, torch.tensor([[2.0, 3.0], [4.0, 5.0]]))
    v = torch.empty(0, device=D)
    v.set_(u)
    assert v.is_set_to(u)


# ---- arithmetic with numbers and mixed devices ----


def cpu_numbers_beside_npu_tensors():
    x = torch.randn(3)
    up = x.to(D)
    close(up + torch.tensor(2.0), x + 2)
    close(torch.tensor(2.0) * up, x * 2)
    close(up / 3, x / 3)
    assert (up.to(torch.int32) / 2).dtype == torch.float32
    assert (up + torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float32
    y = torch.randn(4, 3)
    close(y.to(D)[torch.tensor([0, 2])], y[[0, 2]])


def mixed_devices_are_refused():
    up, cpu = torch.randn(3, 3, device=D), torch.randn(3, 3)
    index = torch.tensor([0, 1])
    for call in (lambda: torch.mm(up, cpu), lambda: up + cpu, lambda: torch.cat([up, cpu]),
                 lambda: torch.where(up > 0, up, cpu), lambda: torch.nn.functional.embedding(index, up),
                 lambda: torch.index_select(up, 0, index), lambda: torch.nn.functional.cross_entropy(up, torch.tensor([0, 1, 2]))):
        try:
            call()
        except RuntimeError as error:
            assert "npu:0" in str(error) and "cpu" in str(error), error
        else:
            raise AssertionError("tensors on two devices were accepted")


# ---- autograd, modules ----


def gradients_equal_the_cpu():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                                torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(64, 5),
                                torch.nn.LogSoftmax(dim=1))
    twin = copy.deepcopy(model).to(D)
    x, target = torch.randn(3, 2, 8, 8), torch.tensor([0, 3, 4])
    for m, d in ((model, "cpu"), (twin, D)):
        torch.nn.functional.nll_loss(m(x.to(d)), target.to(d)).backward()
    for (name, p), q in zip(model.named_parameters(), twin.parameters()):
        close(q.grad, p.grad, atol=1e-5, rtol=1e-4, msg=lambda m: f"{name}: {m}")


def parameters_keep_their_identity():
    model = torch.nn.Linear(3, 2)
    before = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to(D)
    assert all(a is b for a, b in zip(before, model.parameters()))
    start = model.weight.detach().cpu().clone()
    model(torch.ones(1, 3, device=D)).sum().backward()
    optimizer.step()
    close(model.weight.detach(), start - 0.5)
    model.cpu()
    assert all(a is b for a, b in zip(before, model.parameters()))


def recurrent_cells():
    torch.manual_seed(0)
    x, h = torch.randn(4, 3), torch.randn(4, 5)
    for cell in (torch.nn.LSTMCell(3, 5), torch.nn.GRUCell(3, 5)):
        state = (h, h.clone()) if isinstance(cell, torch.nn.LSTMCell) else h
        expected = cell(x, state)
        twin = copy.deepcopy(cell).to(D)
        moved = tuple(s.to(D) for s in state) if isinstance(state, tuple) else state.to(D)
        got = twin(x.to(D), moved)
        first, second = (expected[0], got[0]) if isinstance(expected, tuple) else (expected, got)
        close(second, first, atol=1e-5, rtol=1e-5)
        first.sum().backward()
        second.sum().backward()
        for p, q in zip(cell.parameters(), twin.parameters()):
            close(q.grad, p.grad, atol=1e-5, rtol=1e-4)
    lstm = torch.nn.LSTM(3, 5, num_layers=2)
    y = torch.randn(6, 2, 3)
    close(copy.deepcopy(lstm).to(D)(y.to(D))[0], lstm(y)[0], atol=1e-5, rtol=1e-5)


# ---- files, text, pickles ----


def save_and_load():
    model = torch.nn.Linear(3, 2).to(D)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for where, device in ((None, D), ("cpu", "cpu"), ("npu", D)):
        file.seek(0)
        state = torch.load(file, map_location=where)
        assert str(state["weight"].device) == device
        close(state["weight"], model.weight.detach().cpu())
    twin = copy.deepcopy(model)
    assert twin.weight.device == model.weight.device and twin.weight is not model.weight


def printing():
    text = repr(torch.tensor([[1.5, -2.0], [float("nan"), 3e8]], device=D))
    assert "1.5000e+00" in text and "nan" in text and "device='npu:0'" in text
    assert repr(torch.tensor([1, 2], device=D)) == "tensor([1, 2], device='npu:0')"
    assert repr(torch.empty(0, device=D)) == "tensor([], device='npu:0')"
    assert f"{torch.tensor(2.5, device=D):.1f}" == "2.5"


# ---- random numbers ----


def seeds_and_states():
    torch.manual_seed(5)
    a = torch.rand(1000, device=D)
    torch.manual_seed(5)
    b = torch.rand(1000, device=D)
    close(a, b.cpu())
    c = torch.rand(1000, device=D)
    assert not torch.equal(b.cpu(), c.cpu())
    state = torch.npu.get_rng_state()
    d = torch.randn(100, device=D)
    torch.npu.set_rng_state(state)
    close(torch.randn(100, device=D), d.cpu())
    g = torch.Generator(device=D).manual_seed(1)
    e = torch.randint(0, 100, (50,), generator=g, device=D)
    g.manual_seed(1)
    close(torch.randint(0, 100, (50,), generator=g, device=D), e.cpu())
    assert 0.4 < a.mean().item() < 0.6 and a.min().item() >= 0 and a.max().item() < 1
    big = torch.randn(20000, device=D)
    assert abs(big.mean().item()) < 0.05 and abs(big.std().item() - 1) < 0.05
    with torch.random.fork_rng(devices=[0], device_type="npu"):
        torch.rand(3, device=D)
    torch.randperm(10, device=D)


# ---- memory, streams, accelerator ----


def memory_is_counted_exactly():
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    t = torch.empty(1 << 20, dtype=torch.uint8, device=D)
    assert torch.npu.memory_allocated() - before == 1 << 20
    view = t[100:200]
    assert torch.npu.memory_allocated() - before == 1 << 20
    del t
    assert torch.npu.memory_allocated() - before == 1 << 20
    del view
    assert torch.npu.memory_allocated() == before
    assert torch.npu.memory_reserved() >= torch.npu.memory_allocated()
    assert torch.npu.max_memory_allocated() >= before + (1 << 20)
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == before
    free, total = torch.npu.mem_get_info()
    assert 0 < free <= total <= torch.npu.get_device_properties().total_memory
    assert torch.accelerator.memory_allocated() == before


def out_of_memory_names_the_request():
    try:
        torch.empty(1 << 46, dtype=torch.uint8, device=D)
    except torch.OutOfMemoryError as error:
        assert "npu:0" in str(error)
    else:
        raise AssertionError("64 TiB were handed out")


def streams_and_events():
    s = torch.npu.Stream()
    event = torch.npu.Event()
    x = torch.ones(1000, device=D)
    with torch.npu.stream(s):
        assert torch.npu.current_stream() == s
        s.wait_stream(torch.npu.default_stream())
        y = x + 1
        event.record(s)
    assert torch.npu.current_stream() == torch.npu.default_stream()
    torch.npu.current_stream().wait_event(event)
    y.record_stream(torch.npu.current_stream())
    close((y * 2).sum(), torch.tensor(4000.0))
    event.synchronize()
    assert event.query() and s.query()
    a, b = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    a.record()
    x.add_(1)
    b.record()
    b.synchronize()
    assert a.elapsed_time(b) >= 0
    with torch.Stream(device=D):
        x.add_(1)
    torch.npu.synchronize()


def the_accelerator_api():
    assert str(torch.accelerator.current_accelerator()) == "npu"
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == torch.npu.device_count()
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    torch.accelerator.memory.empty_host_cache()
    assert torch.accelerator.current_device_index() == 0
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]
    assert torch.accelerator.current_stream() == torch.npu.current_stream()


def the_device_module():
    device = torch.npu.device(0)
    assert str(device) == "npu:0"
    with device:
        assert torch.npu.current_device() == 0
    assert torch.npu.get_device_name(0) == torch.npu.get_device_name("npu:0")
    assert torch.npu.get_device_properties(0).name == torch.npu.get_device_name()
    properties = torch.npu.get_device_properties(0)
    assert torch.npu.get_device_capability() == (properties.major, properties.minor) >= (1, 0)
    # Every fact is a value with its source, or None with its reason.
    for name in ("name", "stable_id", "architecture", "major", "minor", "total_memory", "max_allocation",
                 "multi_processor_count", "clock_mhz", "local_memory", "memory_bandwidth"):
        known = getattr(properties, name) is not None
        assert known == (name in properties.sources) and known != (name in properties.why_missing), name
    assert set(properties.sources.values()) <= {"opencl", "sysfs", "driver", "measured", "table"}
    assert "float32" in properties.supported_dtypes and properties.total_memory >= properties.max_allocation > 0
    assert torch.float16 in torch.npu.get_amp_supported_dtype()
    x = torch.ones(2)
    assert x.npu().is_npu and not x.is_npu
    assert torch.nn.Linear(1, 1).npu().weight.is_npu
    pinned = torch.ones(4).pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    close(pinned.to(D, non_blocking=True), torch.ones(4))


def autocast():
    a, b = torch.randn(4, 4, device=D), torch.randn(4, 4, device=D)
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert torch.mm(a, b).dtype == torch.bfloat16
        assert torch.nn.functional.softmax(torch.mm(a, b), dim=0).dtype == torch.float32
        assert (a + b).dtype == torch.float32
    assert torch.mm(a, b).dtype == torch.float32
    from torch.npu.amp import autocast as same

    assert same is torch.npu.amp.autocast
    for wanted, context in ((torch.float16, torch.npu.amp.autocast()), (torch.bfloat16, torch.npu.amp.autocast(dtype=torch.bfloat16)),
                            (torch.float32, torch.npu.amp.autocast(enabled=False))):
        with context:
            assert torch.mm(a, b).dtype == wanted
        assert torch.npu.amp.autocast(dtype=torch.bfloat16)(torch.mm)(a, b).dtype == torch.bfloat16
    for scaler in (torch.amp.GradScaler("npu", init_scale=4.0), torch.npu.amp.GradScaler(init_scale=4.0)):
        w = torch.nn.Parameter(torch.ones(2, device=D))
        optimizer = torch.optim.SGD([w], lr=1.0)
        scaled = scaler.scale((w * 2).sum())
        close(scaled.detach(), torch.tensor(16.0))
        scaled.backward()
        scaler.step(optimizer)
        scaler.update()
        close(w.detach(), torch.tensor([-1.0, -1.0]))


CHECKS = [f for name, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == __name__
          and name not in ("close", "layouts")]


def main(names, checks=CHECKS):
    import traceback

    torch.set_num_threads(2)
    failed = 0
    for check in checks:
        if names and check.__name__ not in names:
            continue
        torch.manual_seed(0)  # the same numbers in every run, also when one check is run by itself
        try:
            check()
            print("ok", check.__name__, flush=True)
        except Exception:  # noqa: BLE001 - reported, and the rest runs on
            failed += 1
            print("FAILED", check.__name__, flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
