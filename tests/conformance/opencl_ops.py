"""Operators of the index, sort, set, scan and linear-algebra families with OpenCL kernels alone, npu against CPU, in the
dtypes that op_db's float32 survey does not reach. Run by test_opencl_ops.py; prints one line per difference."""
import sys
import warnings

import torch

warnings.filterwarnings("ignore")
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
WHOLE = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
NUMBERS = FLOATS + WHOLE
ALL = NUMBERS + [torch.bool]
DOUBLE = [torch.float64]


def data(shape, dtype, seed=0):
    """Values with repeats and both signs, exact in every dtype."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randint(0 if dtype in (torch.uint8, torch.bool) else -4, 2 if dtype == torch.bool else 5, shape, generator=source)
    return x.to(dtype)


def distinct(shape, dtype):
    n = int(torch.tensor(shape).prod())
    return torch.randperm(n, generator=torch.Generator().manual_seed(1)).sub(n // 2).to(dtype).view(shape)


def rows(*values):
    return torch.tensor(values)


def divisions(x):
    """Whole numbers by numbers that are not 0, the largest of the dtype and -1 (no number of an unsigned one) among them."""
    by = [3, torch.iinfo(x.dtype).max] + ([-3, -1] if x.dtype.is_signed else [])
    return [f(x * 31, n) for n in by for f in (torch.remainder, torch.fmod, torch.floor_divide, divided_to_zero)]


def divided_to_zero(x, n):
    return torch.div(x, n, rounding_mode="trunc")


# name, dtypes, function of (x = values [4, 5], y = others of that shape), both on the device
TABLE = [
    ("gather", ALL, lambda x, y: x.gather(1, rows([0, 4], [1, 1], [2, 3], [4, 0]).to(x.device))),
    ("gather of a column", ALL, lambda x, y: x.t().gather(0, rows([4, 0, 1, 2]).to(x.device))),
    ("index_select", ALL, lambda x, y: x.index_select(1, rows(4, 0, 0).to(x.device))),
    ("index_select of a number", ALL, lambda x, y: x[0, 0].index_select(0, rows(0).to(x.device))),
    ("index_select out=", ALL, lambda x, y: torch.index_select(x, 0, rows(3, 1).to(x.device), out=x.new_empty(0))),
    ("index", ALL, lambda x, y: x[rows([0], [3]).to(x.device), rows(4, -1).to(x.device)]),
    ("index by int32", ALL, lambda x, y: x[:, rows(4, -5).int().to(x.device)]),
    ("mask", ALL, lambda x, y: x[x > y]),
    ("mask of rows", ALL, lambda x, y: x[(x[:, 0] > y[:, 0])]),
    ("mask and slice", ALL, lambda x, y: x[:, (x[0] >= y[0])]),
    ("write by mask", ALL, lambda x, y: x.clone().index_put_((x > y,), y[0, 0])),
    ("index_put", ALL, lambda x, y: x.clone().index_put_((rows(0, 3).to(x.device), rows(1, 2).to(x.device)), y[0, :2])),
    ("index_put accumulate", NUMBERS, lambda x, y: x.clone().index_put_((rows(0, 0, 3).to(x.device),), y[:3], accumulate=True)),
    ("take", ALL, lambda x, y: x.take(rows([19, 0], [-1, 7]).to(x.device))),
    ("put", ALL, lambda x, y: x.clone().put_(rows(19, 0).to(x.device), y[0, :2])),
    ("put into a transposed one", ALL, lambda x, y: x.t().clone().t().put_(rows(19, 0).to(x.device), y[0, :2])),
    ("scatter", ALL, lambda x, y: x.scatter(0, rows([3, 2, 1, 0, 1]).to(x.device), y)),
    ("scatter a number", ALL, lambda x, y: x.scatter(1, rows([0], [1], [2], [4]).to(x.device), 1)),
    ("scatter_add", NUMBERS, lambda x, y: x.scatter_add(0, rows([0] * 5, [0] * 5).to(x.device), y)),
    ("scatter multiply", NUMBERS, lambda x, y: x.scatter(0, rows([3, 2, 1, 0, 1]).to(x.device), y, reduce="multiply")),
    ("index_add", NUMBERS, lambda x, y: x.index_add(0, rows(0, 3, 0, 1).to(x.device), y)),
    ("index_add alpha", NUMBERS, lambda x, y: x.index_add(1, rows(0, 0, 1, 4, 2).to(x.device), y, alpha=2)),
    ("index_copy", ALL, lambda x, y: x.index_copy(0, rows(3, 1, 0, 2).to(x.device), y)),
    ("index_fill", ALL, lambda x, y: x.index_fill(1, rows(0, 4).to(x.device), 1)),
    ("masked_fill by a tensor", ALL, lambda x, y: x.masked_fill(x > y, y[0, 0])),
    ("masked_select", ALL, lambda x, y: x.masked_select(x >= y)),
    # Powers that half precision does not hold, of norms that it does.
    ("norms", FLOATS, lambda x, y: [torch.linalg.vector_norm(x * 8, p, dim=d) for p in (-2, 0.5, 3, 4, 6) for d in (None, 0, (0, 1))]),
    ("pairwise distance", FLOATS, lambda x, y: torch.nn.functional.pairwise_distance(x * 8, y * 8 + 0.5, p=4)),
    ("masked_scatter", ALL, lambda x, y: x.masked_scatter(x > y, y)),
    ("fill by a tensor", ALL, lambda x, y: x.clone().fill_(y[0, 0])),
    ("nonzero", ALL, lambda x, y: x.nonzero()),
    ("nonzero of a transposed one", ALL, lambda x, y: x.t().nonzero()),
    ("argwhere", ALL, lambda x, y: x.argwhere()),
    ("nonzero_static", ALL, lambda x, y: torch.nonzero_static(x, size=3)),
    ("count_nonzero", ALL, lambda x, y: x.count_nonzero(1)),
    ("sort", ALL, lambda x, y: x.sort(stable=True, dim=1)),
    ("sort down", ALL, lambda x, y: x.t().sort(stable=True, dim=0, descending=True)),
    ("argsort", ALL, lambda x, y: x.argsort(stable=True, dim=1)),
    ("msort", NUMBERS, lambda x, y: x.msort()),
    ("topk", NUMBERS, lambda x, y: x.topk(3, 1).values),
    ("topk smallest", NUMBERS, lambda x, y: x.topk(2, 0, largest=False).values),
    ("kthvalue", NUMBERS, lambda x, y: x.kthvalue(2, 1).values),
    ("median", NUMBERS, lambda x, y: x.median()),
    ("median of rows", NUMBERS, lambda x, y: x.median(1).values),
    ("mode", NUMBERS, lambda x, y: x.mode(1).values),
    ("unique", ALL, lambda x, y: x.unique(return_inverse=True, return_counts=True)),
    ("unique rows", NUMBERS, lambda x, y: torch.cat([x, x[:2]]).unique(dim=0, return_inverse=True, return_counts=True)),
    ("unique_consecutive", ALL, lambda x, y: x.sort(1).values.unique_consecutive(return_inverse=True, return_counts=True)),
    ("isin", NUMBERS, lambda x, y: torch.isin(x, y[0])),
    ("searchsorted", NUMBERS, lambda x, y: torch.searchsorted(x[0].sort().values, y, right=True)),
    ("bucketize", NUMBERS, lambda x, y: torch.bucketize(y, x[0].sort().values)),
    ("cumsum", ALL, lambda x, y: x.cumsum(1)),
    ("cumprod", ALL, lambda x, y: x.cumprod(0)),
    ("cummax", NUMBERS, lambda x, y: x.cummax(1)),
    ("cummin", NUMBERS, lambda x, y: x.cummin(0)),
    ("logcumsumexp", [torch.float32], lambda x, y: x.logcumsumexp(1)),
    ("flip", ALL, lambda x, y: x.t().flip(0)),
    ("roll", ALL, lambda x, y: x.roll((1, -2), (0, 1))),
    ("roll flat", ALL, lambda x, y: x.roll(3)),
    ("rot90", ALL, lambda x, y: x.rot90()),
    ("tril", ALL, lambda x, y: x.tril(1)),
    ("triu", ALL, lambda x, y: x.triu(-1)),
    ("trace", NUMBERS, lambda x, y: x[:, :4].trace()),
    ("diag_embed", ALL, lambda x, y: x.diag_embed()),
    ("cat with a cast", NUMBERS, lambda x, y: torch.cat([x, y.long()], 1)),
    ("stack", ALL, lambda x, y: torch.stack([x, y], 1)),
    ("repeat_interleave", ALL, lambda x, y: x.repeat_interleave(rows(0, 2, 1, 3).to(x.device), 0)),
    ("bincount", WHOLE, lambda x, y: x.abs().flatten().bincount(minlength=7)),
    ("histc", [torch.float32], lambda x, y: x.histc(5, -4, 4)),
    ("renorm", [torch.float32], lambda x, y: x.renorm(2, 0, 1.5)),
    ("aminmax", NUMBERS, lambda x, y: x.aminmax(dim=1)),
    ("nansum", NUMBERS, lambda x, y: x.nansum(1)),
    ("var_mean", [torch.float32], lambda x, y: torch.var_mean(x, 1)),
    ("equal", ALL, lambda x, y: torch.tensor([torch.equal(x, x.clone()), torch.equal(x, y)])),
    ("sgn", NUMBERS, lambda x, y: x.sgn()),
    ("divisions", WHOLE, lambda x, y: divisions(x)),
    ("floor division in place", NUMBERS, lambda x, y: [x.clone().floor_divide_(n) for n in (3, 2)] + [x.t().clone().t().floor_divide_(3)]),
    ("rsub", NUMBERS, lambda x, y: torch.rsub(x, y, alpha=2)),
    ("shifts", [torch.int64, torch.int32, torch.int16], lambda x, y: (torch.bitwise_left_shift(x, y.abs()), torch.bitwise_right_shift(x, y.abs()))),
    ("round to decimals", FLOATS, lambda x, y: (x / 8).round(decimals=1)),
    ("special functions of half types", [torch.float16, torch.bfloat16], lambda x, y: (torch.special.i0e(x), torch.digamma(x.abs() + 1))),
    ("addbmm", [torch.float32] + DOUBLE, lambda x, y: torch.addbmm(y[0, :2], x.view(2, 2, 5), y.view(2, 5, 2), beta=2, alpha=0.5)),
    ("addbmm in place", [torch.float32], lambda x, y: y[:2, :2].clone().addbmm_(x.view(2, 2, 5), y.view(2, 5, 2), beta=0.5)),
    ("addr", FLOATS, lambda x, y: torch.addr(x, x[:, 0], y[0], beta=0.5, alpha=2)),
    ("addr in place", FLOATS, lambda x, y: (x * float("nan")).addr_(x[:, 0], y[0], beta=0)),
    ("vdot", FLOATS, lambda x, y: torch.vdot(x[0], y[:, 1].repeat(2)[:5])),
    ("eye", ALL, lambda x, y: torch.eye(3, 4, dtype=x.dtype, device=x.device)),
    ("tril_indices", [torch.int64], lambda x, y: torch.tril_indices(4, 3, 1, device=x.device)),
    ("linspace", [torch.float32], lambda x, y: torch.linspace(-2, 3, 11, device=x.device)),
    ("cdist", [torch.float32], lambda x, y: torch.cdist(x, y, p=1.5)),
    ("pdist", [torch.float32], lambda x, y: torch.nn.functional.pdist(x)),
    ("inv", [torch.float32] + DOUBLE, lambda x, y: torch.linalg.inv(spread(x))),
    ("det", [torch.float32] + DOUBLE, lambda x, y: torch.linalg.det(spread(x))),
    ("slogdet", [torch.float32] + DOUBLE, lambda x, y: torch.linalg.slogdet(spread(x))),
    ("solve", [torch.float32] + DOUBLE, lambda x, y: torch.linalg.solve(spread(x), y[:, :4])),
    ("solve from the right", [torch.float32], lambda x, y: torch.linalg.solve(spread(x), y[:, :4], left=False)),
    ("cholesky", [torch.float32] + DOUBLE, lambda x, y: torch.linalg.cholesky(spread(x) @ spread(x).mT)),
    ("qr", [torch.float32] + DOUBLE, lambda x, y: torch.linalg.qr(spread(x))),
    ("lu", [torch.float32], lambda x, y: torch.linalg.lu(spread(x))),
    ("cross", NUMBERS, lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3])),
    ("grid_sample", [torch.float32], lambda x, y: torch.nn.functional.grid_sample(
        x.view(1, 1, 4, 5), (y.flatten()[:18] / 3).view(1, 3, 3, 2), mode="bicubic", padding_mode="reflection", align_corners=False)),
]


def spread(x):
    """A well-conditioned matrix of 4 rows."""
    return x[:, :4] + 9 * torch.eye(4, dtype=x.dtype, device=x.device)


def leaves(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def difference(cpu, npu):
    for a, b in zip(leaves(cpu), leaves(npu), strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{b.dtype} {list(b.shape)} instead of {a.dtype} {list(a.shape)}"
        tolerance = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-9}.get(a.dtype, 0)
        if not torch.allclose(b.cpu().double(), a.double(), rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"{b.tolist()} instead of {a.tolist()}"
    return None


def main():
    run = 0
    for name, dtypes, call in TABLE:
        for dtype in dtypes:
            x, y = data((4, 5), dtype), data((4, 5), dtype, seed=3)
            if name.startswith(("sort", "topk", "kthvalue")) and dtype not in (torch.bool, torch.uint8):
                x = distinct((4, 5), dtype)
            try:
                text = difference(call(x, y), call(x.to("npu"), y.to("npu")))
            except Exception as error:  # noqa: BLE001 - told
                text = f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"
            run += 1
            if text:
                print(f"{name} {dtype}: {text}")
    print(f"{run} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
