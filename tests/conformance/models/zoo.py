"""Small models of the kinds people train, of our own code: each gives a module and a batch for every step.

A model is built under a seed, so that two calls give the same weights; no dropout, since devices draw different numbers.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, words=61, width=32, heads=4, depth=2, length=16):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def generate(self, tokens, count):
        for _ in range(count):
            tokens = torch.cat([tokens, self(tokens)[:, -1:].argmax(-1)], 1)
        return tokens


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=True),
                                  nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        same = stride == 1 and inside == outside
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet18(width=8, classes=10):
    """ResNet-18's plan (four stages of two blocks) on narrow layers."""
    stages, inside = [], width
    for i in range(4):
        outside = width << i
        stages += [Residual(inside, outside, 1 if i == 0 else 2), Residual(outside, outside, 1)]
        inside = outside
    return nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                         *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


class Vit(nn.Module):
    def __init__(self, size=16, patch=4, width=32, heads=4, depth=2, classes=10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], 1) + self.places
        return self.head(self.layers(x)[:, 0])


class Lstm(nn.Module):
    def __init__(self, words=37, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, words)

    def forward(self, tokens):
        return self.head(self.lstm(self.words(tokens))[0])


def double(inside, outside):
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU(),
                         nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU())


class Unet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down1, self.down2, self.middle = double(1, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.Conv2d(2 * width, width, 1)
        self.join2, self.join1 = double(4 * width, 2 * width), double(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.avg_pool2d(b, 2))
        x = self.join2(torch.cat([self.up2(c), b], 1))
        x = self.join1(torch.cat([self.up1(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)), a], 1))
        return self.head(x)


def words(count, batch, length):
    def draw(generator):
        tokens = torch.randint(0, count, (batch, length + 1), generator=generator)
        return tokens[:, :-1], tokens[:, 1:]

    return draw


def images(batch, size, classes=10):
    def draw(generator):
        return torch.randn(batch, 3, size, size, generator=generator), torch.randint(0, classes, (batch,), generator=generator)

    return draw


def masks(batch, size):
    def draw(generator):
        x = torch.randn(batch, 1, size, size, generator=generator)
        return x, (F.avg_pool2d(x, 5, 1, 2) > 0).float()

    return draw


def token_loss(out, target):
    return F.cross_entropy(out.flatten(0, 1), target.flatten())


# name -> (module, batches, loss, optimizer)
MODELS = {
    "gpt": (Gpt, words(61, 4, 16), token_loss, lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "resnet18": (resnet18, images(8, 48), F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.002, momentum=0.9, weight_decay=1e-4)),
    "vit": (Vit, images(4, 16), F.cross_entropy, lambda p: torch.optim.AdamW(p, lr=1e-3)),
    "lstm": (Lstm, words(37, 4, 12), token_loss, lambda p: torch.optim.Adam(p, lr=2e-3)),
    "unet": (Unet, masks(2, 16), F.binary_cross_entropy_with_logits, lambda p: torch.optim.RMSprop(p, lr=1e-3)),
}


def build(name):
    torch.manual_seed(20)
    return MODELS[name][0]()


def batches(name, steps):
    generator = torch.Generator().manual_seed(7)
    return [MODELS[name][1](generator) for _ in range(steps)]


def train(name, device, steps=20, amp=None, compiled=None):
    """Losses of `steps` training steps. `amp` is a half dtype; float16 also takes a GradScaler. `compiled` is a backend."""
    model = build(name).to(device)
    loss_of, optimizer = MODELS[name][2], MODELS[name][3](model.parameters())
    run = torch.compile(model, backend=compiled) if compiled else model
    kind = torch.device(device).type
    scaler = torch.amp.GradScaler(kind, init_scale=256.0, enabled=amp == torch.float16)
    losses = []
    for x, target in batches(name, steps):
        x, target = x.to(device), target.to(device)
        optimizer.zero_grad()
        with torch.autocast(kind, dtype=amp, enabled=amp is not None):
            loss = loss_of(run(x), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, model
