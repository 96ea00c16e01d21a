"""Every operator of PyTorch's own test database (op_db), npu against CPU, in this process.

    python tests/conformance/opinfo.py [CHECK ...] [--dtype float32] [--shard I/N] [--only NAME] [--json FILE]

CHECK: forward (the default), backward, and the others that --help names. Per entry one verdict:
  equal     all samples agree with the CPU (values, dtype, shape, views) and live on the npu
  refused   the npu raised an error where the CPU did not
  wrong     an answer differs; this is never acceptable
  none      the database has no sample that the CPU itself can run
Values that are undefined (empty) or random are compared by shape, dtype and device. Each row also names the kernels that
ran, by operator, with the launches that the driver reported. run.py runs several checks and dtypes in shards and survives a crash.
"""
import argparse
import json
import sys
import warnings

import arguments
import checks
import overlap
import torch
from samples import entries, full_name

CHECKS = {**checks.CHECKS, **arguments.CHECKS, **overlap.CHECKS}
# Checks that make several calls of one sample: about so many.
PER_SAMPLE = {"layouts": 3, "backward_layouts": 3, "out": 5, "inplace": 4, "zero": 4, "broadcast": 5, "promotion": 6, "overlap": 4}

warnings.filterwarnings("ignore")


def kernel_log():
    """(operator, kernel) -> (calls, launches) since the start of the process."""
    return {(op, kernel): (calls, launches) for op, kernel, calls, launches in torch.flagos._C.kernel_log()}


def ran_since(before):
    """Rows [operator, kernel, calls, launches] of what ran after `before`, and the log now."""
    now = kernel_log()
    rows = []
    for key, (calls, launches) in sorted(now.items()):
        old = before.get(key, (0, 0))
        if calls > old[0]:
            rows.append([*key, calls - old[0], launches - old[1]])
    return rows, now


def verdict(outcomes, limit):
    """The worst outcome of the first `limit` calls that the CPU can run: (verdict, reason, calls)."""
    done, worst = 0, ("none", "no sample that the CPU runs")
    for outcome in outcomes:
        if outcome is None:
            continue
        done += 1
        if outcome[0] == "wrong":
            return (*outcome, done)
        if worst[0] in ("none", "equal"):
            worst = outcome
        if done >= limit:
            break
    return (*worst, done)


def judge(check, op, dtype, samples):
    try:
        return verdict(CHECKS[check](op, dtype), samples * PER_SAMPLE.get(check, 1))
    except Exception as error:  # noqa: BLE001 - PyTorch cannot make its own samples for this dtype
        return ("none", f"no samples: {type(error).__name__}: {error}"[:200], 0)


def survey(chosen, dtype, shard, only=None, samples=6, begin=None, finished=None):
    """One row per check and entry. begin(check, name) and finished(row) are told about each as it happens."""
    torch.flagos._C.count_launches(True)
    log = kernel_log()
    rows = []
    for op in entries(shard, only):
        if not op.supports_dtype(dtype, "cpu"):
            continue
        for check in chosen:
            if begin and not begin(check, full_name(op)):
                continue
            result, reason, done = judge(check, op, dtype, samples)
            torch.npu.synchronize()
            kernels, log = ran_since(log)
            row = {"check": check, "dtype": str(dtype).split(".")[-1], "name": full_name(op), "verdict": result,
                   "reason": reason, "samples": done, "kernels": kernels}
            rows.append(row)
            if finished:
                finished(row)
    return rows


def summary(rows):
    count = {v: sum(r["verdict"] == v for r in rows) for v in ("equal", "refused", "wrong", "none")}
    count["executed"] = len(rows) - count["none"]
    count["opencl"] = sum(any(k.startswith("opencl.") for _, k, *_ in r["kernels"]) for r in rows)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=" ".join(CHECKS))
    parser.add_argument("--backward", action="store_true", help="the same as the check backward")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--shard", default="0/1", help="I/N: every N-th entry, from the I-th (from 0)")
    parser.add_argument("--only", help="an entry's or operator's name")
    parser.add_argument("--samples", type=int, default=6, help="samples compared per entry, about, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", help="file for the rows, one object a line, written as they come")
    parser.add_argument("--skip", help="file of rows that are done already (an earlier --json)")
    args = parser.parse_args()
    chosen = args.checks or ([] if args.backward else ["forward"])
    if args.backward and "backward" not in chosen:
        chosen.append("backward")
    unknown = [c for c in chosen if c not in CHECKS]
    if unknown:
        parser.error(f"no check {' '.join(unknown)}; there are {', '.join(CHECKS)}")
    torch.set_num_threads(args.threads)
    done = set()
    if args.skip:
        with open(args.skip) as f:
            done = {(row["check"], row["name"]) for row in map(json.loads, f) if "verdict" in row}
    out = open(args.json, "a") if args.json else None

    def write(row):
        if out:
            out.write(json.dumps(row) + "\n")
            out.flush()

    def begin(check, name):
        if (check, name) in done:
            return False
        write({"check": check, "name": name})   # so that a crash names its entry
        return True

    judged = 0

    def finished(row):
        nonlocal judged
        judged += 1
        write(row)
        if row["verdict"] not in ("equal", "none"):
            print(f"{row['verdict']:8} {row['check']} {row['dtype']} {row['name']}: {row['reason']}", flush=True)
        if judged % 100 == 0:
            print(f"{judged} entries of {args.dtype}, shard {args.shard}, as far as {row['name']}", flush=True)

    shard = tuple(int(x) for x in args.shard.split("/"))
    rows = survey(chosen, getattr(torch, args.dtype), shard, args.only, args.samples, begin, finished)
    print(summary(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
