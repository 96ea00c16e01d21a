"""What PyTorch's Python side does not do on the npu, refused in one sentence that says what works instead."""

import functools
from multiprocessing.reduction import ForkingPickler


def install(torch, name, core):
    _numpy_and_dlpack(torch, name, core)
    _compile(torch, name)
    _process_groups(torch, name)
    _other_processes(torch, name)
    _far_indices(torch)


def _is_npu(torch, obj, name):
    return isinstance(obj, torch.Tensor) and obj.device.type == name


# ---- NumPy and DLPack ----


def _numpy_and_dlpack(torch, name, core):
    view = f"torch.{name}.host_view(t) gives a CPU tensor on the same memory where the device shares memory with the host"
    original_numpy = torch.Tensor.numpy
    original_device = torch.Tensor.__dlpack_device__
    original_dlpack = torch.Tensor.__dlpack__
    original_capsule = torch.utils.dlpack.to_dlpack

    @functools.wraps(original_numpy)
    def numpy(self, *, force=False):
        if torch.overrides.has_torch_function_unary(self):  # subclasses know the function by this name
            return torch.overrides.handle_torch_function(torch.Tensor.numpy, (self,), self, force=force)
        if not force and _is_npu(torch, self, name):
            raise TypeError(f"NumPy cannot read a tensor on {self.device}: {view}; t.cpu() copies it.")
        return original_numpy(self, force=force)

    @functools.wraps(original_device)
    def __dlpack_device__(self):
        # PyTorch compares the device type with the literal "privateuse1", which a renamed backend never has.
        if type(self) is torch.Tensor and self.device.type == name:
            return (torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index or 0)
        return original_device(self)

    def refuse(tensor):
        raise BufferError(f"DLPack cannot pass on a tensor on {tensor.device}, whose memory other libraries do not know: {view}; "
                          "t.cpu() copies it.")

    @functools.wraps(original_dlpack)
    def __dlpack__(self, **options):
        if not _is_npu(torch, self, name):
            return original_dlpack(self, **options)
        wanted = options.pop("dl_device", None)
        if wanted is None or int(wanted[0]) != int(torch.utils.dlpack.DLDeviceType.kDLCPU):
            refuse(self)
        options.pop("stream", None)
        shared = core.device_facts(self.device.index)["shared_memory"]
        if not shared and options.get("copy") is False:
            refuse(self)
        return original_dlpack(core.host_view(self) if shared else self.cpu(), **options)

    @functools.wraps(original_capsule)
    def to_dlpack(tensor):
        if _is_npu(torch, tensor, name):
            refuse(tensor)
        return original_capsule(tensor)

    torch.Tensor.numpy = numpy
    torch.Tensor.__dlpack_device__ = __dlpack_device__
    torch.Tensor.__dlpack__ = __dlpack__
    torch.utils.dlpack.to_dlpack = to_dlpack
    torch.to_dlpack = to_dlpack


# ---- torch.compile ----


def _compile(torch, name):
    """Inductor has no code generator for us; without this it fails with KeyError: 'npu', deep inside."""
    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    @functools.wraps(original)
    def call(self, model_, inputs_, **options):
        if _touches(torch, model_, inputs_, name):
            raise _no_code_for(name)
        return original(self, model_, inputs_, **options)

    wrapper.__call__ = call


def _no_code_for(name):
    """Dynamo passes errors of this base on as they are, but adds advice of its own to their text: ours stays one sentence."""
    from torch._dynamo.exc import ShortenTraceback

    class NoCodeGenerator(ShortenTraceback):
        def __str__(self):
            return (f"torch.compile's default backend (inductor) generates no code for {name}; use "
                    'torch.compile(..., backend="aot_eager"), which runs on it.')

    return NoCodeGenerator("", first_useful_frame=None)


def _touches(torch, graph, inputs, name):
    found = [t for t in inputs if isinstance(t, torch.Tensor)]
    found += list(graph.parameters()) + list(graph.buffers())
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        found += [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, torch.Tensor)]
    return any(t.device.type == name for t in found)


# ---- torch.multiprocessing ----


def _other_processes(torch, name):
    """No other process knows the memory: PyTorch's own text names neither the device nor what to do, or it says nothing."""
    storage = torch.UntypedStorage

    def refuse(device):
        raise RuntimeError(f"a tensor on {device} cannot be shared with another process, which has no access to its memory: "
                           f"send t.cpu(), and let the receiver call .to({str(device)!r}).")

    def guarded(original):
        @functools.wraps(original)
        def share(self, *args, **options):
            if self.device.type == name:
                refuse(self.device)
            return original(self, *args, **options)

        return share

    for function in ("_share_fd_cpu_", "_share_filename_cpu_", "share_memory_"):
        setattr(storage, function, guarded(getattr(storage, function)))
    # One without elements would arrive as the CPU's.
    ForkingPickler.register(storage, guarded(torch.multiprocessing.reductions.reduce_storage))
    is_shared = storage.is_shared

    @functools.wraps(is_shared)
    def is_shared_(self):
        return self.device.type != name and is_shared(self)

    storage.is_shared = is_shared_
    _loader_workers(torch, name, refuse)


def _loader_workers(torch, name, refuse):
    """A worker's queue would print the error and drop the batch, and the loader would wait for it for ever."""
    worker = torch.utils.data._utils.worker
    loop = worker._worker_loop

    class Queue:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, attribute):
            return getattr(self._inner, attribute)

        def put(self, item, *args, **options):
            try:
                _find_npu(torch, item, name, refuse)
            except RuntimeError:
                info = torch.utils.data.get_worker_info()
                where = f"in DataLoader worker process {info.id if info else '?'}"
                item = (item[0], torch._utils.ExceptionWrapper(where=where))
            return self._inner.put(item, *args, **options)

    @functools.wraps(loop)
    def _worker_loop(dataset_kind, dataset, index_queue, data_queue, *args, **options):
        return loop(dataset_kind, dataset, index_queue, Queue(data_queue), *args, **options)

    worker._worker_loop = _worker_loop


def _find_npu(torch, value, name, found):
    if isinstance(value, torch.Tensor):
        if value.device.type == name:
            found(value.device)
    elif isinstance(value, dict):
        for v in value.values():
            _find_npu(torch, v, name, found)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _find_npu(torch, v, name, found)


# ---- device indices ----


def _far_indices(torch):
    from flagos import npu

    module = torch.utils.backend_registration
    original = module._normalization_device

    @functools.wraps(original)
    def _normalization_device(custom_backend_name, device=None):   # of t.npu(256) and module.npu(256)
        npu._refuse_far(device)
        return original(custom_backend_name, device)

    module._normalization_device = _normalization_device


# ---- torch.distributed ----


def _process_groups(torch, name):
    if not torch.distributed.is_available():
        return
    module = torch.distributed.distributed_c10d

    def guarded(original, place):
        @functools.wraps(original)
        def make(*args, **options):
            backend = options.get("backend", args[place] if len(args) > place else None)
            device = options.get("device_id")
            asked = "npudist" in str(backend or "").lower()
            bound = backend is None and device is not None and torch.device(device).type == name
            if (asked or bound) and "NPUDIST" not in vars(module.Backend):
                raise NotImplementedError(
                    f"collectives on {name} tensors are not there yet: npudist, the backend for them, is not part of this "
                    "version; use CPU tensors with gloo, or train in one process."
                )
            return original(*args, **options)

        return make

    for function, place in (("init_process_group", 0), ("new_group", 2)):  # where `backend` stands among the arguments
        made = guarded(getattr(module, function), place)
        setattr(module, function, made)
        setattr(torch.distributed, function, made)
