"""What a training step costs beside its time: kernels that have to be built, memory, and the way from Python to the queue."""
import json
import os
import tempfile

from figures import figure, median_of, python
from kernels import CASES, MODELS, ONLY_OPENCL, RATIO

FIRST = RATIO + MODELS + """
def steps_of(make):
    step = make(D)
    def timed():
        start = time.perf_counter()
        step(0)
        torch.npu.synchronize()
        return time.perf_counter() - start
    first = timed()
    for _ in range(5): timed()
    print(json.dumps({'first': first, 'warm': statistics.median(timed() for _ in range(5)), 'builds': torch.npu.kernel_builds()}))
"""


def first_and_warm(case, cache):
    env = {**ONLY_OPENCL, "FLAGOS_CACHE_DIR": os.path.join(cache, "flagos"), "POCL_CACHE_DIR": os.path.join(cache, "pocl")}
    return json.loads(python(FIRST + f"steps_of({CASES[case]})\n", env).splitlines()[-1])


def cold(case):
    with tempfile.TemporaryDirectory() as cache:
        got = first_and_warm(case, cache)
    return got["first"] - got["warm"]


def second_builds(case):
    """Program builds of a second process, after a first one has filled the cache."""
    with tempfile.TemporaryDirectory() as cache:
        first_and_warm(case, cache)
        return first_and_warm(case, cache)["builds"]


def peak(case):
    """The pool's peak during training, scratch and rounding included, against the bytes of the tensors alive at their peak."""
    return json.loads(python(RATIO + MODELS + f"""
step = {CASES[case]}(D)
for i in range(3): step(i)
torch.npu.synchronize()
memory = torch.npu.memory
live = most = memory.memory_stats()['requested_bytes.all.current']
memory.reset_peak_memory_stats()
memory._record_memory_history()
step(0)
torch.npu.synchronize()
rounded = memory.memory_stats()['allocated_bytes.all.peak'] / memory.memory_stats()['requested_bytes.all.peak']
for event in memory._snapshot()['device_traces'][0]:
    if event['action'] == 'alloc': live += event['size'] / rounded
    elif event['action'].startswith('free_completed') or event['action'] == 'free': live -= event['size'] / rounded
    most = max(most, live)
print(json.dumps(memory.max_memory_allocated() / most))
""", ONLY_OPENCL).splitlines()[-1])


for name in ("gpt", "resnet18"):
    figure(f"cold.{name}", "s", 15)(lambda name=name: cold(name))
    figure(f"cold.{name}_builds", "count", 0)(lambda name=name: second_builds(name))
    figure(f"memory.{name}", "x", 1.15)(lambda name=name: peak(name))

# Every figure stands beside torch's own CPU add of the same numbers in the same minute: machines change their speed by the hour.
ENQUEUE = """
import json, statistics, time, torch
torch.set_grad_enabled(False)
def block(a, b, n):
    start = time.perf_counter()
    for _ in range(n): c = a + b
    return (time.perf_counter() - start) / n * 1e6
def added(size, n=64, blocks=300):
    x, y = torch.rand(size), torch.rand(size)
    a, b = x.to('npu:0'), y.to('npu:0')
    ours, cpu = [], []
    for _ in range(blocks):
        ours.append(block(a, b, n))
        torch.npu.synchronize()
        cpu.append(block(x, y, n))
    return statistics.median(ours[50:]), statistics.median(cpu[50:])
"""


def beside_torch(code, runs=3):
    """The median run of a program that prints [ours, torch's own add on the CPU], both in microseconds."""
    got = sorted(json.loads(python(ENQUEUE + code, ONLY_OPENCL)) for _ in range(runs))
    ours, cpu = got[runs // 2]
    return ours, "torch cpu add", cpu


@figure("enqueue.add", "us", 4)
def enqueue_add():
    """From Python until add is enqueued: the slowest of 16, 128 and 1,000 elements, 64 calls at a time, starting the device included."""
    return beside_torch("print(json.dumps(max(added(n) for n in (16, 128, 1000))))")


@figure("enqueue.six", "us", 5)
def enqueue_six():
    """Six small operators in a row, each, until the last one is done; rounds follow each other without a pause."""
    return beside_torch("""
a, b = torch.rand(1000, device='npu:0'), torch.rand(1000, device='npu:0')
def six():
    c = a + b; d = c * a; e = d - b; f = torch.relu(e); g = f + c; return g * d
def rounds(n=100):
    start = time.perf_counter()
    for _ in range(n): six()
    torch.npu.synchronize()
    return (time.perf_counter() - start) / n / 6
rounds()
cpu = added(1000, blocks=100)[1]
print(json.dumps([statistics.median(rounds() for _ in range(15)) * 1e6, cpu]))
""")
