"""The training step of ../train_step.cc in PyTorch. usage: train_step.py CONFIG eager|compile f32|bf16

Uses the same protocol: reports when its first step was done, then reads a number of steps to run from each line of
standard input.
"""
import json
import os
import resource
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

# layers, heads, dim, context, batch, vocabulary, experts, experts per token, hidden
CONFIGS = {
    "gpt_tiny": dict(L=4, H=4, D=128, T=64, B=12, V=96, E=0, K=0, FF=512),
    "gpt_base": dict(L=6, H=6, D=384, T=256, B=16, V=96, E=0, K=0, FF=1536),
    "moe_small": dict(L=4, H=8, D=256, T=256, B=16, V=96, E=8, K=2, FF=512),
}


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.w, 1e-5)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c["H"]
        self.qkv = nn.Linear(c["D"], 3 * c["D"], bias=False)
        self.o = nn.Linear(c["D"], c["D"], bias=False)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(B, T, D))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up = nn.Linear(c["D"], c["FF"], bias=False)
        self.down = nn.Linear(c["FF"], c["D"], bias=False)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Moe(nn.Module):
    """Dropless top-k experts in plain PyTorch: a loop over experts."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.router = nn.Linear(c["D"], c["E"], bias=False)
        self.w1 = nn.Parameter(torch.randn(c["E"], c["D"], c["FF"]) * 0.02)
        self.w3 = nn.Parameter(torch.randn(c["E"], c["D"], c["FF"]) * 0.02)
        self.w2 = nn.Parameter(torch.randn(c["E"], c["FF"], c["D"]) * 0.02)

    def forward(self, x):
        c = self.c
        B, T, D = x.shape
        x = x.view(-1, D)
        p = F.softmax(self.router(x).float(), -1)
        w, idx = p.topk(c["K"], -1)
        w = (w / w.sum(-1, keepdim=True)).to(x.dtype)
        y = torch.zeros_like(x)
        for e in range(c["E"]):
            tok, slot = torch.where(idx == e)
            h = x[tok]
            h = (F.silu(h @ self.w1[e].to(x.dtype)) * (h @ self.w3[e].to(x.dtype))) @ self.w2[e].to(x.dtype)
            y = y.index_add(0, tok, h * w[tok, slot, None])
        frac = F.one_hot(idx, c["E"]).float().mean((0, 1))
        self.aux = c["E"] * (frac * p.mean(0)).sum()
        return y.view(B, T, D)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.a, self.n2 = RMS(c["D"]), Attention(c), RMS(c["D"])
        self.f = Moe(c) if c["E"] else Mlp(c)

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.f(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.tok = nn.Embedding(c["V"], c["D"])
        self.pos = nn.Embedding(c["T"], c["D"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["L"]))
        self.n, self.head = RMS(c["D"]), nn.Linear(c["D"], c["V"], bias=False)

    def forward(self, tokens, targets):
        c = self.c
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for b in self.blocks:
            x = b(x)
        loss = F.cross_entropy(self.head(self.n(x)).float().view(-1, c["V"]), targets.view(-1))
        return loss + 0.01 * sum(b.f.aux for b in self.blocks) if c["E"] else loss


class ResBlock(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.short = nn.Sequential()
        if stride != 1 or i != o:
            self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        shapes = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
                  (512, 512, 1)]
        self.blocks = nn.Sequential(*(ResBlock(*s) for s in shapes))
        self.head = nn.Linear(512, 10)

    def forward(self, x, y):
        x = self.blocks(F.relu(self.norm(self.stem(x))))
        return F.cross_entropy(self.head(x.mean((2, 3))).float(), y)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.lstm, self.head = nn.Embedding(96, 512), nn.LSTM(512, 512), nn.Linear(512, 96)

    def forward(self, x, y):
        return F.cross_entropy(self.head(self.lstm(self.tok(x))[0]).view(-1, 96), y.view(-1))


def make(config):
    """The model, and a function that makes a batch."""
    if config == "resnet":
        return ResNet(), lambda: (torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))
    if config == "lstm":
        return Lstm(), lambda: (torch.randint(0, 96, (64, 32)), torch.randint(0, 96, (64, 32)))
    c = CONFIGS[config]
    shape = (c["B"], c["T"])
    return Decoder(c), lambda: (torch.randint(0, c["V"], shape), torch.randint(0, c["V"], shape))


def process_age():
    started = float(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def main():
    config, mode, dtype = sys.argv[1:4]
    torch.manual_seed(0)
    model, batch = make(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def forward(tokens, targets):
        if dtype == "bf16":
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(tokens, targets)
        return model(tokens, targets)

    run = torch.compile(forward) if mode == "compile" else forward

    def step():
        tokens, targets = batch()
        begin = time.perf_counter()
        loss = run(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        return time.perf_counter() - begin, value

    def say(**what):
        print(json.dumps(what), flush=True)

    step()
    parameters = sum(p.numel() for p in model.parameters())
    say(first_step_s=process_age(), parameters=parameters, threads=torch.get_num_threads())
    for line in sys.stdin:
        done = [step() for _ in range(int(line))]
        say(ms=[s * 1e3 for s, _ in done], loss=done[-1][1],
            peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6)


if __name__ == "__main__":
    main()
