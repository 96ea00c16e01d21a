"""Several devices: two on PoCL. Mixed-device models, gradients across devices, peer copies, state of each device."""
import pytest
from support import good

TWO = {"POCL_DEVICES": "pthread pthread"}
MODES = [pytest.param(TWO, id="shared"), pytest.param({**TWO, "FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"}, id="discrete"),
         pytest.param({**TWO, "FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"}, id="opencl")]


@pytest.mark.parametrize("mode", MODES)
def test_a_model_on_two_devices_trains_as_on_the_cpu(mode):
    code = """
        import copy, torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)
            def forward(self, x):
                x = torch.relu(self.first(x.to(self.first.weight.device)))
                return self.second(x.to(self.second.weight.device))
        torch.manual_seed(0)
        cpu = Net(); npu = copy.deepcopy(cpu)
        npu.first.to("npu:0"); npu.second.to("npu:1")
        optimizers = [torch.optim.Adam(m.parameters(), lr=0.05) for m in (cpu, npu)]
        generator = torch.Generator().manual_seed(1)
        worst = 0.0
        for _ in range(10):
            x, y = torch.randn(9, 6, generator=generator), torch.randint(0, 3, (9,), generator=generator)
            losses = []
            for m, o in zip((cpu, npu), optimizers):
                o.zero_grad()
                out = m(x)
                loss = torch.nn.functional.cross_entropy(out, y.to(out.device)); loss.backward(); o.step(); losses.append(loss.item())
            worst = max(worst, abs(losses[0] - losses[1]) / abs(losses[0]))
        print([str(p.device) for p in npu.parameters()], [str(p.grad.device) for p in npu.parameters()], worst < 1e-4)
    """
    devices = "['npu:0', 'npu:0', 'npu:1', 'npu:1']"
    assert good(code, **mode) == f"{devices} {devices} True\n"


def test_data_parallel_on_one_device_is_the_module():
    code = """
        import torch
        torch.manual_seed(0)
        plain = torch.nn.Linear(3, 2)
        wrapped = torch.nn.DataParallel(plain)
        x = torch.randn(5, 3)
        out = wrapped(x)                                   # moves its inputs, as on other devices
        out.sum().backward()
        print(out.device, plain.weight.grad.device, list(wrapped.state_dict()), wrapped.module is plain)
        print(torch.allclose(out.cpu(), torch.nn.functional.linear(x, plain.weight.cpu(), plain.bias.cpu()), atol=1e-6))
        class Many(torch.nn.Module):
            def forward(self, a, many, scale=1): return a + many["b"][0] * scale
        print(torch.nn.DataParallel(Many())(x, {"b": [x]}, scale=3).device, torch.nn.parallel.data_parallel(plain, x.npu()).shape)
    """
    assert good(code).splitlines() == ["npu:0 npu:0 ['module.weight', 'module.bias'] True", "True", "npu:0 torch.Size([5, 2])"]
    several = """
        import torch
        for ids in (None, [0, 1]):
            try: torch.nn.DataParallel(torch.nn.Linear(3, 2), ids); print("accepted")
            except NotImplementedError as error: print("several npu devices" in str(error))
        print(torch.nn.DataParallel(torch.nn.Linear(3, 2), [1])(torch.ones(1, 3)).device)
    """
    assert good(several, **TWO) == "True\nTrue\nnpu:1\n"


@pytest.mark.parametrize("mode", MODES)
def test_peer_copies_in_every_layout_with_work_pending(mode):
    code = """
        import torch
        wrong = 0
        base = torch.arange(24.0).reshape(4, 6)
        for a, b in (("npu:0", "npu:1"), ("npu:1", "npu:0")):
            for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:3], lambda t: t[:1].expand(4, 6)):
                for dtype in (torch.float32, torch.float16, torch.int64):
                    x = base.to(a)
                    for _ in range(20): x = x + 1
                    source = view(x)
                    expected = view(base + 20)
                    wrong += not torch.equal(source.to(b).cpu(), expected)
                    wrong += not torch.equal(source.to(b, dtype, non_blocking=True).cpu(), expected.to(dtype))
                    target = torch.zeros(expected.shape[::-1], device=b, dtype=dtype).t()
                    target.copy_(source, non_blocking=True)
                    wrong += not torch.equal(target.cpu(), expected.to(dtype))
                    x.zero_()
            z = torch.tensor([1 + 2j, 3j], device=a)
            wrong += not torch.equal(z.conj().to(b).cpu(), torch.tensor([1 - 2j, -3j]))
            wrong += torch.empty(0, 3, device=a).to(b).shape != (0, 3)
        print(wrong)
    """
    assert good(code, **mode) == "0\n"


def test_tensors_on_two_devices_do_not_mix():
    code = """
        import torch
        a, b = torch.ones(3, 3, device="npu:0"), torch.ones(3, 3, device="npu:1")
        for call in (lambda: a + b, lambda: a @ b, lambda: torch.cat([a, b]), lambda: a.add_(b),
                     lambda: torch.where(a > 0, a, b)):
            try: call(); print("mixed")
            except RuntimeError as error: print("npu:0" in str(error) and "npu:1" in str(error))
        try: a[b.long()]; print("mixed")
        except RuntimeError as error: print("same device as the indexed tensor (npu:0)" in str(error))   # PyTorch's own words
        print((a + torch.ones((), device="npu:1").cpu()).sum().item())
    """
    assert good(code, **TWO) == "True\n" * 6 + "18.0\n"


def test_current_device_streams_and_events_of_each_device():
    code = """
        import torch
        with torch.npu.device(1): a = torch.ones(2, device="npu")
        torch.accelerator.set_device_index(1)
        b, index = torch.ones(2, device="npu"), torch.accelerator.current_device_index()
        torch.npu.set_device(0)
        with torch.accelerator.device_index(1): c = torch.npu.current_device()
        s = torch.npu.Stream("npu:1")
        with torch.npu.stream(s): d = (torch.npu.current_device(), torch.npu.current_stream() == s)
        print(a.device, b.device, index, c, d, torch.npu.current_device(), torch.npu.current_stream(1) == torch.npu.default_stream(1))
        x = torch.ones(100_000, device="npu:0")
        for _ in range(40): x.mul_(1.00001)
        done = torch.npu.current_stream(0).record_event()
        torch.npu.current_stream(1).wait_event(done)           # an event of another device
        y = x.to("npu:1")
        print(torch.equal(y.cpu(), x.cpu()), torch.npu.memory_allocated(1) >= 400_000)
        with torch.npu.device_of(y): print(torch.npu.current_device())
        print(torch.empty_like(y).device, torch.randperm(4, device="npu:1").device, torch.sort(y[:5]).indices.device)
    """
    assert good(code, **TWO, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="allow") == (
        "npu:1 npu:1 1 1 (1, True) 0 True\nTrue True\n1\nnpu:1 npu:1 npu:1\n")


def test_seeds_states_and_files_of_each_device():
    code = """
        import copy, io, pickle, torch
        torch.manual_seed(3)
        a, b = torch.rand(1000, device="npu:0"), torch.rand(1000, device="npu:1")
        states = torch.npu.get_rng_state_all()
        c, d = torch.rand(9, device="npu:0"), torch.rand(9, device="npu:1")
        torch.npu.set_rng_state_all(states)
        print(torch.equal(a.cpu(), b.cpu()), torch.equal(torch.rand(9, device="npu:1").cpu(), d.cpu()), len(torch.npu.default_generators))
        with torch.random.fork_rng(devices=[0, 1], device_type="npu"):
            torch.npu.manual_seed_all(9); inside = torch.rand(4, device="npu:1").cpu()
        torch.npu.set_rng_state_all(states)
        torch.npu.manual_seed_all(9)
        print(torch.equal(torch.rand(4, device="npu:1").cpu(), inside), torch.npu.initial_seed())
        file = io.BytesIO(); torch.save({"x": a, "y": b}, file)
        def load(where): file.seek(0); return [str(t.device) for t in torch.load(file, map_location=where).values()]
        print(load(None), load("npu:1"), load({"npu:1": "npu:0"}), load("cpu"))
        print(copy.deepcopy(b).device, pickle.loads(pickle.dumps(b)).device)
    """
    assert good(code, **TWO) == ("True True 2\nTrue 9\n['npu:0', 'npu:1'] ['npu:1', 'npu:1'] ['npu:0', 'npu:0'] ['cpu', 'cpu']\nnpu:1 npu:1\n")
