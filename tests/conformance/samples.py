"""PyTorch's operator database as calls that can be repeated: entries, copies on a device, layouts of the same values."""
import sys

import torch
from torch.utils._pytree import tree_flatten, tree_map

# What is compared only by shape, dtype and device: the values are undefined ...
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# ... or come from the generator. Others (attention with dropout) are found by two CPU runs with different seeds.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint",
          "randint_like", "randn", "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout",
          "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu"}


# Tensors of numbers that PyTorch wants on the CPU whatever device the others are on.
CPU_ARGUMENTS = {"tensor_split"}


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def entries(shard=(0, 1), only=None):
    """The entries of one shard, by name. `only`: an entry's or an operator's name."""
    from torch.testing._internal import common_methods_invocations as database
    from torch.testing._internal.opinfo.definitions import special  # noqa: F401 - loads the definitions

    # Many entries seed the generator inside, which would make random results look determined on the CPU.
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith(database.__name__.rpartition(".")[0]) and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    index, count = shard
    chosen = [op for op in sorted(database.op_db, key=full_name) if only is None or only in (op.name, full_name(op))]
    return chosen[index::count]


def determined(op):
    """Whether the values of the results mean anything, as far as the name tells."""
    return op.name not in UNDEFINED and op.name not in RANDOM


def leaves(value):
    return tree_flatten(value)[0]


def tensors(value):
    return [x for x in leaves(value) if isinstance(x, torch.Tensor)]


class Call:
    """One sample: an operator's arguments on the CPU, to be copied for each run."""

    def __init__(self, first, args=(), kwargs=None, rest_on_cpu=False):
        self.tree = (first, tuple(args), dict(kwargs or {}))
        self.rest_on_cpu = rest_on_cpu

    @classmethod
    def of(cls, sample, op):
        return cls(sample.input, sample.args, sample.kwargs, op.name in CPU_ARGUMENTS)

    def mapped(self, change):
        """The same call with every strided tensor replaced by change(tensor)."""
        return Call(*tree_map(lambda x: change(x) if strided(x) else x, self.tree), self.rest_on_cpu)

    def on(self, device, gradients=False):
        """Fresh arguments on `device` and the leaves that want gradients. The layout of each tensor is kept."""
        wanted = []

        def one(x):
            if isinstance(x, torch.Tensor):
                t = x.detach()
                t = placed(t, device) if strided(t) else t.to(device)
                if gradients and x.requires_grad:
                    wanted.append(t.requires_grad_())
                    return t.view_as(t)   # no leaf, so that operators may write to it
                return t
            if isinstance(x, torch.device):
                return torch.device(device)
            return device if isinstance(x, str) and x == "cpu" else x

        first = tree_map(one, self.tree[0])
        device = "cpu" if self.rest_on_cpu else device
        return (first, *tree_map(one, self.tree[1:])), wanted

    def run(self, function, device, seed=0, **more):
        (first, args, kwargs), _ = self.on(device)
        torch.manual_seed(seed)
        return function(first, *args, **kwargs, **more)

    def needs_no_device(self):
        """Operators without any tensor or device argument make CPU tensors on every device."""
        return not any(isinstance(x, (torch.Tensor, torch.device)) or x == "cpu" for x in leaves(self.tree))


def strided(x):
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def placed(t, device):
    """A copy on `device` with t's sizes, strides and offset in a storage that holds nothing else. The CPU's own copy keeps
    the elements between them as well, so that writes beside the view are seen."""
    if t.is_conj() or t.is_neg():
        bits, plain = (t.is_conj(), t.is_neg()), t
        plain = plain.conj() if bits[0] else plain
        plain = torch._neg_view(plain) if bits[1] else plain
        plain = placed(plain, device)
        plain = torch._neg_view(plain) if bits[1] else plain
        return plain.conj() if bits[0] else plain
    whole = whole_storage(t)
    return whole.to(device, copy=True).as_strided(t.size(), t.stride(), t.storage_offset())


def whole_storage(t):
    """Every element of t's storage, as a flat tensor."""
    flat = torch.empty(0, dtype=t.dtype, device=t.device)
    return flat.set_(t.untyped_storage(), 0, (t.untyped_storage().nbytes() // t.element_size(),), (1,))


# ---- the same values in other layouts ----

SENTINEL = 77


def buffer(count, like, fill=SENTINEL):
    return torch.full((count,), True if like.dtype == torch.bool else fill, dtype=like.dtype)


def offset(t):
    """Starts in the middle of its storage, with guards on both sides."""
    out = buffer(t.numel() + 8, t)[5:5 + t.numel()].view(t.shape)
    return out.copy_(t)


def every_second(t):
    """Gaps between the elements of the last dimension."""
    if t.dim() == 0:
        return offset(t)
    shape = list(t.shape)
    shape[-1] *= 2
    wide = buffer(t.numel() * 2 + 3, t)[3:].view(shape)
    return wide[..., ::2].copy_(t)


def transposed(t):
    """The dimensions lie in memory in the opposite order."""
    if t.dim() < 2:
        return every_second(t)
    order = list(range(t.dim()))[::-1]
    out = buffer(t.numel() + 2, t)[2:].view([t.size(d) for d in order]).permute(order)
    return out.copy_(t)


LAYOUTS = {"offset": offset, "every second": every_second, "transposed": transposed}


def in_layout(call, name):
    """The call with every tensor in a layout. Tensors that overlap themselves and numbers keep theirs."""
    def change(t):
        if t.requires_grad:
            return change(t.detach()).requires_grad_()
        if t.is_conj() or t.is_neg() or t.numel() == 0 or t.dim() == 0:
            return t
        return LAYOUTS[name](t)

    return call.mapped(change)
