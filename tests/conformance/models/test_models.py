"""Whole models train on the npu as on the CPU: the same losses in float32, close ones in mixed precision."""
import json
import math
import os

import pytest
from support import python

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = {"shared": {}, "discrete": {"FLAGOS_SHARED_MEMORY": "0", "FLAGOS_FALLBACK": "allow"},
         "opencl": {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "allow"}}
# Largest relative difference of a loss from the CPU's float32 loss at the same step.
BOUNDS = {"fp32": 1e-3, "aot_eager": 1e-3, "bf16": 3e-2, "fp16": 1e-2}
ALL = list(BOUNDS)
# What is trained where: each kind in each memory mode; compiled graphs and library models make the same calls again.
OWN_KINDS = {"shared": ALL, "discrete": ["fp32", "bf16", "fp16"], "opencl": ["fp32"]}
LIBRARY_KINDS = {"shared": ALL, "discrete": ["fp32", "fp16"]}
OWN = ["gpt", "resnet18", "vit", "lstm", "unet"]
LIBRARY = ["llama", "bert"]


def run(script, mode, cache, kinds):
    """(model, kind) -> row, from one process for each script and mode."""
    if (script, mode) not in cache:
        code = f"import runpy, sys; sys.argv = {[script, *kinds]!r}; sys.path.insert(0, {HERE!r}); runpy.run_path({os.path.join(HERE, script)!r}, run_name='__main__')"
        status, out, err = python(code, timeout=900, **MODES[mode])
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        cache[script, mode] = {(r["model"], r["kind"]): r for r in rows}, f"exit {status}\n{err[-4000:]}"
    return cache[script, mode]


@pytest.fixture(scope="module")
def cache():
    return {}


def check(rows, err, model, kind):
    assert (model, kind) in rows, err
    row = rows[model, kind]
    cpu, npu = row["cpu"], row["npu"]
    assert len(npu) == len(cpu) == (20 if kind == "fp32" else 6)
    assert all(math.isfinite(x) for x in npu)
    worst = max(abs(a - b) / abs(a) for a, b in zip(cpu, npu))
    assert worst <= BOUNDS[kind], f"{model} {kind}: a loss differs by {worst:.2g}: {cpu} {npu}"
    for cpu_tokens, npu_tokens in [row["tokens"]] if "tokens" in row else []:
        assert cpu_tokens == npu_tokens and len(cpu_tokens[0]) > 3


@pytest.mark.parametrize("model", OWN)
@pytest.mark.parametrize("mode,kind", [(m, k) for m, kinds in OWN_KINDS.items() for k in kinds])
def test_own_models(cache, mode, model, kind):
    rows, err = run("own.py", mode, cache, OWN_KINDS[mode])
    check(rows, err, model, kind)


@pytest.mark.parametrize("model", LIBRARY)
@pytest.mark.parametrize("mode,kind", [(m, k) for m, kinds in LIBRARY_KINDS.items() for k in kinds])
def test_models_of_transformers(cache, mode, model, kind):
    rows, err = run("library.py", mode, cache, LIBRARY_KINDS[mode])
    check(rows, err, model, kind)
