"""The digits network's training step: OpenCL only, against the same script on torch's CPU backend in the same run."""
import json
import os
import tempfile

from figures import figure, median_of, python

STEP = """
import json, os, sys, time
sys.path.insert(0, 'examples')
import torch, torch.nn.functional as F
from train_digits import Net, load

def steps(device):
    torch.manual_seed(0)
    x, y, _, _ = load()
    x, y = x[:256].to(device), y[:256].to(device)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    def step():
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step

def timed(step, device, n):
    start = time.perf_counter()
    for _ in range(n):
        loss = step()
    loss.item()
    return (time.perf_counter() - start) / n
"""
ONLY_OPENCL = {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"}


@figure("demo.step", "x", 2)
def demo_step():
    out = python(STEP + """
import statistics
npu, cpu = steps('npu:0'), steps('cpu')
for _ in range(10): npu(); cpu()
torch.npu.synchronize()
a, b = [], []
for _ in range(15):
    a.append(timed(npu, 'npu:0', 10))
    b.append(timed(cpu, 'cpu', 10))
# Where the time goes: the host's part is what a step costs until the last launch is enqueued.
start = time.perf_counter(); npu(); enqueue = time.perf_counter() - start; torch.npu.synchronize()
print('enqueue %.2f ms of %.2f ms' % (enqueue * 1e3, statistics.median(a) * 1e3), file=sys.stderr)
print(json.dumps([statistics.median(a), statistics.median(b)]))
""", ONLY_OPENCL)
    npu, cpu = json.loads(out.splitlines()[-1])
    return npu, "torch cpu", cpu


def first_and_warm(cache):
    out = python(STEP + """
npu = steps('npu:0')
first = timed(npu, 'npu:0', 1)
for _ in range(5): npu()
print(json.dumps({'first': first, 'warm': timed(npu, 'npu:0', 10), 'builds': torch.npu.kernel_builds()}))
""", {**ONLY_OPENCL, "FLAGOS_CACHE_DIR": os.path.join(cache, "flagos"), "POCL_CACHE_DIR": os.path.join(cache, "pocl")})
    return json.loads(out.splitlines()[-1])


@figure("demo.cold", "s", 10)
def demo_cold():
    def once():
        with tempfile.TemporaryDirectory() as cache:
            got = first_and_warm(cache)
        return got["first"] - got["warm"]
    return median_of(once)


@figure("demo.builds", "count", 0)
def demo_builds():
    with tempfile.TemporaryDirectory() as cache:
        first_and_warm(cache)
        return first_and_warm(cache)["builds"]


@figure("telemetry.viewer", "x", 1.01)
def telemetry_viewer():
    """Step time with one viewer that follows everything at 10 Hz, against none: alternating blocks of one process."""
    out = python(STEP + """
import statistics, subprocess
npu = steps('npu:0')
for _ in range(20): npu()
torch.npu.synchronize()
VIEWER = '''
import json, os, sys
from websockets.sync.client import unix_connect
with unix_connect(sys.argv[1], 'ws://localhost/telemetry', subprotocols=['flagos.v1'], max_size=None) as socket:
    socket.recv()
    socket.send(json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'subscribe', 'params': {'rate_hz': 10}}))
    print('on', flush=True)
    while True: socket.recv()
'''
entry = os.path.join(os.environ['FLAGOS_RUNTIME_DIR'], '%d.sock' % os.getpid())
def watched(block):
    viewer = subprocess.Popen([sys.executable, '-c', VIEWER, entry], stdout=subprocess.PIPE, env={**os.environ, 'TORCH_DEVICE_BACKEND_AUTOLOAD': '0'})
    viewer.stdout.readline()
    try: return block()
    finally: viewer.kill(); viewer.wait()
block = lambda: timed(npu, 'npu:0', 150)
a, b = [], []
for _ in range(9):
    a.append(watched(block)); b.append(block())
print(json.dumps([statistics.median(a), statistics.median(b)]))
""", {**ONLY_OPENCL, "FLAGOS_RUNTIME_DIR": tempfile.mkdtemp(prefix="flagos-bench-")})
    watched, alone = json.loads(out.splitlines()[-1])
    return watched, "no viewer", alone
