"""``torch.npu.memory``: counts, and snapshots in the format of ``torch.cuda.memory._snapshot``, which PyTorch's viewer
(pytorch.org/memory_viz) and ``torch.cuda._memory_viz`` read. A block's frame is the source line that asked for it.
"""

import pickle
import sys

import torch

import flagos._C as _C


def _index(device):
    from flagos import npu

    return npu._index(device)


def memory_stats(device=None):
    return _C.memory_stats(_index(device))


def memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None):
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None):
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None):
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device=None):
    _C.reset_peak_stats(_index(device))


def reset_accumulated_memory_stats(device=None):
    _C.reset_accumulated_stats(_index(device))


def host_memory_stats():
    """Pinned host memory, in the words of torch.cuda.host_memory_stats()."""
    return _C.host_memory_stats()


def mem_get_info(device=None):
    """(free, total) bytes of the device as they are now, other processes included; FLAGOS_MEMORY_LIMIT caps both."""
    return _C.memory_info(_index(device))


def empty_cache():
    _C.empty_cache()


# ---- snapshots ----


def memory_snapshot(device=None, include_traces=True):
    """Segments with their blocks, of one device or (None) of all."""
    wanted = None if device is None else _index(device)
    return [s for s in _C.memory_segments() if wanted is None or s["device"] == wanted]


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, **options):
    """Starts (or, with None, stops) keeping what is allocated and freed, for the trace of a snapshot."""
    _C.record_memory_history(0 if enabled is None else min(int(max_entries), 1 << 40))


def _snapshot(device=None, augment_with_fx_traces=False):
    return {
        "segments": memory_snapshot(device),
        "device_traces": _C.memory_traces(),
        "allocator_settings": {},
        "external_annotations": [],
    }


def _dump_snapshot(filename="dump_snapshot.pickle", augment_with_fx_traces=False):
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def _serve_accelerator():
    """torch.accelerator.memory._snapshot knows only CUDA and XPU."""
    original = torch.accelerator.memory._snapshot

    def snapshot(device=None, augment_with_fx_traces=False):
        from flagos import npu

        accelerator = torch.accelerator.current_accelerator()
        if accelerator is not None and accelerator.type == npu._name:
            return _snapshot(device)
        return original(device, augment_with_fx_traces=augment_with_fx_traces)

    torch.accelerator.memory._snapshot = snapshot
