"""op_db with OpenCL kernels alone: FLAGOS_ROUTE=opencl, FLAGOS_FALLBACK=forbid, float32, forward and backward.

    python tests/conformance/opencl_alone.py [--part I/N] [--discrete] [--write] [--routes]

An entry is equal if every check of it is. baselines/opencl_float32.txt names all others with a reason and may only shrink;
baselines/opencl_no_launch.txt names the entries that start no kernel because nothing is computed. --write renews both
from a whole run (a commit of its own that says why). --routes renews baselines/routes_float32.txt instead, and prints what it
would lose: the operators that OpenCL computes in each entry where the host may help with the others.
"""
import argparse
import os
import re
import sys

import run

HERE = os.path.dirname(os.path.abspath(__file__))
OTHERS = os.path.join(HERE, "baselines", "opencl_float32.txt")
ROUTES = os.path.join(HERE, "baselines", "routes_float32.txt")
SILENT = os.path.join(HERE, "baselines", "opencl_no_launch.txt")
ALONE = {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"}

# Why an operator has no kernel, by name; what is in none of these says which operator is missing.
WHY = [
    (r"aten::(_fft_|complex|polar|conj|angle|view_as_complex|real|imag)|complex32|complex64|complex128|ComplexFloat", "complex numbers have no OpenCL kernels"),
    (r"linalg_(svd|eig|eigh|eigvals|lstsq)|_linalg_(svd|eigh|eigvals)|matrix_exp", "iterative factorisations run on the host"),
    (r"ldl", "symmetric indefinite factorisation runs on the host"),
    (r"[Ss]parse", "sparse layouts: npu tensors are strided"),
    (r"(conv|pool|sampler|unpool|linear)(ution\w*)?_?3d|trilinear3d", "three spatial dimensions run on the host"),
    (r"bicubic", "bicubic interpolation runs on the host"),
]


def survey(part=(0, 1), workers=2, env=None, samples=6):
    return run.survey(["forward", "backward"], ["float32"], part, workers, {**ALONE, **(env or {})}, samples)


def reason(text):
    for pattern, why in WHY:
        if re.search(pattern, text):
            return why
    missing = re.search(r"no OpenCL kernel for (aten::[\w.]+)", text)
    if missing:
        return f"no OpenCL kernel for {missing[0].split()[-1]}, or not for this call"
    return text


def judged(rows):
    """Entry -> (verdict, reason, launches), over all its checks."""
    out = {}
    for r in rows:
        if r["verdict"] == "none":
            continue
        verdict, why, launches = out.get(r["name"], ("equal", "", 0))
        if verdict == "equal" or r["verdict"] == "wrong":
            verdict, why = r["verdict"], r["reason"]
        out[r["name"]] = (verdict, why, launches + sum(row[3] for row in r["kernels"]))
    return out


def others(entries):
    return {name: (verdict, reason(why)) for name, (verdict, why, _) in entries.items() if verdict != "equal"}


def silent(entries):
    return sorted(name for name, (verdict, _, launches) in entries.items() if verdict == "equal" and launches == 0)


def names(path):
    """Entry -> the rest of its line."""
    with open(path) as f:
        return dict(line.rstrip("\n").split(": ", 1) for line in f if line.strip() and not line.startswith("#"))


def routes(rows):
    """"check entry" -> the operators that went to an OpenCL kernel."""
    out = {}
    for r in rows:
        ops = sorted({op.removeprefix("aten::") for op, kernel, *_ in r["kernels"] if kernel.startswith("opencl.")})
        if ops:
            out[f"{r['check']} {r['name']}"] = ops
    return out


def write_routes(new):
    old = names(ROUTES)
    for entry, ops in sorted(old.items()):
        if lost := sorted(set(ops.split()) - set(new.get(entry, []))):
            print(f"lost {entry}: {' '.join(lost)}")
    with open(ROUTES, "w") as f:
        f.write("# Operators that OpenCL kernels compute in each entry of op_db (float32, proven by a survey's kernel log). With\n"
                "# FLAGOS_ROUTE=opencl each must still launch one: a silent re-route to the host fails. `check entry: operators`\n")
        f.writelines(f"{entry}: {' '.join(ops)}\n" for entry, ops in sorted(new.items()))
    print(f"{len(new)} entries, {sum(map(len, new.values()))} operators; before {len(old)}, {sum(len(v.split()) for v in old.values())}")


def write(entries):
    with open(OTHERS, "w") as f:
        f.write("# Entries of op_db (float32, forward and backward, OpenCL alone) that are not equal to the CPU, and why.\n"
                "# This list may only shrink. `entry: verdict: reason`\n")
        f.writelines(f"{name}: {verdict}: {why}\n" for name, (verdict, why) in sorted(others(entries).items()))
    with open(SILENT, "w") as f:
        f.write("# Entries of op_db that are equal with OpenCL alone and start no kernel: nothing is computed on the device.\n")
        f.writelines(f"{name}: views, sizes or plain copies\n" for name in silent(entries))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="0/1", help="I/N: only every N-th entry")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--discrete", action="store_true", help="treat the device as a discrete card (FLAGOS_SHARED_MEMORY=0)")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--routes", action="store_true")
    args = parser.parse_args()
    part = tuple(int(x) for x in args.part.split("/"))
    if args.routes:
        if part != (0, 1):
            parser.error("--routes is made by a whole run")
        write_routes(routes(survey(part, args.workers, {"FLAGOS_FALLBACK": "allow"})))
        return 0
    entries = judged(survey(part, args.workers, {"FLAGOS_SHARED_MEMORY": "0"} if args.discrete else {}))
    bad = others(entries)
    for name, (verdict, why) in sorted(bad.items()):
        print(f"{verdict:8} {name}: {why}")
    equal, wrong = len(entries) - len(bad), sum(verdict == "wrong" for verdict, _ in bad.values())
    print(f"executed {len(entries)}, equal {equal} ({100 * equal / max(len(entries), 1):.1f} %), refused {len(bad) - wrong}, "
          f"wrong {wrong}; without a launch {len(silent(entries))}")
    if args.write and part == (0, 1):
        write(entries)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
