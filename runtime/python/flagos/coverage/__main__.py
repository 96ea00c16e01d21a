"""Runs every dense operator of PyTorch once on the npu and says how it was computed, proven by the launches the driver reported.

    python -m flagos.coverage [--json] [--only add,mm] [--list native|composite|host|fallback|unsupported|untested|wrong]

native: an OpenCL kernel of the operator's own ran. composite: it ran as other operators, all of them native. host: its CPU
kernel ran on memory shared with the device. fallback: the same, with copies. unsupported: it raised, or only CUDA has a
kernel. untested: nothing could be compared or proven; the detail says why. Exit code: 0, 1 if an answer was wrong, 3 without a device.
"""
import argparse
import difflib
import json
import os
import sys
import warnings

KINDS = ["native", "composite", "host", "fallback", "unsupported", "untested", "wrong"]


# Operators of which only the first results are defined; the others are for their backward, and differ between PyTorch's own
# devices (_embedding_bag's offsets) or between two runs on the CPU (the entries of _ctc_loss's log_alpha that nothing fills).
DEFINED = {"aten::_ctc_loss": 1, "aten::_ctc_loss.Tensor": 1, "aten::_embedding_bag": 1,
           "aten::_embedding_bag_forward_only": 1}


UNTESTED = {"aten::record_stream": "a stream cannot be copied to another device, and there is no answer to compare"}


def equal(cpu, npu, defined=None):
    import torch
    from torch.utils._pytree import tree_flatten

    a, b = tree_flatten(cpu)[0][:defined], tree_flatten(npu)[0][:defined]
    for x, y in zip(a, b, strict=True):
        if not isinstance(x, torch.Tensor):
            continue
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"{y.dtype}{list(y.shape)} instead of {x.dtype}{list(x.shape)}"
        if not torch.allclose(y.cpu(), x, atol=1e-4, rtol=1e-3, equal_nan=True):
            return "values differ"
    return None


def excused(call, answer, of, cpu, npu):
    """Whether the difference is the CPU's: its answer is as far from the one in double precision, or its out= form differs from
    its own functional one (in torch 2.13 losses written to an `out` that had to be resized) and the npu's does not."""
    import torch
    from flagos.coverage.calls import answer_of, copied, widened
    from torch.utils._pytree import tree_flatten

    if of:
        args, kwargs = copied(call)
        kwargs.pop("out", None)
        try:
            if not equal(answer_of(of)(*args, **kwargs), npu):
                return True
        except Exception:  # noqa: BLE001 - not a call of the functional form
            pass
    args, kwargs = widened(call)
    try:
        exact = answer(*args, **kwargs)
    except Exception:  # noqa: BLE001 - no kernel in double precision
        return False
    exact, cpu, npu = ([t.double().cpu() for t in tree_flatten(r)[0] if isinstance(t, torch.Tensor)] for r in (exact, cpu, npu))
    return all(x.shape == y.shape == z.shape and (z - x).abs().max() <= 4 * (y - x).abs().max() for x, y, z in zip(exact, cpu, npu))


def log():
    import torch

    torch.npu.synchronize()
    return {(op, kernel): (calls, launches) for op, kernel, calls, launches in torch.flagos._C.kernel_log()}


def kind_of(name, of, ran, shared):
    """The kind of a call from the rows (operator, kernel) -> launches that it added to the kernel log."""
    import torch

    if is_view(name):
        return "native", "a view: nothing is computed"
    outside = {op for op, kernel in ran if not kernel.startswith("opencl.")}
    if outside:
        return ("host" if shared else "fallback"), sorted(outside)
    if not ran:
        own = torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")
        return ("native" if own else "composite"), "nothing is computed"
    launched = {op: kernel for (op, kernel), n in ran.items() if n}
    if not launched:
        return "untested", "no kernel was launched for its calls (nothing to compute in them)"
    own = [op for op in launched if base_of(op) in {base_of(name), base_of(of or name)} and ".composed" not in launched[op]]
    if own:
        return "native", sorted(launched.values())
    return "composite", sorted(launched)


def is_view(name):
    returns = _overload(name)._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def base_of(name):
    base = name.split(".")[0]
    return base[:-1] if base.endswith("_") and not base.endswith("__") else base


def judge(name, dense, found, random, shared):
    """(kind, detail)"""
    import torch
    from flagos.coverage.calls import answer_of, call_of, copied, overload_of
    from flagos.coverage.samples import CPU_SCALARS

    overload, answer, found_kind, refused = overload_of(name), answer_of(name), None, None
    if not (torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU")
            or torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1")):
        return "unsupported", "there is neither an OpenCL kernel nor a CPU kernel that could stand in"
    unproven = UNTESTED.get(name, "no call of it is known")
    for args, kwargs in call_of(name, found, dense):
        cpu_args = copied((args, kwargs))
        torch.manual_seed(0)
        try:
            cpu = answer(*cpu_args[0], **cpu_args[1])
        except Exception as error:  # noqa: BLE001 - not a call that PyTorch accepts
            unproven = "the CPU, which it would be compared with, refuses it: " + first_line(error)
            continue
        npu_args = copied((args, kwargs), "npu")
        if name in CPU_SCALARS:
            npu_args = ((*npu_args[0][:-1], cpu_args[0][-1]), npu_args[1])
        before = log()
        torch.manual_seed(0)
        try:
            npu = overload(*npu_args[0], **npu_args[1])
            after = log()
        except Exception as error:  # noqa: BLE001
            refused = first_line(error)
            continue
        ran = {key: after[key][1] - before.get(key, (0, 0))[1] for key in after if after[key][0] > before.get(key, (0, 0))[0]}
        difference = None if name in random else equal(cpu, npu, DEFINED.get(name)) or equal(cpu_args, npu_args)
        if difference and not excused((args, kwargs), answer, dense[name][1], cpu, npu):
            return "wrong", difference
        kind, detail = kind_of(name, dense[name][1], ran, shared)
        if kind == "untested":
            unproven = detail
        else:
            found_kind = found_kind or (kind, detail)
    return found_kind or (("unsupported", refused) if refused else ("untested", unproven))


def first_line(error):
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def spellings(name):
    """What `--only` may call the dense operator `name`."""
    return {name, name.removeprefix("aten::"), base_of(name.removeprefix("aten::"))}


def no_such_operator(only):
    """One sentence if a name of `only` is no operator of PyTorch, or none is a dense one; else None."""
    import torch
    from flagos.coverage.calls import dense_ops

    known = set().union(*map(spellings, dense_ops()))
    for name in only:
        if name not in known and not hasattr(torch.ops.aten, base_of(name.removeprefix("aten::"))):
            near = difflib.get_close_matches(name, known, 1)
            return f"no operator is named '{name}'" + (f"; did you mean {near[0]}?" if near else ".")
    if not known & set(only):
        return f"of {', '.join(only)} none is a dense operator with a kernel of its own; docs/contracts/coverage.md says which are."
    return None


def survey(only=None, progress=None):
    import torch
    from flagos.coverage.calls import dense_ops, watch_database

    dense = dense_ops()
    chosen = [n for n in dense if not only or spellings(n) & set(only)]
    wanted = set(chosen) | {dense[n][1] for n in chosen if dense[n][1]}
    found = watch_database(wanted, set(only) if only else None, progress)
    torch.flagos._C.count_launches(True)
    shared = bool(torch.flagos._C.device_facts(0)["shared_memory"])
    random = {n for n in chosen if (o := _overload(n)) is not None and torch.Tag.nondeterministic_seeded in o.tags
              or "empty" in n or "resize" in n or "_make_dep_token" in n}
    rows = []
    for name in chosen:
        if progress:
            progress(name)
        kind, detail = judge(name, dense, found, random, shared)
        rows.append({"op": name, "kind": kind, "detail": detail})
    return rows


def _overload(name):
    from flagos.coverage.calls import overload_of

    return overload_of(name)


def main():
    parser = argparse.ArgumentParser(prog="flagos certify --coverage", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="operators, separated by commas")
    parser.add_argument("--list", choices=KINDS, help="print the operators of one kind")
    args = parser.parse_args()
    # Only OpenCL kernels count as native: every other call is to show itself. Read at import.
    os.environ.update(FLAGOS_ROUTE="opencl", FLAGOS_FALLBACK="allow")
    warnings.filterwarnings("ignore")
    import torch

    if not hasattr(torch, "flagos") or not torch.npu.is_available():
        print("flagos certify: there is no npu device; `flagos doctor` says what was looked for.", file=sys.stderr)
        return 3
    only = args.only.split(",") if args.only else None
    if problem := only and no_such_operator(only):
        print(f"flagos certify: {problem}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    say = (lambda text: print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)) if sys.stderr.isatty() else None
    try:
        rows = survey(only, say)
    except ModuleNotFoundError as error:
        print(f"flagos certify: PyTorch's operator database needs the package {error.name}; pip install {error.name}.", file=sys.stderr)
        return 2
    if say:
        say("")
    counts = {kind: sum(r["kind"] == kind for r in rows) for kind in KINDS}
    computed = counts["native"] + counts["composite"]
    if args.json:
        print(json.dumps({"version": 1, "torch": torch.__version__, "device": torch.npu.get_device_name(0),
                          "denominator": len(rows), "counts": counts, "operators": rows}))
    else:
        for r in rows:
            if r["kind"] == args.list or r["kind"] == "wrong":
                detail = r["detail"] if isinstance(r["detail"], str) else ", ".join(r["detail"])
                print(f"{r['kind']:12} {r['op']}: {detail}")
        print(f"{torch.npu.get_device_name(0)}, torch {torch.__version__}: {len(rows)} dense operators")
        for kind in KINDS:
            print(f"  {kind:12} {counts[kind]:5}  {100 * counts[kind] / max(1, len(rows)):5.1f} %")
        print(f"  computed by OpenCL kernels (native and composite): {100 * computed / max(1, len(rows)):.1f} %")
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
