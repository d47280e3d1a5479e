#!/usr/bin/env python3
"""Measures the work of tools/gpu/bench.cc in PyTorch, under the same names: eager, and torch.compile where it helps.
A case that fails or takes too long is reported, and the others run. Exit code 77: there is no PyTorch with CUDA."""
import argparse
import contextlib
import gc
import json
import os
import signal
import statistics
import sys
import time

start = time.monotonic()  # importing PyTorch takes seconds
try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

rows, failed, left_out = [], {}, []
args = None


class TooSlow(BaseException):
    """Not an Exception: PyTorch catches some of these and continues."""


def write():
    """Writes the rows so far, so that a later crash does not lose them. Replaces the file at once: the program may be
    killed at any time."""
    if args.json:
        with open(f"{args.json}.new", "w") as file:
            json.dump({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(), "rows": rows, "failed": failed,
                       "left_out": left_out}, file, indent=1)
        os.replace(file.name, args.json)


@contextlib.contextmanager
def time_limit(seconds):
    def stop(*_):
        raise TooSlow(f"took more than {seconds:.0f} s")
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def case(name, body):
    """Runs body within the time of a case and of the program. Compiled code and memory of other cases are gone."""
    seconds = min(args.case_seconds, start + args.seconds - time.monotonic())
    if seconds <= 0:
        left_out.append(name)
        return
    begin = time.monotonic()
    try:
        with time_limit(seconds):
            body()
            torch.cuda.synchronize()
    except (Exception, TooSlow) as error:
        failed[name] = f"{type(error).__name__}: {error}"[:1000]
        print(f"{name}: {failed[name]}", flush=True)
    if args.warm:
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
    torch.compiler.reset()
    gc.collect()
    with contextlib.suppress(Exception):  # an earlier fault of the device
        torch.cuda.empty_cache()
    write()


def gpu_ms(body):
    """The median over 7 repetitions of about 20 ms, after warm-up. Under --warm: calls body once."""
    if args.warm:
        body()
        return 1.0

    def run(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            body()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / calls
    run(3)
    once = max(run(1), 1e-3)
    run(int(min(max(100 / once, 1), 10000)))
    calls = int(min(max(20 / once, 1), 2000))
    return statistics.median(run(calls) for _ in range(7))


def add(name, value, unit):
    if args.warm:
        return
    rows.append({"name": name, "value": value, "unit": unit})
    print(f"{name:45} {value:10.4g} {unit}", flush=True)
    write()


def normal(*shape, dtype):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def memory():
    def rate(name, passes, fn, *operands):
        bytes_ = passes * operands[0].numel() * operands[0].element_size()
        compiled = torch.compile(fn, dynamic=False)
        add(name, bytes_ / (gpu_ms(lambda: compiled(*operands)) * 1e6), "GB/s")

    copy = "x + 1 f32, 1 GiB"
    case(copy, lambda: rate(copy, 2, lambda a: a + 1, torch.zeros(1 << 28, device="cuda")))
    large, square, line = (65536, 4096), (16384, 16384), (4096,)
    cases = {
        "gelu(a) * b": (3, lambda a, b: F.gelu(a) * b, (large, large)),
        "softmax rows": (2, lambda a: torch.softmax(a, 1), (large,)),
        "rms_norm(a + b)": (3, lambda a, b, c: F.rms_norm(a + b, (4096,), c), (large, large, line)),
        "sum over rows": (1, lambda a: a.sum(0), (large,)),
        "a.T + b": (3, lambda p, q: p.T + q, (square, square)),
    }
    for dtype, suffix in ((torch.float32, "f32"), (torch.bfloat16, "bf16")):
        for name, (passes, fn, shapes) in cases.items():
            row = f"{name} {suffix}"
            case(row, lambda: rate(row, passes, fn, *(normal(*s, dtype=dtype) for s in shapes)))


def products():
    n = 8192

    def product(name, of):
        a = of(n, n, device="cuda").to(torch.bfloat16)
        b = a.clone()
        add(name, 2 * n**3 / (gpu_ms(lambda: a @ b) * 1e9), "TFLOP/s")

    def fused():
        x, w, c = (normal(*s, dtype=torch.bfloat16) for s in ((n, 4096), (4096, 4096), (4096,)))
        fn = torch.compile(lambda p, q, r: F.gelu(p @ q + r, approximate="tanh"), dynamic=False)
        add("gelu(x w + b) bf16", gpu_ms(lambda: fn(x, w, c)), "ms")

    for data, of in {"zeros": torch.zeros, "normal": torch.randn, "uniform": torch.rand}.items():
        name = f"product bf16 8192 {data}"
        case(name, lambda: product(name, of))
    case("gelu(x w + b) bf16", fused)


def attention():
    wide = (1, 16, 16, 8192, 128)  # batch, heads, heads of keys and values, length, head dim
    slopes = torch.exp2(-8.0 * torch.arange(1, 17, device="cuda") / 16)

    def causal(b, h, i, j):
        return i >= j

    def operands(batch, heads, kv_heads, length, dim):
        return [normal(batch, n, length, dim, dtype=torch.bfloat16).requires_grad_()
                for n in (heads, kv_heads, kv_heads)]

    def times(name, shape, share, make):
        batch, heads, _, length, dim = shape
        flops = 4 * batch * heads * length * length * dim * share
        q, k, v = operands(*shape)
        fn = make(q, k, v)
        y = fn()
        g = torch.ones_like(y)
        add(name, flops / (gpu_ms(fn) * 1e9), "TFLOP/s")
        back = gpu_ms(lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True))
        add(f"{name} backward", 2.5 * flops / (back * 1e9), "TFLOP/s")

    def sdpa(backend, causal):
        def make(q, k, v):
            def fn():
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return fn
        return make

    def flex(shape, mask=None, score_mod=None):
        block_mask = mask and create_block_mask(mask, 1, 1, shape[3], shape[3])
        compiled = torch.compile(flex_attention, dynamic=False)
        gqa = shape[1] != shape[2]
        return lambda q, k, v: lambda: compiled(q, k, v, score_mod=score_mod, block_mask=block_mask, enable_gqa=gqa)

    short = (16, 12, 12, 1024, 64)
    for kernel, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        for mask, shape, share in (("none", wide, 1), ("causal", wide, 0.5),
                                   ("causal, 16 x 1024, heads of 64", short, 0.5)):
            name = f"sdpa {kernel} {mask}"
            case(name, lambda: times(name, shape, share, sdpa(backend, share < 1)))
    cases = {
        "none": (wide, 1, {}),
        "causal": (wide, 0.5, {"mask": causal}),
        "window 512": (wide, 512 / 8192, {"mask": lambda b, h, i, j: (i >= j) & (i - j < 512)}),
        "alibi": (wide, 1, {"score_mod": lambda s, b, h, i, j: s + slopes[h] * (j - i)}),
        "causal, 4 queries a key": ((1, 32, 8, 8192, 128), 0.5, {"mask": causal}),
        "causal, 16 x 1024, heads of 64": (short, 0.5, {"mask": causal}),
    }
    for mask, (shape, share, options) in cases.items():
        name = f"attention {mask}"
        case(name, lambda: times(name, shape, share, flex(shape, **options)))


class Block(torch.nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(dim) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        qkv = self.qkv(self.norms[0](x)).split(dim, 2)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in qkv)
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


def gpt2():
    batch, length, vocab = 16, 1024, 50257
    torch.set_float32_matmul_precision("high")
    model = torch.compile(Gpt2(vocab, length, 12, 12, 768).cuda(), dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = torch.randint(0, vocab, (batch, length + 1), device="cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(text[:, :-1], text[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    add("step of gpt2 124M bf16", gpu_ms(step), "ms")


def steps():
    case("step of gpt2 124M bf16", gpt2)


def chains():
    def products_of(n):
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

    for n in (64, 128, 256, 512, 1024, 2048, 4096):
        case(f"32 products of {n}", lambda: products_of(n))


def main():
    parts = {part.__name__: part for part in (steps, attention, products, memory, chains)}
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--json", default="", help="also write the results to this file")
    flags.add_argument("--only", default=",".join(parts), help="comma-separated parts (default: all)")
    flags.add_argument("--seconds", type=float, default=3600, help="begin no case after this time")
    flags.add_argument("--case-seconds", type=float, default=90, help="time of a case")
    flags.add_argument("--warm", action="store_true", help="compile and run each case once, without timing")
    global args
    args = flags.parse_args()
    names = args.only.split(",")
    for name in names:
        if name not in parts:
            flags.error(f"--only: there is no part '{name}'; there are {' '.join(parts)}")
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        sys.exit(77)
    for name, part in parts.items():
        if name in names:
            try:
                part()
            except Exception as error:  # operands of several cases
                failed[name] = f"{type(error).__name__}: {error}"[:1000]
                print(f"{name}: {failed[name]}", flush=True)
    if left_out:
        print(f"no time was left for: {', '.join(left_out)}")
    write()


main()
