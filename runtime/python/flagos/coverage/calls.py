"""Calls of every dense operator: found by watching PyTorch's own operator databases run on the CPU, or of our own table."""
import itertools
import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from flagos.coverage import samples
from torch.utils._pytree import tree_flatten, tree_map

HERE = os.path.dirname(os.path.abspath(__file__))


def dense_ops():
    """name -> (kind, the functional operator it is a form of, or None), from the checked-in list."""
    out = {}
    with open(os.path.join(HERE, "dense_ops.txt")) as f:
        for line in f:
            if not line.startswith("#"):
                name, kind, *of = line.split()
                out[name] = (kind, of[0][3:] if of else None)
    return out


def name_of(overload):
    base, variant = overload._schema.name, overload._schema.overload_name
    return f"{base}.{variant}" if variant else base


def overload_of(name):
    """The callable of "aten::add.out"."""
    base, _, variant = name.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, variant or "default", None) if packet is not None else None


def answer_of(name):
    """What computes the operator's answer on the CPU."""
    return samples.REFERENCES.get(name) or overload_of(name)


def widened(tree):
    """The same call in double precision."""
    def one(x):
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else torch.float64 if x == torch.float32 else x

    return tree_map(one, copied(tree))


def copied(tree, device="cpu"):
    """Fresh tensors on a device, strides kept; devices named in the arguments follow."""
    def one(x):
        if isinstance(x, torch.Tensor):
            return x.detach().clone().to(device)
        if isinstance(x, torch.UntypedStorage):
            return torch.empty(0, dtype=torch.uint8).set_(x).to(device, copy=True).untyped_storage()
        if isinstance(x, torch.device):
            return torch.device(device)
        return x

    return tree_map(one, tree)


class Watcher(TorchDispatchMode):
    """Keeps the first calls of each wanted operator: name -> [(args, kwargs)]."""

    def __init__(self, wanted, keep=4):
        super().__init__()
        self.wanted, self.keep, self.found = wanted, keep, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = name_of(function)
        kept = self.found.setdefault(name, []) if name in self.wanted else None
        if kept is not None and len(kept) < self.keep and self.plain((args, kwargs)):
            kept.append(copied((args, kwargs or {})))
        return function(*args, **(kwargs or {}))

    @staticmethod
    def plain(tree):
        tensors = [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]
        return all(t.layout == torch.strided and not t.is_quantized and t.numel() < 100_000 for t in tensors)


def plain_name(name):
    """aten::_linalg_eigh.eigenvalues and linalg.eigh are both linalg_eigh: the database's name and the operator's."""
    base = name.split("::")[-1]
    base = base.split(".")[0] if "::" in name or base.startswith("_") else base.replace(".", "_")
    return base.strip("_")


def watch_database(wanted, only=None, progress=None):
    """Runs the samples of PyTorch's databases on the CPU (forward, backward, in place, out=) under a Watcher."""
    from torch.testing._internal import common_methods_invocations as database

    watcher = Watcher(wanted)
    lists = [op for name in dir(database) if name.startswith("foreach_") and name.endswith("_op_db") for op in getattr(database, name)]
    for op in [*database.op_db, *lists]:
        if only and not any(plain_name(n) == plain_name(op.name) for n in only):
            continue
        if progress:
            progress(op.name)
        for dtype in (torch.float32, torch.int64):
            if not op.supports_dtype(dtype, "cpu"):
                continue
            # The database's own functions, not its sample_inputs(), which reads the whole stack at every call.
            torch.manual_seed(0)
            more = {"num_input_tensors": [3]} if op in lists else {}
            try:
                made = op.sample_inputs_func(op, "cpu", dtype, dtype.is_floating_point and op.supports_autograd, **more)
                chosen = list(made if op in lists else itertools.islice(made, 8))
            except Exception:  # noqa: BLE001 - PyTorch cannot make its own samples
                continue
            for sample in chosen:
                watch_sample(watcher, op, sample)
    for name, calls in samples.made().items():
        watcher.found.setdefault(name, []).extend(calls)
    return watcher.found


def watch_sample(watcher, op, sample):
    try:
        with watcher:
            out = op(sample.input, *sample.args, **sample.kwargs)
            if sample.output_process_fn_grad is not None:
                out = sample.output_process_fn_grad(out)
            outputs = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor) and t.requires_grad]
            if outputs:
                torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    except Exception:  # noqa: BLE001 - the CPU itself refuses this sample
        pass
    try:
        if op.get_inplace() and not sample.broadcasts_input and isinstance(sample.input, torch.Tensor):
            with watcher:
                op.get_inplace()(sample.input.detach().clone(), *sample.args, **sample.kwargs)
    except Exception:  # noqa: BLE001
        pass


def call_of(name, found, dense):
    """(args, kwargs) of some call, or None. Forms that nobody called are made of their functional operator's call: the first
    tensor is written to in place, `out` arguments get tensors like the functional results."""
    for call in found.get(name, []):
        yield call
    of = dense[name][1]
    overload = overload_of(name)
    if overload is None or of is None:
        return
    functional = answer_of(of)
    for args, kwargs in found.get(of, []):
        written = [a for a in overload._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if not any(a.is_out for a in written):
            yield args, kwargs
            continue
        try:
            results = functional(*copied(args), **copied(kwargs))
        except Exception:  # noqa: BLE001
            continue
        results = results if isinstance(results, (tuple, list)) else (results,)
        if len(results) == len(written):
            targets = {a.name: torch.empty_like(r) if isinstance(r, torch.Tensor) else [torch.empty_like(t) for t in r]
                       for a, r in zip(written, results)}
            yield args, {**{k: v for k, v in kwargs.items() if k not in ("dtype", "layout", "device", "pin_memory")
                            or any(a.name == k for a in overload._schema.arguments)}, **targets}
