"""Operators and training steps against torch's CPU backend: x = torch CPU's time / ours, so higher is better.

Each figure runs in a process of its own: alternating blocks (ours, theirs, ours ...), inputs that change from call to call,
medians, torch at its default number of threads. Details, the load of other processes and OMP_WAIT_POLICY go to stderr.
"""
import json

from figures import figure, python

ONLY_OPENCL = {"FLAGOS_ROUTE": "opencl", "FLAGOS_FALLBACK": "forbid"}

RATIO = """
import json, os, statistics, sys, time
import torch, torch.nn.functional as F
D = "npu:0"

def block(step, n, device):
    start = time.perf_counter()
    for i in range(n): step(i)
    if device != "cpu": torch.npu.synchronize()
    return (time.perf_counter() - start) / n

def ratio(name, make, blocks=9, least=0.03):
    '''make(device) -> step(i). Prints and returns cpu / npu.'''
    with torch.random.fork_rng(): ours, theirs = make(D), make("cpu")
    for step, device in ((ours, D), (theirs, "cpu")): block(step, 3, device)
    n = max(1, int(least / max(block(theirs, 3, "cpu"), 1e-6)))
    a, b = [], []
    for _ in range(blocks):
        a.append(block(ours, n, D)); b.append(block(theirs, n, "cpu"))
    x = statistics.median(b) / statistics.median(a)
    print("  %-34s %9.1f us, torch cpu %9.1f us: %.2fx" % (name, statistics.median(a) * 1e6, statistics.median(b) * 1e6, x), file=sys.stderr)
    return x

def inputs(device, *shapes, sets=3, grad=False):
    g = torch.Generator().manual_seed(1)
    return [[torch.randn(s, generator=g).to(device).requires_grad_(grad) for s in shapes] for _ in range(sets)]

def pure(function, *shapes):
    def make(device):
        sets = inputs(device, *shapes)
        return lambda i: function(*sets[i % len(sets)])
    return make

def both_ways(function, *shapes):
    '''Forward and backward, all gradients.'''
    def make(device):
        sets = inputs(device, *shapes, grad=True)
        out = function(*sets[0])
        grad = torch.ones_like(out)
        return lambda i: torch.autograd.grad(function(*sets[i % len(sets)]), sets[i % len(sets)], grad)
    return make

def layer(made, shape):
    '''A recurrent layer, forward and backward to all its weights.'''
    def make(device):
        net, sets = made().to(device), inputs(device, shape)
        def step(i):
            net.zero_grad()
            out = net(sets[i % len(sets)][0])[0]
            out.backward(torch.ones_like(out))
        return step
    return make

print("  load %.2f, OMP_WAIT_POLICY=%s, %d threads" % (os.getloadavg()[0], os.environ.get("OMP_WAIT_POLICY"), torch.get_num_threads()), file=sys.stderr)
worst = {}
"""


def worst(cases, env=ONLY_OPENCL):
    """The lowest ratio of {name: expression of a `make`}."""
    code = RATIO + "".join(f"worst[{name!r}] = ratio({name!r}, {make})\n" for name, make in cases.items()) + "print(json.dumps(worst))\n"
    return min(json.loads(python(code, env, timeout=1200).splitlines()[-1]).values())


@figure("kernels.gemm", "x", 0.9, "higher")
def gemm():
    return worst({f"mm {n}": f"pure(torch.mm, ({n}, {n}), ({n}, {n}))" for n in (256, 512, 1024, 2048)})


@figure("kernels.skinny", "x", 0.7, "higher")
def skinny():
    """The products of a small GPT's step: 1,024 tokens of width 128, and one token at a time."""
    shapes = {"qkv": (1024, 128, 384), "mlp up": (1024, 128, 512), "mlp down": (1024, 512, 128), "head": (1024, 128, 256),
              "weight gradient": (128, 1024, 512), "one token": (1, 128, 512), "few tokens": (8, 512, 2048)}
    cases = {name: f"pure(F.linear, ({m}, {k}), ({n}, {k}), ({n},))" for name, (m, k, n) in shapes.items()}
    cases["heads"] = "pure(torch.bmm, (64, 64, 32), (64, 32, 64))"
    return worst(cases)


@figure("kernels.conv", "x", 0.9, "higher")
def conv():
    """3x3 and 1x1 convolutions of a ResNet, forward and both gradients."""
    cases = {}
    for n, c, size in ((4, 64, 56), (4, 128, 28), (4, 256, 14)):
        cases[f"3x3 {c} at {size}"] = f"pure(lambda x, w: F.conv2d(x, w, padding=1), ({n}, {c}, {size}, {size}), ({c}, {c}, 3, 3))"
        cases[f"3x3 {c} at {size}, training"] = f"both_ways(lambda x, w: F.conv2d(x, w, padding=1), ({n}, {c}, {size}, {size}), ({c}, {c}, 3, 3))"
        cases[f"1x1 {c} at {size}, training"] = f"both_ways(lambda x, w: F.conv2d(x, w), ({n}, {c}, {size}, {size}), ({2 * c}, {c}, 1, 1))"
    return worst(cases)


@figure("kernels.conv_small", "x", 0.7, "higher")
def conv_small():
    return worst({"3x3 32 at 8, batch 256": "both_ways(lambda x, w: F.conv2d(x, w, padding=1), (256, 32, 8, 8), (64, 32, 3, 3))",
                  "3x3 512 at 7": "both_ways(lambda x, w: F.conv2d(x, w, padding=1), (4, 512, 7, 7), (512, 512, 3, 3))"})


@figure("kernels.stream", "x", 0.9, "higher")
def stream():
    """Operators bound by memory, on 4 MB."""
    rows = "(1024, 1024)"
    return worst({"add": f"pure(torch.add, {rows}, {rows})", "relu": f"pure(torch.relu, {rows})", "gelu": f"pure(F.gelu, {rows})",
                  "exp": f"pure(torch.exp, {rows})", "sum": f"pure(torch.sum, {rows})", "sum dim 0": f"pure(lambda x: x.sum(0), {rows})",
                  "mean dim 1": f"pure(lambda x: x.mean(1), {rows})", "argmax": f"pure(lambda x: x.argmax(1), {rows})",
                  "softmax": f"both_ways(lambda x: x.softmax(-1), {rows})",
                  "layer norm": f"both_ways(lambda x, w, b: F.layer_norm(x, (1024,), w, b), {rows}, (1024,), (1024,))"})


@figure("kernels.attention", "x", 0.7, "higher")
def attention():
    call = "lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    return worst({f"{b}x{h}x{t}x{d}": f"both_ways({call}, *[({b}, {h}, {t}, {d})] * 3)" for b, h, t, d in ((8, 4, 128, 32), (2, 8, 512, 64), (1, 4, 1024, 64))})


@figure("kernels.recurrent", "x", 0.5, "higher")
def recurrent():
    """LSTM and GRU layers, forward and backward, on the routes that are chosen."""
    def layer(kind, width, hidden, layers, steps, batch):
        return f"layer(lambda: torch.nn.{kind}({width}, {hidden}, num_layers={layers}), ({steps}, {batch}, {width}))"
    return worst({"lstm 64": layer("LSTM", 32, 64, 1, 50, 16), "lstm 256, two layers": layer("LSTM", 128, 256, 2, 32, 8),
                  "gru 64": layer("GRU", 32, 64, 1, 50, 16)}, {})


@figure("kernels.random", "x", 1.0, "higher")
def random():
    """Random numbers and dropout, a million of them."""
    shape = "(1024, 1024)"
    cases = {name: f"pure(lambda x: x.{call}, {shape})" for name, call in
             {"uniform": "uniform_()", "normal": "normal_()", "bernoulli": "bernoulli_(0.3)", "exponential": "exponential_()"}.items()}
    return worst({**cases, "randint": f"pure(lambda x: torch.randint(1000, {shape}, device=x.device), (1,))",
                  "dropout": f"pure(lambda x: F.dropout(x, 0.1), {shape})"})


@figure("kernels.half", "x", 0.5, "higher")
def half():
    """bfloat16 products."""
    def lower(m, k, n):
        return (f"(lambda device: (lambda sets: lambda i: torch.mm(*sets[i % 3]))([[x.bfloat16() for x in s] for s in inputs(device, ({m}, {k}), ({k}, {n}))]))")
    return worst({"256": lower(256, 256, 256), "512": lower(512, 512, 512), "tokens": lower(1024, 128, 384)})


MODELS = """
class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.n1(x)).split(c, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.n2(x))))

class GPT(torch.nn.Module):
    def __init__(self, vocabulary=256, width=128, heads=4, layers=4, length=128):
        super().__init__()
        self.token, self.place = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary)
    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))

class Residual(torch.nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        conv = lambda i, o, k, s: torch.nn.Conv2d(i, o, k, s, k // 2, bias=False)
        self.a, self.b, self.na, self.nb = conv(inside, outside, 3, stride), conv(outside, outside, 3, 1), torch.nn.BatchNorm2d(outside), torch.nn.BatchNorm2d(outside)
        self.skip = torch.nn.Sequential(conv(inside, outside, 1, stride), torch.nn.BatchNorm2d(outside)) if stride != 1 or inside != outside else torch.nn.Identity()
    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.skip(x))

class ResNet18(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layers = [torch.nn.Conv2d(3, 64, 7, 2, 3, bias=False), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Residual(inside, outside, stride), Residual(outside, outside, 1)]
            inside = outside
        self.body = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10))
    def forward(self, x): return self.body(x)

class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(32, 64, 3, padding=1),
                                        torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64 * 49, 10))
    def forward(self, x): return self.body(x)

def training(model, batch):
    '''batch(generator) -> (x, y)'''
    def make(device):
        torch.manual_seed(0)
        net = model().to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        g = torch.Generator().manual_seed(2)
        sets = [[t.to(device) for t in batch(g)] for _ in range(3)]
        def step(i):
            x, y = sets[i % 3]
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x).flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
        return step
    return make

def costly(make, n=5):
    '''The three kernels that cost a step most.'''
    step = make(D)
    for i in range(3): step(i)
    torch.npu.synchronize()
    C = torch.flagos._C
    before = {(r["op"], r["kernel"], r["site"]): r["device_ns"] for r in C.route_counts()}
    C.count_launches(True)
    for i in range(n): step(i)
    torch.npu.synchronize()
    C.count_launches(False)
    time.sleep(0.1)
    spent = {}
    for r in C.route_counts():
        key = (r["op"], r["kernel"])
        spent[key] = spent.get(key, 0) + r["device_ns"] - before.get((*key, r["site"]), 0)
    whole = sum(spent.values()) or 1
    for (op, kernel), ns in sorted(spent.items(), key=lambda kv: -kv[1])[:3]:
        print("    %-60s %8.2f ms a step (%2.0f %%)" % (f"{op} by {kernel}", ns / n / 1e6, 100 * ns / whole), file=sys.stderr)

tokens = lambda b, t, v: lambda g: (torch.randint(v, (b, t), generator=g), torch.randint(v, (b, t), generator=g))
images = lambda b, c, s: lambda g: (torch.randn(b, c, s, s, generator=g), torch.randint(10, (b,), generator=g))
"""
CASES = {"gpt": "training(GPT, tokens(8, 128, 256))", "resnet18": "training(ResNet18, images(4, 3, 64))", "cnn28": "training(Small, images(64, 1, 28))"}


def step(name, bar, env):
    code = RATIO + MODELS + f"""
make = {CASES[name]}
x = ratio({name!r}, make, blocks=7, least=0.1)
if x < {bar}: costly(make)
print(json.dumps(x))
"""
    return json.loads(python(code, env, timeout=1200).splitlines()[-1])


for case in CASES:
    figure(f"step.{case}", "x", 0.8, "higher")(lambda case=case: step(case, 0.8, ONLY_OPENCL))
    figure(f"step.{case}_chosen", "x", 1.0, "higher")(lambda case=case: step(case, 1.0, {}))


@figure("adamw.launches", "count", 10)
def adamw():
    """Kernel launches of one AdamW step of a model with 100 tensors."""
    return json.loads(python("""
import json, time, torch
params = [torch.nn.Parameter(torch.randn(7 + i, 5, device="npu:0")) for i in range(100)]
optimizer = torch.optim.AdamW(params, foreach=True)
for p in params: p.grad = torch.randn_like(p)
for _ in range(3): optimizer.step()
torch.npu.synchronize()
C = torch.flagos._C
before = sum(r["launches"] for r in C.route_counts())
C.count_launches(True)
optimizer.step()
torch.npu.synchronize()
C.count_launches(False)
time.sleep(0.1)
print(json.dumps(sum(r["launches"] for r in C.route_counts()) - before))
""", ONLY_OPENCL).splitlines()[-1])


