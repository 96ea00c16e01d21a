"""Writes the denominator of coverage: every dense operator of the installed torch, from torchgen's own model.

    .venv/bin/python runtime/python/make_dense_ops.py > runtime/python/flagos/coverage/dense_ops.txt

In: overloads that have a CPU or CUDA kernel of their own, or delegate to a structured one. Out: composites (PyTorch makes them
of others), and the names of other libraries, layouts and number systems (OUTSIDE).
"""
import os
import re
import sys

import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import DispatchKey

# Names of what is not dense arithmetic on this device: vendor libraries, sparse, nested and quantized tensors.
OUTSIDE = re.compile(r"cudnn|miopen|mkldnn|triton|sparse|cslt|nested|quant|_scaled_(grouped_)?mm|int[48]pack|_convert_indices_from_c|"
                     r"_fused_moving_avg|_make_per_|_cuda|_pin_memory|^_test_")


def main():
    base = os.path.join(os.path.dirname(torchgen.__file__), "packaged", "ATen", "native")
    parsed = parse_native_yaml(os.path.join(base, "native_functions.yaml"), os.path.join(base, "tags.yaml"))
    kernels = parsed.backend_indices
    functional = {}   # signature without its mutable parts -> the functional overload
    for f in parsed.native_functions:
        if f.func.kind().name == "functional":
            functional.setdefault(f.func.signature(), str(f.func.name))
    rows, composite, outside = [], 0, 0
    for f in parsed.native_functions:
        name = str(f.func.name)
        if f.structured_delegate is not None:
            kind = "structured"
        elif f.has_composite_implicit_autograd_kernel:
            kind = None
        elif kernels[DispatchKey.CPU].has_kernel(f) or kernels[DispatchKey.CUDA].has_kernel(f):
            kind = "kernel"
        else:
            kind = None
        if kind is None:
            composite += 1
        elif OUTSIDE.search(name):
            outside += 1
        else:
            of = functional.get(f.func.signature()) if f.func.kind().name in ("out", "inplace") else None
            rows.append(f"aten::{name} {kind}" + (f" of=aten::{of}" if of and of != name else ""))
    import torch

    print(f"# The dense operators of torch {torch.__version__.split('+')[0]}, by runtime/python/make_dense_ops.py: operator, how PyTorch")
    print("# defines it (kernel of its own, or structured: by delegation), and the functional operator it is a form of.")
    print(f"# {len(rows)} of {len(parsed.native_functions)} overloads; left out: {composite} composites and others without a CPU or "
          f"CUDA kernel, {outside} of other libraries, layouts and number systems.")
    print(*sorted(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
