"""When an answer equals the CPU's."""
import torch
from samples import leaves, strided
from torch.utils._pytree import tree_map

# float32 sums of different order differ by a few units in the last place; everything else is exact or close to it.
# dtype -> (absolute, relative)
TOLERANCE = {torch.float32: (2e-5, 1.3e-5), torch.complex64: (2e-5, 1.3e-5), torch.bfloat16: (1e-2, 1.6e-2),
             torch.float16: (2e-3, 2e-3), torch.float64: (1e-7, 1e-7), torch.complex128: (1e-7, 1e-7)}
WIDER = {torch.float32: torch.float64, torch.complex64: torch.complex128, torch.bfloat16: torch.float32,
         torch.float16: torch.float32}
# Against the answer in a wider type the npu may err this many times as much as the CPU does.
ERROR_FACTOR = 4


def number_differs(x, y):
    if x != x and y != y:
        return False
    if isinstance(x, float):
        return not (x == y or abs(x - y) <= 1e-5 * max(1, abs(x)))
    return x != y


def tensor_difference(x, y, exact=None):
    """None, or how y (npu) differs from x (CPU). exact: the answer in a wider type, asked for only when needed."""
    atol, rtol = TOLERANCE.get(x.dtype, (0, 0))
    y = y.cpu()
    try:
        torch.testing.assert_close(y, x, atol=atol, rtol=rtol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        if exact is not None and as_close_as(x, y, exact):
            return None
        return " | ".join([line for line in str(error).splitlines() if line.strip()][:4])
    return None


def as_close_as(x, y, exact):
    """Both round differently; the npu's answer must not be farther from the exact one than the CPU's, by a factor."""
    if exact.shape != x.shape or not (exact.is_floating_point() or exact.is_complex()):
        return False
    wide = exact.dtype
    fine = torch.isfinite(exact) & torch.isfinite(x)
    if not torch.equal(torch.isfinite(y), torch.isfinite(x)):
        return False
    if not fine.any():
        return False
    a, b, c = x.to(wide)[fine], y.to(wide)[fine], exact[fine]
    scale = torch.finfo(x.dtype).eps * c.abs().max().item()
    allowed = ERROR_FACTOR * max((a - c).abs().max().item(), scale)
    return (b - c).abs().max().item() <= allowed and torch.equal(x[~fine].isnan(), y[~fine].isnan())


# Means and deviations that normalisation saves for its backward: the CPU keeps those of half types in the half type,
# the npu (as other accelerators) in float32. Their values are compared all the same.
SAVED = {"native_batch_norm", "native_layer_norm", "native_group_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}


def with_saved_types(name, cpu, npu):
    if name not in SAVED:
        return npu
    return tuple(y.to(x.dtype) if i and y.dtype == torch.float32 else y for i, (x, y) in enumerate(zip(cpu, npu)))


def differences(cpu, npu, values=True, exact=None):
    """None, or a sentence. values: False compares shapes and dtypes only. exact: a function that gives the results in a
    wider type, or None where that cannot be done."""
    a, b = leaves(cpu), leaves(npu)
    if len(a) != len(b):
        return f"{len(b)} results instead of {len(a)}"
    wide = None
    for i, (x, y) in enumerate(zip(a, b)):
        if not isinstance(x, torch.Tensor):
            if isinstance(x, (int, float, complex, bool)) and values and number_differs(x, y):
                return f"{y!r} instead of {x!r}"
            continue
        if not isinstance(y, torch.Tensor):
            return f"{type(y).__name__} instead of a tensor"
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{y.dtype}{list(y.shape)} instead of {x.dtype}{list(x.shape)}"
        if x.numel() == 0 or not values:
            continue
        text = tensor_difference(x, y)
        if text and exact is not None and x.dtype in WIDER:
            if wide is None:
                wide = leaves(exact() or [])
            if i < len(wide) and isinstance(wide[i], torch.Tensor):
                text = tensor_difference(x, y, wide[i])
        if text:
            return text
    return None


def widened(call):
    """The call in wider floating types, on the CPU."""
    out = call.mapped(lambda t: t.detach().to(WIDER[t.dtype]).requires_grad_(t.requires_grad) if t.dtype in WIDER else t)
    out.tree = tree_map(lambda x: WIDER.get(x, x) if isinstance(x, torch.dtype) else x, out.tree)
    return out


def misplaced(cpu, npu):
    """None, or where a result lies that should be on the npu."""
    for x, y in zip(leaves(cpu), leaves(npu)):
        if isinstance(y, torch.Tensor) and y.device.type != "npu":
            return f"a result is on {y.device}"
    return None


def alias_difference(cpu_args, cpu, npu_args, npu):
    """Results that are views of an argument on the CPU must be the same views on the npu."""
    def owners(args):
        return {t.untyped_storage()._cdata: i for i, t in enumerate(leaves(args)) if strided(t)}

    a, b = owners(cpu_args), owners(npu_args)
    for x, y in zip(leaves(cpu), leaves(npu)):
        if not strided(x) or not strided(y) or x.numel() == 0:
            continue
        i, j = a.get(x.untyped_storage()._cdata), b.get(y.untyped_storage()._cdata)
        if i != j:
            return "a result is a copy, on the CPU it is a view" if j is None else "a result is a view, on the CPU it is a copy"
        if i is not None and (x.stride() != y.stride() or x.storage_offset() != y.storage_offset()):
            return (f"a view has strides {y.stride()} and offset {y.storage_offset()} instead of {x.stride()} and "
                    f"{x.storage_offset()}")
    return None
