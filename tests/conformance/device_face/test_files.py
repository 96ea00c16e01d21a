"""deepcopy, pickle, save and load: values, devices, sharing; files keep PyTorch's own tag and plain torch reads them."""
import textwrap

import pytest
from support import good

MODES = [pytest.param({}, id="shared"), pytest.param({"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"}, id="discrete")]
DTYPES = "[torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]"


@pytest.mark.parametrize("mode", MODES)
def test_copies_keep_values_views_sharing_and_gradients(mode):
    code = f"""
        import copy, io, pickle, torch
        def through_file(x):
            file = io.BytesIO(); torch.save(x, file); file.seek(0); return torch.load(file)
        wrong = []
        for name, way in dict(deepcopy=copy.deepcopy, pickle=lambda x: pickle.loads(pickle.dumps(x)), file=through_file).items():
            for dtype in {DTYPES}:
                x = torch.arange(12).reshape(3, 4).to(dtype).to("npu")
                for view in (x, x.t(), x[1:, ::2], x[0, 0], x[:0]):
                    y = way(view)
                    if str(y.device) != "npu:0" or y.dtype != dtype or y.stride() != view.stride() or not torch.equal(y.cpu(), view.cpu()): wrong.append((name, dtype))
                    if view.numel() and y.data_ptr() == view.data_ptr(): wrong.append((name, dtype, "not a copy"))
            base = torch.zeros(6, device="npu")
            pair = way({{"whole": base, "part": base[2:4]}})
            pair["whole"].fill_(5)
            shared = [0, 0] if name == "pickle" else [5, 5]      # pickle itself writes each tensor's storage, on the CPU too
            if pair["part"].tolist() != shared or base.sum().item() != 0: wrong.append((name, "sharing"))
            p = torch.nn.Parameter(torch.ones(2, device="npu")); q = way(p)
            if not isinstance(q, torch.nn.Parameter) or not q.requires_grad or q.device != p.device: wrong.append((name, "parameter"))
            z = way(torch.tensor([1 + 2j], device="npu").conj())
            if z.cpu().tolist() != [1 - 2j]: wrong.append((name, "conj"))
        print(wrong)
        a = torch.ones(2, device="npu", requires_grad=True)
        try: copy.deepcopy(a * 2); print("copied")
        except RuntimeError as error: print("graph leaves" in str(error))
    """
    assert good(code, **mode) == "[]\nTrue\n"


@pytest.mark.parametrize("mode", MODES)
def test_a_training_run_goes_on_from_its_file(mode, tmp_path):
    path = tmp_path / "run.pt"
    code = f"""
        import copy, torch
        def build():
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)).to("npu")
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)
        g = torch.Generator().manual_seed(1)
        batches = [torch.randn(5, 4, generator=g) for _ in range(6)]
        def train(parts, some):
            for x in some:
                parts[1].zero_grad(); loss = (parts[0](x.to("npu")) ** 2).mean(); loss.backward(); parts[1].step(); parts[2].step()
            return loss.item()
        whole = build(); train(whole, batches[:3])
        torch.save({{"parts": [p.state_dict() for p in whole], "rng": torch.npu.get_rng_state()}}, {str(path)!r})
        expected = train(whole, batches[3:]), torch.rand(3, device="npu").tolist()
        again = build(); train(again, batches[:1])
        file = torch.load({str(path)!r}, weights_only=True)
        for part, state in zip(again, file["parts"]): part.load_state_dict(state)
        got = train(again, batches[3:])
        torch.npu.set_rng_state(file["rng"])
        print(got == expected[0], all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(whole[0].state_dict().values(), again[0].state_dict().values())))
        print({{str(v.device) for s in again[1].state_dict()["state"].values() for v in s.values() if isinstance(v, torch.Tensor) and v.dim()}})
    """
    assert good(code, **mode) == "True True\n{'npu:0'}\n"


def test_files_are_tagged_npu_and_plain_torch_reads_them(tmp_path):
    path = tmp_path / "model.pt"
    code = f"""
        import torch, zipfile
        torch.save({{"w": torch.arange(4.0, device="npu"), "b": torch.ones(2, dtype=torch.bfloat16, device="npu")}}, {str(path)!r})
        names = zipfile.ZipFile({str(path)!r})
        print(b"npu:0" in names.read([n for n in names.namelist() if n.endswith("data.pkl")][0]))
        for where in (None, "npu", "npu:0", torch.device("npu", 0), "cpu", {{"npu:0": "cpu"}}, lambda storage, tag: storage if tag == "npu:0" else None):
            print(*{{str(t.device) for t in torch.load({str(path)!r}, map_location=where).values()}}, end=" ")
        print(torch.load({str(path)!r}, map_location="cpu", mmap=True)["w"].tolist())
        torch.save(torch.load({str(path)!r}, map_location="cpu"), {str(path)!r} + ".cpu")
        print(torch.load({str(path)!r} + ".cpu", map_location="npu")["b"].sum().item())
        try: torch.load({str(path)!r}, map_location="npu:7"); print("loaded")
        except RuntimeError as error: print("npu:7" in str(error) or "7" in str(error), "Could not run" not in str(error))
    """
    assert good(code).splitlines() == ["True", "npu:0 npu:0 npu:0 npu:0 cpu cpu cpu [0.0, 1.0, 2.0, 3.0]", "2.0", "True True"]
    plain = f"""
        import torch
        print(hasattr(torch, "npu"))
        x = torch.load({str(path)!r}, map_location="cpu", weights_only=True)
        print(x["w"].tolist(), x["b"].dtype, x["w"].device)
    """
    assert good(plain, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "False\n[0.0, 1.0, 2.0, 3.0] torch.bfloat16 cpu\n"


def test_whole_modules_old_files_and_storages(tmp_path):
    path = str(tmp_path / "x.pt")
    code = f"""
        import torch
        m = torch.nn.Linear(3, 2).to("npu")
        torch.save(m, {path!r}); n = torch.load({path!r}, weights_only=False)
        print(n.weight.device, torch.equal(n.weight.cpu(), m.weight.cpu()))
        torch.save(m.state_dict(), {path!r}, _use_new_zipfile_serialization=False)
        print({{str(v.device) for v in torch.load({path!r}).values()}}, torch.equal(torch.load({path!r}, map_location="cpu")["bias"], m.bias.cpu()))
        s = torch.arange(5.0, device="npu").untyped_storage()
        torch.save(s, {path!r}); t = torch.load({path!r}, weights_only=False)
        print(t.device, t.nbytes(), s.cpu().tolist() == t.cpu().tolist(), s.clone().data_ptr() != s.data_ptr())
        c = torch.nn.Linear(3, 2); c.load_state_dict(m.state_dict()); print(c.weight.device, torch.equal(c.weight, m.weight.cpu()))
        meta = torch.nn.Linear(3, 2, device="meta").to_empty(device="npu"); meta.load_state_dict(m.state_dict())
        print(meta.weight.device, torch.equal(meta.weight.cpu(), m.weight.cpu()))
        meta = torch.nn.Linear(3, 2, device="meta"); meta.load_state_dict(m.state_dict(), assign=True); print(meta.weight.device)
    """
    assert good(code, PYTHONWARNINGS="ignore").splitlines() == ["npu:0 True", "{'npu:0'} True", "npu:0 20 True True", "cpu True", "npu:0 True", "npu:0"]


NOT_SHARED = ("a tensor on npu:0 cannot be shared with another process, which has no access to its memory: send t.cpu(), and let "
              "the receiver call .to('npu:0').")


def test_a_tensor_does_not_travel_to_another_process():
    code = """
        import torch, torch.multiprocessing as mp
        from multiprocessing.reduction import ForkingPickler
        x = torch.ones(2, device="npu")
        ways = [lambda: mp.get_context("spawn").SimpleQueue().put(x), lambda: mp.Pipe()[0].send({"a": [x]}),
                lambda: ForkingPickler.dumps(torch.nn.Parameter(x)), lambda: ForkingPickler.dumps(x.untyped_storage()),
                lambda: ForkingPickler.dumps(torch.nn.Linear(2, 2).to("npu")), lambda: ForkingPickler.dumps(torch.empty(0, device="npu")),
                lambda: x.share_memory_(), lambda: x.untyped_storage().share_memory_(), lambda: torch.nn.Linear(2, 2).to("npu").share_memory()]
        for strategy in ("file_descriptor", "file_system"):
            mp.set_sharing_strategy(strategy)
            for way in ways:
                try: way(); print("sent")
                except RuntimeError as error: print(error)
        print(x.is_shared(), torch.ones(2).share_memory_().is_shared(), x.tolist())
        y = ForkingPickler.loads(ForkingPickler.dumps(torch.ones(2)))
        print(y.tolist())
    """
    lines = good(code).splitlines()
    assert lines == [NOT_SHARED] * 18 + ["False True [1.0, 1.0]", "[1.0, 1.0]"]


def test_a_loader_whose_workers_make_npu_tensors_says_so_instead_of_waiting(tmp_path):
    script = tmp_path / "load.py"
    script.write_text(textwrap.dedent("""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Rows(Dataset):
            def __init__(self, device): self.device = device
            def __len__(self): return 4
            def __getitem__(self, i): return {"x": torch.full((2,), float(i)), "y": [torch.full((1,), float(i), device=self.device)]}
        if __name__ == "__main__":
            for device in ("cpu", "npu"):
                try:
                    for batch in DataLoader(Rows(device), batch_size=2, num_workers=1, multiprocessing_context="spawn", timeout=120):
                        print(batch["x"].tolist(), batch["y"][0].flatten().tolist())
                except RuntimeError as error: print(str(error).splitlines()[0], str(error).splitlines()[-1])
    """))
    out = good(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')").splitlines()
    assert out[:2] == ["[[0.0, 0.0], [1.0, 1.0]] [0.0, 1.0]", "[[2.0, 2.0], [3.0, 3.0]] [2.0, 3.0]"]
    assert out[2:] == [f"Caught RuntimeError in DataLoader worker process 0. RuntimeError: {NOT_SHARED}"]
