#!/usr/bin/env python3
"""Measures the work of tools/gpu/bench.cc in PyTorch, under the same names: eager, and torch.compile where it helps."""
import argparse
import json
import statistics

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

rows = []
out = ""


def write():
    """Writes the rows so far, so that a later crash does not lose them."""
    if out:
        with open(out, "w") as file:
            json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rows": rows}, file, indent=1)


def gpu_ms(body):
    def run(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            body()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / calls
    run(3)
    calls = int(min(max(20 / max(run(1), 1e-3), 1), 2000))
    return statistics.median(run(calls) for _ in range(7))


def add(name, value, unit):
    rows.append({"name": name, "value": value, "unit": unit})
    print(f"{name:45} {value:10.4g} {unit}", flush=True)
    write()


def normal(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def memory():
    n = 1 << 28
    x = torch.zeros(n, device="cuda")
    times = torch.compile(lambda a: a * 1.0)
    add("x * 1 f32, 1 GiB", 8 * n / (gpu_ms(lambda: times(x)) * 1e6), "GB/s")
    del x
    for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        x, y, w = normal(65536, 4096, dtype=dtype), normal(65536, 4096, dtype=dtype), normal(4096, dtype=dtype)
        bytes_ = x.numel() * x.element_size()
        cases = {
            "gelu(a) * b": (3, torch.compile(lambda a, b: F.gelu(a) * b), (x, y)),
            "softmax rows": (2, torch.compile(lambda a: torch.softmax(a, 1)), (x,)),
            "rms_norm(a + b)": (3, torch.compile(lambda a, b, c: F.rms_norm(a + b, (4096,), c)), (x, y, w)),
            "sum over rows": (1, torch.compile(lambda a: a.sum(0)), (x,)),
        }
        for case, (passes, fn, args) in cases.items():
            add(f"{case} {name}", passes * bytes_ / (gpu_ms(lambda: fn(*args)) * 1e6), "GB/s")
        a, b = normal(16384, 16384, dtype=dtype), normal(16384, 16384, dtype=dtype)
        turn = torch.compile(lambda p, q: p.T + q)
        add(f"a.T + b {name}", 3 * a.numel() * a.element_size() / (gpu_ms(lambda: turn(a, b)) * 1e6), "GB/s")


def products():
    n = 8192
    make = {"zeros": torch.zeros, "normal": torch.randn, "uniform": torch.rand}
    for name, of in make.items():
        a = of(n, n, device="cuda").to(torch.bfloat16)
        b = a.clone()
        add(f"product bf16 8192 {name}", 2 * n**3 / (gpu_ms(lambda: a @ b) * 1e9), "TFLOP/s")
    x, w, c = (normal(*s, dtype=torch.bfloat16) for s in ((8192, 4096), (4096, 4096), (4096,)))
    fused = torch.compile(lambda p, q, r: F.gelu(p @ q + r, approximate="tanh"))
    add("gelu(x w + b) bf16", gpu_ms(lambda: fused(x, w, c)), "ms")


def attention():
    heads, length, dim = 16, 8192, 128
    q, k, v = (normal(1, heads, length, dim, dtype=torch.bfloat16).requires_grad_() for _ in range(3))
    slopes = torch.exp2(-8.0 * torch.arange(1, heads + 1, device="cuda") / heads)
    causal = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, length, length)
    window = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 512), 1, 1, length, length)
    cases = {
        "none": (1, {}),
        "causal": (0.5, {"block_mask": causal}),
        "window 512": (512 / length, {"block_mask": window}),
        "alibi": (1, {"score_mod": lambda s, b, h, i, j: s + slopes[h] * (j - i)}),
    }
    for name, (share, options) in cases.items():
        flops = 4 * heads * length * length * dim * share
        fn = torch.compile(flex_attention, dynamic=False)
        y = fn(q, k, v, **options)
        g = torch.ones_like(y)
        with torch.no_grad():
            add(f"attention {name}", flops / (gpu_ms(lambda: fn(q, k, v, **options)) * 1e9), "TFLOP/s")
        back = gpu_ms(lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True))
        add(f"attention {name} backward", 2.5 * flops / (back * 1e9), "TFLOP/s")


class Block(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(dim) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norms[0](x)).split(dim, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, vocab, context, layers, heads, dim):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocab, dim), torch.nn.Embedding(context, dim)
        self.blocks = torch.nn.Sequential(*(Block(dim, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(dim), torch.nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(x)))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def steps():
    batch, length, vocab = 16, 1024, 50257
    torch.set_float32_matmul_precision("high")
    model = torch.compile(Gpt2(vocab, length, 12, 12, 768).cuda())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = torch.randint(0, vocab, (batch, length + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(text[:, :-1], text[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    add("step of gpt2 124M bf16", gpu_ms(step), "ms")


def chains():
    n = 64
    while n <= 4096:
        x, w = normal(n, n, dtype=torch.bfloat16), (torch.randn(n, n, device="cuda") / n**0.5).to(torch.bfloat16)

        def chain():
            a = x
            for _ in range(32):
                a = a @ w
            return a
        add(f"32 products of {n} eager", gpu_ms(chain) * 1e3, "us")
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            chain()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain()
        add(f"32 products of {n} graph", gpu_ms(graph.replay) * 1e3, "us")
        n *= 2


def main():
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--json", default="")
    flags.add_argument("--only", default="")
    args = flags.parse_args()
    global out
    out = args.json
    for part in (products, attention, steps, memory, chains):
        if args.only not in part.__name__:
            continue
        try:
            part()
        except Exception as error:  # continue with the others
            print(f"{part.__name__}: {error}")
    write()


main()
