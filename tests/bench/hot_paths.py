"""Costs that every operator or allocation pays."""
import json
import os
import subprocess

from figures import BUILD, figure, median_of, paired, python


def micro(name):
    def once():
        out = subprocess.run([os.path.join(BUILD, "tests", "bench_micro")], stdout=subprocess.PIPE, text=True, check=True).stdout
        return next(r["value"] for r in map(json.loads, out.splitlines()) if r["name"] == name)
    return median_of(once)


@figure("route.hit", "ns", 100)
def route_hit():
    return micro("route.hit")


@figure("alloc.cached", "us", 0.2)
def alloc_cached():
    return micro("alloc.cached")


@figure("devices.enumerate64", "ms", 20)
def devices_enumerate64():
    return micro("devices.enumerate64")


@figure("site.hit", "ns", 100)
def site_hit():
    return median_of(lambda: float(python("import torch, flagos._C as c\nprint(c._measure_site(1000000)[0])")))


@figure("item.idle", "us", 2)
def item_idle():
    code = """
import time, torch
x = torch.ones(1, device='npu:0')
torch.npu.synchronize()
n = 20000
for _ in range(1000): x.item()
start = time.perf_counter()
for _ in range(n): x.item()
print((time.perf_counter() - start) / n * 1e6)
"""
    return median_of(lambda: float(python(code)))


@figure("import.torch", "ms", 150)
def import_torch():
    """Growth of `import torch`, alternating with and without our entry point."""
    def once(autoload):
        code = "import time; s = time.perf_counter(); import torch; print(time.perf_counter() - s)"
        return lambda: float(python(code, {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}))
    with_us, without = paired(once("1"), once("0"))
    return (with_us - without) * 1e3


@figure("host.over_cpu", "us", 1)
def host_over_cpu():
    """What the host route adds to plain CPU for the hottest operators on 16 elements: the median over them."""
    code = """
import statistics, time, torch
torch.set_num_threads(1)
torch.set_grad_enabled(False)
def tensors(d): return [torch.rand(4, 4, device=d) for _ in range(3)]
calls = {"add": lambda a, b, c: a + b, "mul": lambda a, b, c: a * b, "mul_": lambda a, b, c: a.mul_(b), "exp": lambda a, b, c: torch.exp(a),
         "sigmoid": lambda a, b, c: torch.sigmoid(a), "mm": lambda a, b, c: torch.mm(a, b), "addmm": lambda a, b, c: torch.addmm(a, b, c),
         "sum": lambda a, b, c: a.sum(1), "softmax": lambda a, b, c: torch.softmax(a, 1), "cat": lambda a, b, c: torch.cat([a, b])}
def time_of(call, args, n=3000):
    start = time.perf_counter()
    for _ in range(n): call(*args)
    return (time.perf_counter() - start) / n * 1e6
over = []
for call in calls.values():
    cpu, npu = tensors("cpu"), tensors("npu:0")
    for args in (cpu, npu): time_of(call, args, 200)
    over.append(statistics.median(time_of(call, npu) - time_of(call, cpu) for _ in range(7)))
print(statistics.median(over))
"""
    return median_of(lambda: float(python(code, {"FLAGOS_ROUTE": "host"})), 3)
