"""What PyTorch's Python side does not do on the npu, refused in one sentence that says what works instead."""

import functools


def install(torch, name, core):
    _numpy_and_dlpack(torch, name, core)
    _compile(torch, name)
    _process_groups(torch, name)


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
