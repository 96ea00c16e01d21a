"""Takes PyTorch's one slot for outside devices (PrivateUse1), if it is free, and puts ``torch.npu`` there."""

import atexit
import multiprocessing
import operator
import os
import sys

_state = "not loaded"  # "not loaded" | "loaded" | the sentence that says why not


def state():
    return _state


def device_name():
    return os.environ.get("FLAGOS_DEVICE_NAME") or "npu"


def _say(sentence):
    global _state
    _state = sentence
    print(f"flagos: {sentence}", file=sys.stderr)


def _owner(torch):
    """Who holds the slot already, or None. The name is only changed by a backend that took it."""
    name = torch._C._get_privateuse1_backend_name()
    if name == "privateuseone":
        return None
    module = getattr(torch, name, None)
    package = getattr(module, "__name__", None) or name
    return f"{package.split('.')[0]} (device name '{name}')" if package != name else f"'{name}'"


def load():
    """Registers the backend once. Prints one sentence instead of raising."""
    global _state
    if _state != "not loaded":
        return
    import torch

    name = device_name()
    other = _owner(torch)
    if other is not None:
        _say(
            f"PyTorch has one slot for outside devices and {other} holds it, so flagos (device name '{name}') is not "
            "loaded; uninstall one of the two, or set TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import the one you want."
        )
        return
    if hasattr(torch, name) or not name.isidentifier():
        why = f"torch.{name} exists already" if name.isidentifier() else "a device name is letters, digits and _"
        _say(f"FLAGOS_DEVICE_NAME={name} is not usable: {why}. FlagOS is not loaded; choose another name, or unset the variable.")
        return
    try:
        import flagos._C as core
    except ImportError as error:
        _say(f"the extension module could not be loaded and there is no '{name}' device: {error}")
        return
    try:
        _install(torch, core, name)
    except Exception as error:  # noqa: BLE001 - import torch must go on
        _say(f"the '{name}' device could not be registered: {error}")
        return
    _state = "loaded"
    if multiprocessing.parent_process() is not None:
        return  # the parent has said it
    for warning in core.setting_warnings():
        # What the device refuses, or does without, is said where it is opened.
        if not warning.startswith(("FLAGOS_MEMORY_LIMIT=", "FLAGOS_TELEMETRY_TCP=")):
            print(f"flagos: {warning}", file=sys.stderr)


def _script():
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None) or (sys.argv[0] if sys.argv else "")
    return os.path.abspath(path) if path and os.path.exists(path) else ""


def _install(torch, core, name):
    torch_dir = os.path.dirname(os.path.abspath(torch.__file__))
    here = os.path.dirname(os.path.abspath(__file__))
    core._install(torch_dir, here, _script(), list(getattr(sys, "orig_argv", sys.argv)))

    torch.utils.rename_privateuse1_backend(name)
    import flagos
    import flagos.npu as npu

    npu._set_name(name)
    torch._register_device_module(name, npu)
    sys.modules[f"torch.{name}"] = npu
    for part in (npu.amp, npu.memory):   # from torch.npu.amp import ...
        sys.modules[f"torch.{name}.{part.__name__.rpartition('.')[2]}"] = part
    torch.flagos = flagos
    sys.modules["torch.flagos"] = flagos
    torch.utils.generate_methods_for_privateuse1_backend(for_tensor=True, for_module=True, for_storage=True)
    from torch.nn.parameter import UninitializedTensorMixin

    UninitializedTensorMixin._allowed_methods.append(getattr(torch.Tensor, name))
    from flagos import _jagged, _parallel, _refusals

    _refusals.install(torch, name, core)
    _parallel.install(torch, name)
    _jagged.install(torch, name)
    _profiler_names(torch, name)
    npu.memory._serve_accelerator()
    atexit.register(core._shut_down)


def _profiler_names(torch, name):
    """Programs write table(sort_by=f"self_{device}_time_total"): PyTorch turns the names of its own devices alone into "device"."""
    from torch.autograd import profiler_util

    for event in (profiler_util.FunctionEvent, profiler_util.FunctionEventAvg):
        for part in ("time", "time_total", "memory_usage"):
            for field in (f"device_{part}", f"self_device_{part}"):
                alias = field.replace("device", name)
                if not hasattr(event, alias):
                    setattr(event, alias, property(operator.attrgetter(field)))
