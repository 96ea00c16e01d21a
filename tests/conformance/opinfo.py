"""Every operator of PyTorch's own test database (op_db), npu against CPU.

    python tests/conformance/opinfo.py [--dtype float32] [--shard I/N] [--only NAME] [--json FILE]

Per entry one verdict:
  equal     all samples agree with the CPU (values, dtype, shape) and live on the npu
  refused   the npu raised an error where the CPU did not
  wrong     an answer differs; this is never acceptable
  none      the database has no sample that the CPU itself can run
Entries whose values are undefined (empty) or random are compared by shape, dtype and device.
"""
import argparse
import json
import sys
import warnings

import torch

warnings.filterwarnings("ignore")

UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# Results depend on the generator. Others (attention with dropout) are found by two CPU runs with different seeds.
RANDOM = {"bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "rand_like", "randint",
          "randint_like", "randn", "randn_like", "uniform", "nn.functional.alpha_dropout", "nn.functional.dropout",
          "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout",
          "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.rrelu"}
# float32 sums of different order differ by a few units in the last place; everything else is exact or close to it.
TOLERANCE = {torch.float32: (2e-5, 1.3e-5), torch.complex64: (2e-5, 1.3e-5), torch.bfloat16: (1e-2, 1.6e-2),
             torch.float16: (2e-3, 2e-3), torch.float64: (1e-7, 1e-7)}


def entries(shard, only=None):
    from torch.testing._internal.common_methods_invocations import op_db

    # Many entries seed the generator inside, which would make random results look determined on the CPU.
    from torch.testing._internal import common_methods_invocations as database
    from torch.testing._internal.opinfo.definitions import special  # noqa: F401 - loads the definitions

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith(database.__name__.rpartition(".")[0]) and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    index, count = shard
    chosen = [op for op in sorted(op_db, key=lambda o: full_name(o)) if only is None or only in (op.name, full_name(op))]
    return chosen[index::count]


def full_name(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def moved(tree, device):
    from torch.utils._pytree import tree_map

    def one(x):
        if isinstance(x, torch.Tensor):
            return x.detach().to(device)
        if isinstance(x, torch.device):
            return torch.device(device)
        if isinstance(x, str) and x == "cpu":
            return device
        return x

    return tree_map(one, tree)


def run(op, sample, device, seed=0):
    torch.manual_seed(seed)
    tensors = moved((sample.input, sample.args, sample.kwargs), device) if device != "cpu" else (
        sample.input, sample.args, sample.kwargs)
    # A fresh copy each time: some operators write to their input.
    from torch.utils._pytree import tree_map

    first, args, kwargs = tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) and x.layout == torch.strided else x,
                                   tensors)
    return op(first, *args, **kwargs)


def leaves(value):
    from torch.utils._pytree import tree_flatten

    return tree_flatten(value)[0]


def differences(cpu, npu, values):
    """None, or a sentence."""
    a, b = leaves(cpu), leaves(npu)
    if len(a) != len(b):
        return f"{len(b)} results instead of {len(a)}"
    for x, y in zip(a, b):
        if not isinstance(x, torch.Tensor):
            if isinstance(x, (int, float, complex, bool)) and values and x != y and not (x != x and y != y):
                if not (isinstance(x, float) and abs(x - y) <= 1e-5 * max(1, abs(x))):
                    return f"{y!r} instead of {x!r}"
            continue
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"{y.dtype}{list(y.shape)} instead of {x.dtype}{list(x.shape)}"
        if x.numel() == 0 or not values:
            continue
        atol, rtol = TOLERANCE.get(x.dtype, (0, 0))
        try:
            torch.testing.assert_close(y.cpu(), x, atol=atol, rtol=rtol, equal_nan=True, check_stride=False)
        except AssertionError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            return " | ".join(lines[:4])
    return None


def same(a, b):
    return differences(a, b, True) is None


def judge(op, dtype, samples):
    """(verdict, reason, samples run)"""
    values = op.name not in UNDEFINED and op.name not in RANDOM
    done = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=False):
        if done >= samples:
            break
        try:
            cpu = run(op, sample, "cpu")
            random = values and not same(cpu, run(op, sample, "cpu", seed=1))
        except Exception:  # noqa: BLE001 - the CPU itself refuses this sample
            continue
        done += 1
        try:
            npu = run(op, sample, "npu")
        except Exception as error:  # noqa: BLE001 - the verdict says so
            return "refused", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300], done
        for x, y in zip(leaves(cpu), leaves(npu)):
            if isinstance(y, torch.Tensor) and y.device.type != "npu" and not already_there(op, sample):
                return "wrong", f"a result is on {y.device}", done
        text = differences(cpu, npu, values and not random)
        if text:
            return "wrong", text[:300], done
    return ("equal", "", done) if done else ("none", "no sample that the CPU runs", 0)


def already_there(op, sample):
    """Operators without any tensor or device argument make CPU tensors on every device."""
    found = leaves((sample.input, sample.args, sample.kwargs))
    return not any(isinstance(x, (torch.Tensor, torch.device)) or x == "cpu" for x in found)


def kernels():
    counts = {}
    for row in torch.flagos._C.route_counts():
        counts[row["kernel"]] = counts.get(row["kernel"], 0) + row["calls"]
    return counts


def survey(dtype, shard, only=None, samples=6, progress=None):
    rows, before = [], kernels()
    for op in entries(shard, only):
        if not op.supports_dtype(dtype, "cpu"):
            continue
        name = full_name(op)
        if progress:
            progress.write(name + "\n")
            progress.flush()
        verdict, reason, done = judge(op, dtype, samples)
        after = kernels()
        used = sorted(k for k, n in after.items() if n > before.get(k, 0))
        if progress:
            progress.write(f"  {verdict} {reason}\n")
        before = after
        rows.append({"name": name, "verdict": verdict, "reason": reason, "samples": done, "kernels": used})
    return rows


def summary(rows):
    count = {v: sum(r["verdict"] == v for r in rows) for v in ("equal", "refused", "wrong", "none")}
    count["executed"] = len(rows) - count["none"]
    count["opencl"] = sum(any(k.startswith("opencl.") for k in r["kernels"]) for r in rows)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--only")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--json")
    parser.add_argument("--progress", help="file that names the entry being run (to tell which one crashed)")
    args = parser.parse_args()
    torch.set_num_threads(2)
    shard = tuple(int(x) for x in args.shard.split("/"))
    progress = open(args.progress, "w") if args.progress else None
    rows = survey(getattr(torch, args.dtype), shard, args.only, args.samples, progress)
    for r in rows:
        if r["verdict"] != "equal":
            print(f"{r['verdict']:8} {r['name']}: {r['reason']}")
    print(summary(rows))
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
