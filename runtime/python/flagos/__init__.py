"""FlagOS: OpenCL devices as ``npu`` in PyTorch.

``import torch`` is enough: PyTorch loads this package through the entry point group ``torch.backends``. This module
imports nothing of torch, so that it may be imported before torch without loading half of it.
"""

__version__ = "0.1.0"


def _autoload():
    """Called by torch at the end of its own import. Never raises: a broken backend must not break ``import torch``."""
    import flagos._backend

    flagos._backend.load()


def __getattr__(name):
    # `import flagos; flagos.device_count()`: the package is also torch.flagos, whose functions live in flagos.npu.
    if name.startswith("_"):  # dunders, and our own submodules while they are being imported
        raise AttributeError(name)
    import importlib

    importlib.import_module("torch")
    module = importlib.import_module("flagos.npu")
    try:
        return getattr(module, name)
    except AttributeError:
        raise AttributeError(f"module 'flagos' has no attribute {name!r}") from None
