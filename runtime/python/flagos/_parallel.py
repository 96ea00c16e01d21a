"""``torch.nn.DataParallel``: with one device it is the module itself, as PyTorch means it; with several it is refused.

PyTorch's own code calls ``torch._C._scatter``, which only its CUDA builds have.
"""

import functools
import sys


def install(torch, name):
    from torch.utils._pytree import tree_map

    module = sys.modules["torch.nn.parallel.data_parallel"]   # the package's attribute of that name is the function

    def ours():
        return module._get_available_device_type() == name

    def check(device_ids):
        ids = list(range(getattr(torch, name).device_count())) if device_ids is None else list(device_ids)
        if len(ids) > 1:
            raise NotImplementedError(
                f"torch.nn.DataParallel over several {name} devices is not supported: it needs scatter and gather kernels that only "
                f"CUDA builds of PyTorch have; pass device_ids=[0], or put parts of the model on each {name} device."
            )
        return ids

    def moved(values, device):
        return tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) else v, values)

    original_init, original_scatter = torch.nn.DataParallel.__init__, torch.nn.DataParallel.scatter
    original_function = module.data_parallel

    @functools.wraps(original_init)
    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        if ours():
            check(device_ids)
        original_init(self, module, device_ids, output_device, dim)

    @functools.wraps(original_scatter)
    def scatter(self, inputs, kwargs, device_ids):
        if self.src_device_obj.type != name:
            return original_scatter(self, inputs, kwargs, device_ids)
        return (moved(tuple(inputs), self.src_device_obj),), (moved(dict(kwargs or {}), self.src_device_obj),)

    @functools.wraps(original_function)
    def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
        if not ours():
            return original_function(module, inputs, device_ids, output_device, dim, module_kwargs)
        wrapped = torch.nn.DataParallel(module, device_ids, output_device, dim)
        return wrapped(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))

    torch.nn.DataParallel.__init__ = __init__
    torch.nn.DataParallel.scatter = scatter
    for place in (module, torch.nn.parallel):
        place.data_parallel = data_parallel
    _guard_communication(torch, name, ours)


def _guard_communication(torch, name, ours):
    """The parts of it that are called by themselves."""
    comm = torch.nn.parallel.comm

    def guarded(function):
        @functools.wraps(function)
        def call(*args, **options):
            if ours():
                raise NotImplementedError(
                    f"torch.nn.parallel.{function.__name__} is not supported on {name}: only CUDA builds of PyTorch have its kernels; "
                    "move tensors with .to(device)."
                )
            return function(*args, **options)

        return call

    for function in ("broadcast", "broadcast_coalesced", "reduce_add", "scatter", "gather"):
        setattr(comm, function, guarded(getattr(comm, function)))
