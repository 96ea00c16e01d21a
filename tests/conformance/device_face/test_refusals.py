"""What the npu does not do is refused in one clear sentence; PyTorch's raw dispatcher text never reaches a user."""
import json
import os
import subprocess
import sys
import textwrap

import pytest
from support import good, python

# One process runs them all: name -> (the call, words its error must have). x is a 4x4 float32 npu tensor.
CASES = {
    # layouts
    "to_sparse": ("x.to_sparse()", ["_to_sparse", "npu:0", "sparse", ".cpu()"]),
    "to_sparse_csr": ("x.to_sparse_csr()", ["npu:0", "compressed sparse"]),
    "sparse factory": ("torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=D), torch.ones(2, device=D))", ["npu", "sparse"]),
    "sparse move": ("torch.eye(3).to_sparse().to(D)", ["npu", "sparse"]),
    "sparse empty": ("torch.empty(2, 2, layout=torch.sparse_coo, device=D)", ["npu", "sparse"]),
    "sparse times dense": ("torch.sparse.mm(torch.eye(4).to_sparse(), x)", ["npu:0", "cpu", "same device"]),
    "sparse gradients": ("sparse_embedding()", ["npu:0", "sparse", "sparse=False"]),
    "index over eight bits": ("torch.ones(1, device='npu:200')", ["does not exist", "over 127"]),
    "to_mkldnn": ("x.to_mkldnn()", ["npu:0", "mkldnn"]),
    "quantize": ("torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", ["npu:0", "quantized"]),
    "quantized move": ("torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8).to(D)", ["npu", "quantized"]),
    "quantized empty": ("torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.qint8, device=D)", ["npu", "quantized"]),
    "nested use": ("torch.nested.nested_tensor([x, x[:2]]) + 1", ["npu", "nested", "torch.jagged"]),
    # operators of other vendors
    "cudnn": ("torch.ops.aten.cudnn_convolution(x[None, None], x[None, None], [0, 0], [1, 1], [1, 1], 1, False, False, False)",
              ["cudnn_convolution", "npu:0", "not supported"]),
    "batch_norm_stats": ("torch.batch_norm_stats(x, 1e-5)", ["batch_norm_stats", "npu:0", "not supported"]),
    "weights to int4": ("torch.ops.aten._convert_weight_to_int4pack(torch.zeros(16, 16, dtype=torch.uint8, device=D), 8)",
                        ["_convert_weight_to_int4pack", "npu:0", "not supported"]),
    # dtypes
    "float8 add": ("x.to(torch.float8_e4m3fn) + x.to(torch.float8_e4m3fn)", ["aten::add", "Float8_e4m3fn", "npu:0", "OpenCL C has no 8-bit float"]),
    "float16 svd": ("torch.linalg.svd(x.half())", ["svd", "Half", "npu:0", "OpenCL"]),
    "bool mm": ("torch.mm(x.bool(), x.bool())", ["aten::mm", "Bool", "npu:0", "OpenCL"]),
    "float and": ("torch.bitwise_and(x, x)", ["aten::bitwise_and", "Float", "npu:0", "OpenCL"]),
    "uint16 add": ("torch.ones(3, dtype=torch.uint16, device=D) + 1", ["aten::add", "UInt16", "npu:0"]),
    "bits item": ("torch.empty(1, dtype=torch.bits8, device=D).item()", ["aten::item", "Bits8", "npu:0"]),
    "mm of floats into doubles": ("torch.mm(x, x, out_dtype=torch.float64)", ["aten::mm.dtype", "npu:0", "no CPU kernel", "Use another dtype"]),
    # NumPy and DLPack
    "numpy": ("x.numpy()", ["npu:0", "torch.npu.host_view", ".cpu()"]),
    "asarray": ("np.asarray(x)", ["npu:0", "torch.npu.host_view", ".cpu()"]),
    "from_dlpack": ("torch.from_dlpack(x)", ["npu:0", "torch.npu.host_view", ".cpu()"]),
    "numpy from_dlpack": ("np.from_dlpack(x)", ["npu:0", "torch.npu.host_view", ".cpu()"]),
    "to_dlpack": ("torch.utils.dlpack.to_dlpack(x)", ["npu:0", "torch.npu.host_view", ".cpu()"]),
    # torch.compile's default backend
    "compile": ("torch.compile(lambda a: a + 1)(x)", ["npu", 'backend="aot_eager"']),
    "compile without inputs": ("torch.compile(lambda: torch.ones(3, device=D) + 1)()", ["npu", 'backend="aot_eager"']),
    "compile a module": ("torch.compile(torch.nn.Linear(4, 4).to(D))(x)", ["npu", 'backend="aot_eager"']),
    "compile with a mode": ("torch.compile(lambda a: a * 2, mode='max-autotune')(x)", ["npu", 'backend="aot_eager"']),
    # process groups
    "npudist": ("dist.init_process_group('npudist', rank=0, world_size=1, store=dist.HashStore())", ["npu", "npudist", "gloo"]),
    "npudist beside gloo": ("dist.init_process_group('cpu:gloo,npu:npudist', rank=0, world_size=1, store=dist.HashStore())", ["npu", "npudist"]),
    "a group for an npu": ("dist.init_process_group(device_id=torch.device(D), rank=0, world_size=1, store=dist.HashStore())", ["npu", "npudist"]),
    # several devices at once
    "data parallel": ("torch.nn.DataParallel(torch.nn.Linear(4, 4), device_ids=[0, 1])", ["DataParallel", "npu", "device_ids=[0]"]),
    "data parallel function": ("torch.nn.parallel.data_parallel(torch.nn.Linear(4, 4).to(D), x, [0, 1])", ["DataParallel", "npu", "device_ids=[0]"]),
    "scatter": ("torch.nn.parallel.scatter(x, [0])", ["scatter", "npu", ".to(device)"]),
    "replicate": ("torch.nn.parallel.replicate(torch.nn.Linear(4, 4).to(D), [0, 0])", ["broadcast", "npu"]),
    # devices
    "two devices": ("x + torch.ones(4, 4)", ["npu:0", "cpu"]),
    "wrong generator": ("torch.rand(3, device=D, generator=torch.Generator())", ["npu", "cpu"]),
}

PRELUDE = """
    import json, sys, warnings
    warnings.simplefilter("ignore")
    import numpy as np
    import torch
    import torch.distributed as dist
    D = "npu:0"
    x = torch.arange(16.0, device=D).reshape(4, 4)
    def sparse_embedding():
        layer = torch.nn.Embedding(5, 3, sparse=True).to(D)
        layer(torch.tensor([1, 2], device=D)).sum().backward()
    for name, call in json.load(sys.stdin).items():
        try:
            print(json.dumps([name, "accepted", repr(type(eval(call)))]))
        except Exception as error:
            print(json.dumps([name, type(error).__name__, str(error)]))
        assert (x + 1).sum().item() == 136  # the device works on
"""


def outcomes(**env):
    calls = json.dumps({name: call for name, (call, _) in CASES.items()})
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(PRELUDE)], input=calls, capture_output=True, text=True, timeout=300,
                          env={**os.environ, **env})
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: (kind, text) for name, kind, text in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module", params=["shared", "discrete"])
def refused(request):
    return outcomes(FLAGOS_SHARED_MEMORY="1" if request.param == "shared" else "0", FLAGOS_FALLBACK="allow")


@pytest.mark.parametrize("name", list(CASES))
def test_refused_in_one_sentence(refused, name):
    kind, text = refused[name]
    assert kind != "accepted", text
    sentence = text.split("\n")[0]
    for word in CASES[name][1]:
        assert word in sentence, f"{kind}: {text}"
    assert "Could not run" not in text and "INTERNAL ASSERT" not in text and "privateuse" not in text.lower()


def test_forbidden_fallback_names_operator_dtype_device_and_reason():
    code = """
        import torch
        z = torch.view_as_complex(torch.ones(2, 2, 2, device="npu"))
        for call in (lambda: z @ z, lambda: torch.linalg.svd(z.real)):
            try:
                call(); print("accepted")
            except NotImplementedError as error:
                print(str(error).splitlines()[0])
    """
    first, second = good(code, FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="forbid").splitlines()
    assert "npu:0" in first and "aten::mm" in first and "complex64" in first and "FLAGOS_FALLBACK=warn" in first
    assert "npu:0" in second and "svd" in second and "float32" in second


def test_every_rank_refuses_collectives_and_ddp(tmp_path):
    """Two ranks under gloo: each call fails at once in both, naming npu and npudist; CPU tensors go on working."""
    code = """
        import sys, torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel as DDP
        rank = int(sys.argv[1])
        dist.init_process_group("gloo", rank=rank, world_size=2, store=dist.FileStore(sys.argv[2], 2))
        x = torch.ones(4, device="npu")
        many = [torch.empty(4, device="npu") for _ in range(2)]
        from torch.distributed import _functional_collectives as functional
        calls = dict(all_reduce=lambda: dist.all_reduce(x), broadcast=lambda: dist.broadcast(x, 0), all_gather=lambda: dist.all_gather(many, x),
                     into=lambda: dist.all_gather_into_tensor(torch.empty(8, device="npu"), x), reduce=lambda: dist.reduce(x, 0),
                     reduce_scatter=lambda: dist.reduce_scatter(x, many), scatter=lambda: dist.scatter(x, many if rank == 0 else None),
                     gather=lambda: dist.gather(x, many if rank == 0 else None), all_to_all=lambda: dist.all_to_all_single(x, torch.ones(4, device="npu")),
                     send=lambda: dist.send(x, 1 - rank), recv=lambda: dist.recv(x, 1 - rank), ddp=lambda: DDP(torch.nn.Linear(2, 2).npu()),
                     functional=lambda: functional.all_reduce(x, "sum", dist.group.WORLD))
        for name, call in calls.items():
            try:
                call(); print(name, "accepted")
            except NotImplementedError as error:
                print(name, "npu" in str(error) and "npudist" in str(error) and "gloo" in str(error) and "\\n" not in str(error))
        y = torch.full((2,), float(rank))
        dist.all_reduce(y)
        dist.barrier()
        print(y.tolist(), len(calls))
    """
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(r), str(tmp_path / "store")],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(2)]
    for rank in ranks:
        out, err = rank.communicate(timeout=300)
        lines = out.splitlines()
        assert rank.returncode == 0 and lines[-1] == "[1.0, 1.0] 13", f"{out}\n{err[-3000:]}"
        assert all(line.endswith(" True") for line in lines[:-1]), out


def test_compiling_on_the_cpu_and_other_backends_are_left_alone():
    code = """
        import torch
        x = torch.randn(5, 5, device="npu")
        f = lambda a: (a @ a).relu().sum()
        for backend in ("aot_eager", "eager"):
            print(torch.allclose(torch.compile(f, backend=backend)(x).cpu(), f(x.cpu()), atol=1e-4))
        print(torch._TorchCompileInductorWrapper.__call__.__wrapped__ is not None)
        w = torch.randn(5, 5, device="npu", requires_grad=True)
        torch.compile(lambda a: torch.tanh(a @ w).sum(), backend="aot_eager")(x).backward()
        v = w.detach().cpu().requires_grad_()
        torch.tanh(x.cpu() @ v).sum().backward()
        print(torch.allclose(w.grad.cpu(), v.grad, atol=1e-5))
    """
    assert good(code) == "True\nTrue\nTrue\nTrue\n"


IN_A_CHILD = """
    import os, torch
    x = torch.arange(4.0, device="npu")
    torch.npu.synchronize()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work(x)
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), (x + 1).sum().item())
"""


def test_a_launch_in_a_forked_child_is_refused_naming_fork_and_spawn():
    work = """
    def work(x):
        try:
            x.add_(1)
        except RuntimeError as error:
            return 17 if "fork" in str(error) and "spawn" in str(error) and "npu:0" in str(error) and "\\n" not in str(error) else 18
        return 0
    """
    assert good(textwrap.dedent(work) + textwrap.dedent(IN_A_CHILD), FLAGOS_ROUTE="opencl") == "17 10.0\n"


def test_a_forked_child_reads_and_works_on_the_host():
    work = """
    import torch
    def work(x):
        right = x.tolist() == [0, 1, 2, 3] and abs(torch.linalg.norm(x.double(), 2).item() - 14 ** 0.5) < 1e-6
        right = right and (x.cpu() * 2).sum().item() == 12 and x.add_(1).sum().item() == 10 and torch.npu._is_in_bad_fork()
        return 7 if right else 8
    """
    assert good(textwrap.dedent(work) + textwrap.dedent(IN_A_CHILD), FLAGOS_ROUTE="host") == "7 10.0\n"


def test_warnings_of_fallbacks_come_once_and_say_how_to_silence_them():
    code = "import torch; x = torch.eye(3, device='npu'); torch.linalg.svd(x); torch.linalg.svd(x); print('done')"
    status, out, err = python(code, FLAGOS_SHARED_MEMORY="0", FLAGOS_FALLBACK="warn")
    assert (status, out) == (0, "done\n"), err
    lines = [line for line in err.splitlines() if "svd" in line and "UserWarning" in line]
    assert len(lines) == 1 and "npu:0" in lines[0] and "FLAGOS_FALLBACK=allow" in lines[0]


def test_matrices_that_do_not_fit_are_refused_as_on_the_cpu():
    """Solvers whose sizes PyTorch checks in the CPU's function alone: a kernel would read beside a matrix."""
    code = """
        import torch
        one = lambda *s: torch.ones(*s)
        calls = {"ormqr": [(one(4, 2), one(2), one(3, 2)), (one(4, 2), one(3), one(4, 2)), (one(0, 3, 2), one(0, 2), one(0, 4, 2)),
                           (one(2, 4, 2), one(2), one(2, 4, 2))],
                 "linalg.householder_product": [(one(2, 3), one(2)), (one(4, 2), one(3)), (one(2, 4, 2), one(3, 2))],
                 "linalg.solve_triangular": [(one(3, 4), one(3, 2)), (one(3, 3), one(4, 2)), (one(3, 0), one(3, 2))],
                 "linalg.cholesky": [(one(3, 4),)], "cholesky_inverse": [(one(3, 4),)], "linalg.matrix_exp": [(one(3, 4),)]}
        for name, cases in calls.items():
            f = torch.linalg if name.startswith("linalg.") else torch
            f = getattr(f, name.rpartition(".")[2])
            options = {"upper": True} if name == "linalg.solve_triangular" else {}
            for args in cases:
                said = []
                for device in ("cpu", "npu"):
                    try:
                        out = f(*(a.to(device) for a in args), **options)
                        torch.npu.synchronize()
                        said.append(str(out.cpu()))
                    except RuntimeError as error: said.append(str(error).splitlines()[0])
                assert said[0] == said[1] and "tensor(" not in said[0], (name, args, said)
        lu = torch.lu_unpack(torch.zeros(4, 0, device="npu"), torch.tensor([3, 4, 3, 4], dtype=torch.int32, device="npu"))
        print(lu[0].cpu().equal(torch.eye(4)), lu[1].shape, lu[2].shape)
    """
    assert good(code, FLAGOS_SHARED_MEMORY="0", FLAGOS_FALLBACK="allow") == "True torch.Size([4, 0]) torch.Size([0, 0])\n"
