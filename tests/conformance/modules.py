"""PyTorch's own databases of modules and optimizers, npu against CPU.

    python tests/conformance/modules.py [--kind modules|optimizers] [--shard I/N] [--only NAME]

modules: every module, training and evaluation, forward, backward (inputs and parameters) and buffers. optimizers: every
configuration the database makes, foreach, fused and capturable forms where they apply, three steps each.
Prints four counts: executed, equal, refused, wrong; ends with 1 if anything is wrong.
"""
import argparse
import copy
import sys
import warnings

import torch
from compare import differences
from samples import leaves, strided
from torch.utils._pytree import tree_map

warnings.filterwarnings("ignore")


def moved(tree, device):
    return tree_map(lambda x: x.detach().clone().to(device).requires_grad_(x.requires_grad) if strided(x) else x, tree)


# ---- modules ----


def run_module(info, arguments, sample, training, device):
    torch.manual_seed(0)
    module = info.module_cls(*arguments.args, **arguments.kwargs).float().train(training)
    module = module.to(device)
    args, kwargs = moved((sample.args, sample.kwargs), device)
    torch.manual_seed(0)
    out = module(*args, **kwargs)
    outputs = [t for t in leaves(out) if strided(t) and t.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
    inputs = [t.grad for t in leaves((args, kwargs)) if strided(t) and t.requires_grad]
    return {"forward": out, "input gradients": [g for g in inputs if g is not None],
            "parameter gradients": [p.grad for p in module.parameters() if p.grad is not None],
            "buffers": list(module.buffers())}


def judge_module(info, training, samples):
    done = 0
    for sample in info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training):
        if done >= samples or sample.forward_input is None:
            continue
        try:
            cpu = run_module(info, sample.constructor_input, sample.forward_input, training, "cpu")
        except Exception:  # noqa: BLE001 - the CPU itself refuses this sample
            continue
        done += 1
        try:
            npu = run_module(info, sample.constructor_input, sample.forward_input, training, "npu")
        except Exception as error:  # noqa: BLE001
            return "refused", str(error).splitlines()[0][:200]
        random = training and any(word in info.name for word in ("Dropout", "RReLU", "Transformer", "Fractional"))
        for part in cpu:
            text = differences(cpu[part], npu[part], not random)
            if text:
                return "wrong", f"{part}: {text}"[:300]
    return ("equal", "") if done else ("none", "")


def modules(shard, only, samples):
    from torch.testing._internal.common_modules import module_db

    for info in sorted(module_db, key=lambda i: i.name)[shard[0]::shard[1]]:
        if only is None or only == info.name:
            for training in (True, False):
                yield (info.name, "training" if training else "evaluation", *judge_module(info, training, samples))


# ---- optimizers ----


def run_optimizer(info, config, flags, device):
    torch.manual_seed(0)
    shapes = [(4, 3), (5,), (2, 3, 2)] if info.optim_cls.__name__ not in ("Muon",) else [(4, 3), (5, 2)]
    parameters = [torch.nn.Parameter(torch.randn(s).to(device)) for s in shapes]
    kwargs = {k: v.clone().to(device) if isinstance(v, torch.Tensor) and flags.get("capturable") else copy.deepcopy(v)
              for k, v in config.kwargs.items()}
    optimizer = info.optim_cls(parameters, **{**kwargs, **flags})
    targets = [torch.randn(s).to(device) for s in shapes]

    def closure():
        optimizer.zero_grad()
        loss = sum(((p - t) ** 2).sum() for p, t in zip(parameters, targets))
        loss.backward()
        return loss

    for _ in range(3):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return [p.detach() for p in parameters]


def forms(info):
    """The flags under which an optimizer is run, as far as PyTorch has them for it."""
    yield {}
    if "foreach" in info.supported_impls:
        yield {"foreach": True}
        yield {"foreach": False}
    if "fused" in info.supported_impls:
        yield {"fused": True}


def judge_optimizer(info, config, flags):
    try:
        cpu = run_optimizer(info, config, flags, "cpu")
    except Exception:  # noqa: BLE001 - this configuration and these flags do not go together
        return "none", ""
    try:
        npu = run_optimizer(info, config, flags, "npu")
    except Exception as error:  # noqa: BLE001
        return "refused", str(error).splitlines()[0][:200]
    text = differences(cpu, npu)
    return ("wrong", text[:300]) if text else ("equal", "")


def optimizers(shard, only, samples):
    from torch.testing._internal.common_optimizers import optim_db

    for info in optim_db[shard[0]::shard[1]]:
        if info.only_supports_sparse_grads or only not in (None, info.optim_cls.__name__):
            continue
        for config in info.optim_inputs_func(device="cpu"):
            for flags in forms(info):
                if set(flags) & set(config.kwargs):
                    continue
                yield (info.optim_cls.__name__, f"{config.desc} {flags or ''}".strip(), *judge_optimizer(info, config, flags))


KINDS = {"modules": modules, "optimizers": optimizers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--only")
    parser.add_argument("--samples", type=int, default=4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for kind in [args.kind] if args.kind else KINDS:
        counts = {"equal": 0, "refused": 0, "wrong": 0, "none": 0}
        for name, how, verdict, reason in KINDS[kind](tuple(map(int, args.shard.split("/"))), args.only, args.samples):
            counts[verdict] += 1
            if verdict not in ("equal", "none"):
                print(f"{verdict:8} {name} ({how}): {reason}", flush=True)
        wrong += counts["wrong"]
        print(f"{kind}: executed {sum(counts.values()) - counts['none']}, equal {counts['equal']}, refused {counts['refused']}, "
              f"wrong {counts['wrong']}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
