"""``torch.npu``: the device module that PyTorch's generic code and users call.

Functions that only ask (``is_available``, ``device_count``, ``get_device_name``) create no OpenCL context, so a process
may still fork afterwards. ``is_available`` never raises.
"""

import os

import torch

import flagos._C as _C
from flagos import amp, memory

_name = "npu"


def _set_name(name):
    global _name
    _name = name


def _refuse_far(device):
    """PyTorch keeps an index in 8 bits, so that npu:256 becomes npu:0: refused here, before it does."""
    index = device if isinstance(device, int) else device.rpartition(":")[2] if isinstance(device, str) else ""
    if str(index).isdecimal() and int(index) > 127:
        n = _C.device_count()
        raise RuntimeError(f"{_name}:{int(index)} does not exist: this machine has {n} {_name} device{'' if n == 1 else 's'}.")


def _index(device, optional=True):
    """Device index of an int, string, torch.device or None (the current device)."""
    if device is None:
        if not optional:
            raise ValueError("a device is needed")
        return _C.current_device()
    if isinstance(device, bool):
        raise TypeError("a device is an index, a string or a torch.device, not a bool")
    if isinstance(device, int):
        _refuse_far(device)
        return _C.checked_index(device) if device >= 0 else _C.current_device()
    if isinstance(device, str):
        _refuse_far(device)
        device = torch.device(device)
    if isinstance(device, globals()["device"]):
        return device.index
    if isinstance(device, torch.device):
        if device.type != _name:
            raise ValueError(f"expected a device of type {_name}, got {device}")
        return _C.current_device() if device.index is None else _C.checked_index(device.index)
    raise TypeError(f"a device is an index, a string or a torch.device, not {type(device).__name__}")


# ---- availability and current device ----


def is_available():
    try:
        return _C.device_count() > 0
    except Exception:  # noqa: BLE001 - the contract of this function is that it never raises
        return False


def device_count():
    return _C.device_count()


def current_device():
    return _C.current_device()


def set_device(device):
    index = _index(device)
    if not (isinstance(device, int) and device < 0):
        _C.set_device(index)


def is_initialized():
    return any(_C.is_open(i) for i in range(_C.device_count()))


def init():
    _lazy_init()


def _lazy_init():
    """Devices open themselves at first use; this only says clearly when there is none."""
    if _C.device_count() == 0:
        hidden = "".join(f" {name}={os.environ[name]} may hide it." for name in ("FLAGOS_VISIBLE_DEVICES", "FLAGOS_ROOT", "OCL_ICD_VENDORS")
                         if name in os.environ)
        raise RuntimeError(
            f"{_name}: no usable device was found.{hidden} `flagos doctor` says what was looked for and what to install."
        )


def _is_in_bad_fork():
    return _C.in_bad_fork()


def _exchange_device(index):
    return _C.exchange_device(index) if index >= 0 else -1


def _maybe_exchange_device(index):
    return _C.maybe_exchange_device(index) if index >= 0 else -1


class device:
    """``torch.npu.device(i)``: names a device (``str`` gives ``npu:0``) and, in a ``with`` block, makes it the current one."""

    def __init__(self, device):
        self.index = _index(device)
        self.type = _name
        self._previous = []

    def __enter__(self):
        self._previous.append(_C.exchange_device(self.index))
        return self

    def __exit__(self, *exc):
        _C.maybe_exchange_device(self._previous.pop())
        return False

    def __str__(self):
        return f"{self.type}:{self.index}"

    def __repr__(self):
        return f"device(type='{self.type}', index={self.index})"

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


class device_of(device):
    """Makes the device of a tensor or storage current; does nothing for objects that are elsewhere."""

    def __init__(self, obj):
        if getattr(obj, f"is_{_name}", False):
            super().__init__(obj.device)
        else:
            self.index, self.type, self._previous = _C.current_device(), _name, []


class _DeviceGuard:
    def __init__(self, index):
        self.idx = index
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exc):
        self.idx = _maybe_exchange_device(self.prev_idx)
        return False


# ---- facts ----


class DeviceProperties:
    """What is known of a device. An attribute that nothing tells is None, never 0.

    ``sources`` says where each one comes from ("opencl", "sysfs", "driver", "measured", "table"), ``why_missing`` why one
    is None.
    """

    def __init__(self, facts):
        self.__dict__.update(facts)

    def __repr__(self):
        return "DeviceProperties(" + ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items()) + ")"


def get_device_properties(device=None):
    return DeviceProperties(_C.device_facts(_index(device)))


def get_device_name(device=None):
    return _C.device_name(_index(device))


def get_device_capability(device=None):
    """(major, minor) of the OpenCL version that the device's driver implements: every device of this backend has one.

    It is no CUDA compute capability: that, or AMD's "gfx1100", is ``get_device_properties().architecture``. Supported
    dtypes are in ``torch.accelerator.get_device_capability()``.
    """
    facts = _C.device_facts(_index(device))
    if facts["major"] is None:
        raise RuntimeError(f"{_name}:{_index(device)} has no capability: {facts['why_missing']['major']}")
    return (facts["major"], facts["minor"])


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


def is_bf16_supported():
    return True


# ---- streams, events, waiting ----


def synchronize(device=None):
    _C.synchronize(_index(device))


class _Alias(type):
    """torch.npu.Stream and Event make plain torch.Stream and torch.Event objects (PyTorch checks for just those types)."""

    def __instancecheck__(cls, obj):
        return isinstance(obj, cls._plain) and obj.device.type == _name


class Stream(metaclass=_Alias):
    _plain = torch.Stream

    def __new__(cls, device=None, priority=0, **kwargs):
        if "stream_id" in kwargs:
            return torch.Stream(**kwargs)
        return torch.Stream(torch.device(_name, _index(device)), priority=priority)


class Event(metaclass=_Alias):
    _plain = torch.Event

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return torch.Event(_name, enable_timing=enable_timing)


def current_stream(device=None):
    return torch._C._accelerator_getStream(_index(device))


def default_stream(device=None):
    return torch.Stream(stream_id=0, device_index=_index(device), device_type=_device_type())


def set_stream(stream):
    if stream is not None:
        torch._C._accelerator_setStream(stream)


def _device_type():
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)


class StreamContext:
    """Makes a stream, and its device, the current ones; both are as before afterwards. None changes nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self._device = _C.current_device()
            self._replaced = current_stream(self.stream.device_index)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *exc):
        if self.stream is not None:
            set_stream(self._replaced)
            _C.set_device(self._device)
        return False


def stream(stream):
    return StreamContext(stream)


# ---- memory (memory.py) ----

from flagos.memory import (  # noqa: E402 - the functions above must exist first
    empty_cache,
    host_memory_stats,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)


def host_view(tensor):
    """A CPU tensor on the same memory, where the device shares memory with the host. Waits for pending work."""
    return _C.host_view(tensor)


def kernel_builds():
    """OpenCL programs compiled from source by this process (0 where the disk cache had them all)."""
    return _C.kernel_builds()


# ---- random numbers ----


def _generator(device=None):
    return _C.default_generator(_index(device))


def manual_seed(seed):
    _generator().manual_seed(int(seed))


def manual_seed_all(seed):
    for i in range(_C.device_count()):
        _C.default_generator(i).manual_seed(int(seed))


def seed():
    _generator().seed()


def seed_all():
    value = None
    for i in range(_C.device_count()):
        if value is None:
            value = _C.default_generator(i).seed()
        else:
            _C.default_generator(i).manual_seed(value)


def initial_seed():
    return _generator().initial_seed()


def get_rng_state(device=None):
    return _generator(device).get_state()


def set_rng_state(new_state, device=None):
    _generator(device).set_state(new_state)


def get_rng_state_all():
    return [get_rng_state(i) for i in range(_C.device_count())]


def set_rng_state_all(new_states):
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def __getattr__(name):
    if name == "default_generators":
        return tuple(_C.default_generator(i) for i in range(_C.device_count()))
    if name == "_initialized":
        # torch.utils.checkpoint keeps a device's random state for its second run only where this is true. Our states
        # exist before a device is opened, so a device there is enough.
        return _C.device_count() > 0
    raise AttributeError(f"module 'torch.{_name}' has no attribute {name!r}")
