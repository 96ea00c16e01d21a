"""The conformance surveys, each in processes of its own: a crash is a verdict (wrong), and the rest of the entries goes on.

    python tests/conformance/run.py [CHECK ...] [--dtype float32 ...] [--part I/N] [--json FILE]
    python tests/conformance/run.py --all        every check and dtype, in both memory modes (hours on one core)

Prints what is not equal as it is found, then four counts per check and dtype: executed, equal, refused, wrong. Ends with 1
if anything is wrong.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64"]


class Rows:
    """The rows of one shard's file: finished ones, and the entry that was running when the process ended."""

    def __init__(self, path):
        self.done, self.open = [], None
        if not os.path.exists(path):
            return
        with open(path) as f:
            for line in f:
                row = json.loads(line)
                self.open = None if "verdict" in row else row
                if "verdict" in row:
                    self.done.append(row)


def run_shard(checks, dtype, shard, path, env=None, samples=6, timeout=7200, log=sys.stderr, live=False):
    """All rows of a shard. The process is started again after a crash, behind the entry that caused it. `live`: what the
    process prints is shown as it comes."""
    command = [sys.executable, os.path.join(HERE, "opinfo.py"), *checks, "--dtype", dtype, "--shard", "%d/%d" % shard,
               "--threads", "1", "--samples", str(samples), "--json", path, "--skip", path]
    full = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
    open(path, "a").close()
    shown = None if live else subprocess.DEVNULL
    while True:
        done = subprocess.run(command, env=full, stdout=shown, stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout)
        rows = Rows(path)
        if done.returncode == 0:
            return rows.done
        if rows.open is None:   # it ended before any entry, or between two
            raise RuntimeError(f"opinfo.py ended with {done.returncode}: {done.stderr[-3000:]}")
        last = (done.stderr.strip().splitlines() or [""])[-1]
        row = {**rows.open, "dtype": dtype, "verdict": "wrong", "samples": 0, "kernels": [],
               "reason": f"the process ended with {done.returncode}: {last}"[:300]}
        print(f"{row['name']}: {row['reason']}", file=log)
        with open(path, "a") as f:
            f.write(json.dumps(row) + "\n")


def survey(checks, dtypes, part=(0, 1), workers=2, env=None, samples=6, folder=None, live=False):
    """Rows of the part'th of N parts of all entries, by `workers` processes at a time. Raises what a worker raised."""
    folder = folder or tempfile.mkdtemp(prefix="flagos-conformance-")
    jobs = [(dtype, (part[0] + part[1] * i, part[1] * workers)) for dtype in dtypes for i in range(workers)]
    rows, errors, lock = [], [], threading.Lock()

    def work():
        while True:
            with lock:
                if not jobs or errors:
                    return
                dtype, shard = jobs.pop(0)
            try:
                path = os.path.join(folder, f"{dtype}-{shard[0]}-{shard[1]}.jsonl")
                got = run_shard(checks, dtype, shard, path, env, samples, live=live)
            except Exception as error:  # noqa: BLE001 - handed to the caller
                with lock:
                    errors.append(error)
                return
            with lock:
                rows.extend(got)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return rows


def counts(rows):
    """(check, dtype) -> executed, equal, refused, wrong."""
    out = {}
    for r in rows:
        c = out.setdefault((r["check"], r["dtype"]), {"executed": 0, "equal": 0, "refused": 0, "wrong": 0})
        if r["verdict"] != "none":
            c["executed"] += 1
            c[r["verdict"]] += 1
    return out


def table(rows):
    lines = []
    for (check, dtype), c in counts(rows).items():
        share = 100 * c["equal"] / c["executed"] if c["executed"] else 0
        lines.append(f"{check:18} {dtype:10} executed {c['executed']:4}  equal {c['equal']:4} ({share:.1f} %)  "
                     f"refused {c['refused']:3}  wrong {c['wrong']:3}")
    return "\n".join(lines)


def others(rows):
    """What is neither equal nor without samples, as lines of a baseline."""
    return sorted({f"{r['check']} {r['dtype']} {r['name']}: {r['verdict']}: {r['reason']}" for r in rows
                   if r["verdict"] not in ("equal", "none")})


def main():
    sys.path.insert(0, HERE)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", metavar="CHECK")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES)
    parser.add_argument("--part", default="0/1", help="I/N: only every N-th entry")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--json", help="file for all rows")
    parser.add_argument("--discrete", action="store_true", help="treat the device as a discrete card (FLAGOS_SHARED_MEMORY=0)")
    args = parser.parse_args()
    from opinfo import CHECKS

    modes = {"shared memory": {}, "discrete": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"}}
    if not args.all:
        modes = {"discrete": modes["discrete"]} if args.discrete else {"shared memory": {}}
    checks = list(CHECKS) if args.all else args.checks or ["forward"]
    dtypes = DTYPES if args.all else args.dtype or ["float32"]
    part = tuple(int(x) for x in args.part.split("/"))
    everything = []
    for mode, env in modes.items():
        start = time.monotonic()
        rows = survey(checks, dtypes, part, args.workers, env, args.samples, live=True)
        everything += [{**r, "mode": mode} for r in rows]
        print(*others(rows), sep="\n")
        print(f"{mode}, {time.monotonic() - start:.0f} s\n{table(rows)}", flush=True)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(everything, f, indent=1)
    return 1 if any(r["verdict"] == "wrong" for r in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
