"""Sizes that the language server reads off a text, against those that PyTorch makes of the same expressions.

A size may be unknown, never wrong: what is unknown is listed, so that the list can only get shorter."""
import json
import os
import subprocess

import pytest
import torch
from torch import nn  # noqa: F401 - the expressions name it

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SERVER = os.path.join(ROOT, "build", "bin", "flagos-lsp")

FACTORIES = """
torch.zeros(3)|torch.zeros(3, 4)|torch.zeros((3, 4))|torch.zeros([2, 3, 4])|torch.zeros(size=(5, 6))|torch.zeros(())|torch.zeros(0, 7)
torch.ones(3, 4, dtype=torch.float64)|torch.ones(3, dtype=torch.bool)|torch.ones(2, 2, dtype=torch.bfloat16)|torch.empty(7, 1, 3)|torch.empty(2, dtype=torch.int8)
torch.rand(3, 5)|torch.randn(3, 5, dtype=torch.float16)|torch.randn((4, 4), dtype=torch.complex64)|torch.full((3, 4), 1.5)|torch.full((3, 4), 2)
torch.full((2,), True)|torch.full((3,), 1, dtype=torch.int16)|torch.full(size=(3, 2), fill_value=0.0)|torch.eye(5)|torch.eye(3, 7)|torch.eye(n=4, m=2)
torch.arange(10)|torch.arange(2, 10)|torch.arange(2, 11, 3)|torch.arange(5.0)|torch.arange(0, 1, 0.25)|torch.arange(10, dtype=torch.float32)|torch.arange(0)
torch.linspace(0, 1, 11)|torch.linspace(0, 1, steps=5)|torch.logspace(0, 2, 7)|torch.randperm(9)|torch.randint(0, 10, (3, 4))|torch.randint(10, (5,))
torch.randint(10, size=(2, 2))|torch.randint(3, 9, (2,), dtype=torch.uint8)|torch.tensor(3)|torch.tensor(3.5)|torch.tensor(True)|torch.tensor([1, 2, 3])
torch.tensor([1.0, 2])|torch.tensor([[1, 2], [3, 4]])|torch.tensor([[1.5], [2.0]], dtype=torch.float64)|torch.tensor([True, False])|torch.tensor([])
torch.tensor([[], []])|torch.as_tensor([1, 2])|torch.zeros(2 * 3, 4 + 1)|torch.zeros(2 ** 5)|torch.zeros(17 // 4)|torch.zeros(17 % 4, -(-3))|torch.zeros(*(2, 3))
""".replace("\n", "|").strip("|").split("|")

SHAPES = """
x.view(-1)|x.view(4, -1)|x.view(6, 4)|x.reshape(2, 2, -1)|x.reshape((3, 8))|x.flatten()|x.flatten(1)|x.flatten(0, 1)|x.flatten(1, 1)|x.flatten(start_dim=1)
x.transpose(0, 1)|x.transpose(-1, 0)|x.permute(2, 0, 1)|x.unsqueeze(0)|x.unsqueeze(-1)|x.unsqueeze(1).squeeze(1)|x.squeeze()|x.mT
x.sum()|x.sum(0)|x.sum(dim=1)|x.sum(1, keepdim=True)|x.sum((0, 2))|x.mean(-1)|x.mean((0, 1), keepdim=True)|x.max()|x.amax(1)|x.argmax(1)|x.argmax()|x.argmax(1, True)
x.std(0)|x.var()|x.norm()|x.prod(1)|x.any()|x.all(1)|x.cumsum(1)|x.softmax(-1)|x.relu()|x.exp().log()|x + 1|x * x|x + x.sum(0)|x - x[:, :1]|x[0]|x[-1]|x[0, 1]
x[:, 1]|x[1:]|x[:1]|x[..., 0]|x[:, :, 1:3]|x[None]|x[:, None]|x[0:2, ::2]|x[[0, 1]]|x > 0|x == x|(x > 0).float()|x.half()|x.double()|x.to(torch.int64)
x.long()|x.bool()|x.int()|x.float()|x.bfloat16()|x.type(torch.uint8)|x.expand(2, 3, 4)|x[:1].expand(5, -1, -1)|x.repeat(2, 1, 1)|x.repeat(2, 2, 1, 1)|x.repeat_interleave(2, 1)
x.chunk(2, 0)[0]|x.split(2, 1)[0]|x.split(2, 1)[1]|x.split([1, 2], 1)[1]|x.unbind(0)[0]|x.topk(2)[0]|x.topk(2, 1)[1]|x.sort()[1]|x.tril()|x.roll(1, 0)|x.flip(0)|x.clone()|x.detach()
x.contiguous()|x.new_zeros(3)|x.new_full((2, 2), 1)|x.new_ones((2, 5), dtype=torch.int32)|x.new_tensor([1, 2])|torch.zeros_like(x)|torch.ones_like(x, dtype=torch.bool)|torch.rand_like(x)
torch.full_like(x, 2)|x @ x.transpose(1, 2)|x.matmul(x.mT)|torch.matmul(x, w)|torch.bmm(x, x.mT)|w.mm(w)|w @ v|v @ v|x @ v|torch.einsum("bij,jk->bik", x, w)|w.t()|torch.cat([x, x])
torch.cat([x, x], 1)|torch.cat((x, x), dim=-1)|torch.stack([x, x])|torch.stack([x, x], 1)|torch.where(x > 0, x, 0.0)|torch.where(x > 0, x, x.double())|torch.sum(x, 1)|torch.max(x, 1)[0]
torch.outer(v, v)|torch.diag(v)|torch.nn.functional.pad(x, (1, 1))|torch.nn.functional.one_hot(torch.arange(4), 6)|torch.nn.functional.relu(x)|torch.nn.functional.softmax(x, 1)|torch.maximum(x, x)
torch.nn.functional.layer_norm(x, (4,))|torch.nn.functional.linear(x, w)|torch.nn.functional.scaled_dot_product_attention(x, x, x)|x.mean(1).unsqueeze(1) + x|x.square().sum(2).sqrt()
i + 1|i / 2|i // 2|i * 1.5|i + x|i.sum()|i.float().mean()|i.cumsum(0)|i == 1|-i|i ** 2|i.max()|h + 1|h + x|h.sum()|h * h.float()|h @ h.mT|b + b|b * 2|b.sum()|~b|b & b|b + 1.5|i.abs()
x[1, :, -1]|x[-2:]|x[:, -2:, 1:]|x[5:]|x[:, 2:1]|x[:100]|x[:, :, 3:0:1]|x[None, 0]|x[..., None]|x[0, ..., 0]|x[...]|x[()].sum()|x[:, [0, 2, 2]]|x[[1], 1:]|x[torch.tensor([1, 0, 1])]|x[:, torch.tensor([[0, 1]])]
x[0][1]|x[0].sum(0)|x[:, 0] @ w|x[1:] + x[:1]|x.max() - x.min()|x.amax((0, 1))|x.amin(1, keepdim=True)|x.prod()|i.prod()|i.prod(0)|b.any(1)|b.all()|i.any()|x.logsumexp(1)|x.sum(dtype=torch.float64)
x.std(1, keepdim=True)|x.var((0, 1))|x.cumsum(0, dtype=torch.float64)|i.cumprod(1)|h.cumsum(0)|x.softmax(0, dtype=torch.float64)|torch.softmax(h, 1)|i.sqrt()|i.exp()|b.sin()|i.square()|i.neg()|i.abs()
i % 3|i % 2.5|b + 1|b * True|i * True|i / i|i / 2.0|b / b|h / 2|h * 2.5|i.float() / i|x ** 2|i ** 2.0|2 ** i|2 * x|1.5 * i|1 - x|1 / i|x // 2|i // 2.0|x % 2|i | i|b ^ b|i & 3|i == i|x != 0|x.double() + h|i + h|x + i.sum()
torch.cat([x, x[:1]])|torch.cat([x, x.double()])|torch.cat([i, x[0, :, :]])|torch.stack([v, v, v], -1)|torch.stack((w, w), dim=-2)|torch.cat([v, v], 0).view(2, -1)|torch.cat(tensors=[x, x], dim=2)
torch.where(b, i, 0)|torch.where(b, 1.0, i)|torch.where(b, i, 2.5)|torch.where(b, i, i.double())|torch.where(b[0], v, 0.0)|torch.where(b, v, v.half())|x.repeat(1, 2, 3)|v.repeat(3)|v.repeat(2, 3)
torch.nn.functional.pad(x, (1, 2, 0, 3))|torch.nn.functional.pad(x, (-1, 0))|torch.nn.functional.pad(input=x, pad=(0, 1, 2, 3, 4, 5))|x.new_zeros((2, 2), dtype=torch.int64)|x.new_empty(3, 1)|h.new_ones(4)|w.T|x @ w.mT|w.H
x.flip((0, 1))|torch.roll(x, 2, 1)|x.data|x.sum(-1).T|torch.sum(i)|torch.mean(x, (0, 2))|torch.amax(x, dim=0)|torch.any(b)|torch.std(x)|torch.norm(x)|x.min()|torch.max(x)|torch.max(x, x)|torch.min(x[0], w[:3])
torch.div(i, 2)|torch.div(i, 2, rounding_mode="floor")|torch.pow(x, 2)|torch.pow(i, 2)|torch.pow(i, 0.5)|torch.pow(x, x)|i.pow(2)|torch.add(i, 1.5)|torch.mul(b, 3)|x.add(1)|i.add(2.5)|x.sub(x)|i.div(3)
x[[0, 1], [0, 1]]|x[[0, 1], 0]|x[0, :, [1, 2]]|x[[0], :, torch.tensor([1, 2])]|x[True]
""".replace("\n", "|").strip("|").split("|")
GIVEN = {"x": "torch.zeros(2, 3, 4)", "w": "torch.zeros(4, 4)", "v": "torch.zeros(4)", "i": "torch.ones(3, 4, dtype=torch.int64)",
         "h": "torch.zeros(2, 3, 4, dtype=torch.float16)", "b": "torch.ones(3, 4, dtype=torch.bool)"}

MODULES = """
nn.Linear(3, 4)|nn.Linear(3, 4, bias=False)|nn.Linear(3, 4, dtype=torch.float64)|nn.Bilinear(3, 4, 5)|nn.Conv1d(3, 8, 5)|nn.Conv2d(3, 8, 3)|nn.Conv2d(3, 8, (3, 5), bias=False)
nn.Conv2d(4, 8, 3, groups=2)|nn.Conv3d(2, 4, 3)|nn.ConvTranspose2d(4, 6, 2)|nn.ConvTranspose2d(4, 6, 2, groups=2, bias=False)|nn.Embedding(100, 16)|nn.EmbeddingBag(10, 3)
nn.BatchNorm1d(8)|nn.BatchNorm2d(8)|nn.BatchNorm2d(8, affine=False)|nn.BatchNorm2d(8, track_running_stats=False)|nn.InstanceNorm2d(8)|nn.InstanceNorm2d(8, affine=True)
nn.GroupNorm(2, 8)|nn.GroupNorm(2, 8, affine=False)|nn.LayerNorm(8)|nn.LayerNorm((4, 8))|nn.LayerNorm(8, bias=False)|nn.LayerNorm(8, elementwise_affine=False)|nn.RMSNorm(8)
nn.LSTM(4, 8)|nn.LSTM(4, 8, 2)|nn.LSTM(4, 8, num_layers=2, bidirectional=True)|nn.LSTM(4, 8, bias=False)|nn.LSTM(4, 8, proj_size=3)|nn.GRU(4, 8)|nn.GRU(4, 8, 3, bidirectional=True)
nn.RNN(4, 8)|nn.LSTMCell(4, 8)|nn.GRUCell(4, 8)|nn.RNNCell(4, 8, bias=False)|nn.MultiheadAttention(8, 2)|nn.MultiheadAttention(8, 2, bias=False)|nn.MultiheadAttention(8, 2, kdim=4, vdim=6)
nn.MultiheadAttention(8, 2, add_bias_kv=True)|nn.TransformerEncoderLayer(8, 2)|nn.TransformerEncoderLayer(8, 2, 16)|nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, bias=False)
nn.TransformerDecoderLayer(8, 2, 16)|nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)|nn.Transformer(8, 2, 1, 1, 16, batch_first=True)|nn.PReLU()|nn.PReLU(4)|nn.ReLU()|nn.Dropout(0.1)
nn.Flatten()|nn.MaxPool2d(2)|nn.Identity()|nn.Softmax(1)|nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5))|nn.Sequential()|nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.LayerNorm(3)})|nn.ModuleList([nn.Linear(2, 2) for _ in range(4)])|nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)])|nn.ParameterList([nn.Parameter(torch.zeros(3))])
nn.CrossEntropyLoss()|nn.CrossEntropyLoss(weight=torch.zeros(5))|nn.Linear(3, 4).half()|nn.Linear(3, 4).double()|nn.Conv2d(3, 8, 3, padding="same", dtype=torch.bfloat16)|nn.Upsample(scale_factor=2)
""".replace("\n", "|").strip("|").split("|")


def check(tmp_path, lines):
    """{line: its one site} of a program."""
    path = tmp_path / "sizes.py"
    path.write_text("\n".join(lines) + "\n")
    done = subprocess.run([SERVER, "--check", str(path), "--json", "--devices", "npu:0"], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    return {s["range"]["start"]["line"]: s for s in json.loads(done.stdout)["files"][0]["sites"] if s["call"] in ("Tensor.to", "Module.to", ".to")}


def compare(tmp_path, expressions, head, move, size):
    """Wrong sizes as text, and the expressions whose size is not known."""
    lines = ["import torch", "from torch import nn", *head]
    first = len(lines)
    for e in expressions:
        lines += ["t = " + e, f"t.to({move})"]
    sites = check(tmp_path, lines)
    names = {"torch": torch, "nn": nn}
    with torch.device("cpu"):
        exec("\n".join(head), names)
        wrong, unknown = [], []
        for k, e in enumerate(expressions):
            real = size(eval(e, names))
            site = sites.get(first + 2 * k + 2) or sites.get(first + 2 * k + 1)
            told = site["bytes"]["value"] if site else None
            if told is None:
                unknown.append(e)
            elif told != real:
                wrong.append(f"{e}: {told} B, PyTorch: {real} B")
    return wrong, unknown


def of_tensor(t): return t.numel() * t.element_size()


def of_module(m): return sum(of_tensor(t) for t in {id(t): t for t in [*m.parameters(), *m.buffers()]}.values())


# Nothing is said of these: tuples of results, and functions that are not read.
UNKNOWN = {
    "factories": {"torch.tensor([])", "torch.tensor([[], []])"},
    "shapes": {"x.repeat_interleave(2, 1)", "x.split(2, 1)[0]", "x.split(2, 1)[1]", "x.split([1, 2], 1)[1]", "x.unbind(0)[0]", "x.topk(2)[0]", "x.topk(2, 1)[1]",
               "x.sort()[1]", "x.new_tensor([1, 2])", 'torch.einsum("bij,jk->bik", x, w)', "torch.max(x, 1)[0]", "torch.outer(v, v)", "torch.diag(v)",
               "torch.nn.functional.one_hot(torch.arange(4), 6)", "x[()].sum()", "torch.nn.functional.pad(input=x, pad=(0, 1, 2, 3, 4, 5))", "torch.max(x, x)",
               "torch.min(x[0], w[:3])", 'torch.div(i, 2, rounding_mode="floor")', "torch.pow(x, x)",
               "x[[0, 1], [0, 1]]", "x[[0, 1], 0]", "x[0, :, [1, 2]]", "x[[0], :, torch.tensor([1, 2])]", "x[True]"},
    "modules": {"nn.LSTM(4, 8, proj_size=3)", "nn.MultiheadAttention(8, 2, kdim=4, vdim=6)", "nn.MultiheadAttention(8, 2, add_bias_kv=True)",
                "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 3)", "nn.Transformer(8, 2, 1, 1, 16, batch_first=True)",
                "nn.ParameterList([nn.Parameter(torch.zeros(3))])", "nn.CrossEntropyLoss(weight=torch.zeros(5))"}}


@pytest.mark.parametrize("name, expressions, head, size", [
    ("factories", FACTORIES, [], of_tensor),
    ("shapes", SHAPES, [f"{name} = {text}" for name, text in GIVEN.items()], of_tensor),
    ("modules", MODULES, [], of_module),
])
def test_sizes_are_those_of_pytorch(tmp_path, name, expressions, head, size):
    wrong, unknown = compare(tmp_path, expressions, head, '"npu:0"', size)
    assert not wrong, "\n".join(wrong)
    assert set(unknown) == UNKNOWN[name]   # what is known now leaves the list
