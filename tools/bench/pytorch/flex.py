#!/usr/bin/env python3
"""PyTorch's side of //tools/bench:flex: `flex.py flex` compiles flex_attention, `flex.py sdpa` calls
scaled_dot_product_attention if possible. Each line of standard input names a case; answers {"name", "ms"}, ms null
where PyTorch does not support the case."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, LENGTH, DIM = 8, 2048, 64


def mask_of(name):
    doc = torch.arange(LENGTH) // 300
    return {
        "causal": lambda b, h, q, kv: q >= kv,
        "window_256": lambda b, h, q, kv: (q >= kv) & (q - kv <= 256),
        "documents_300": lambda b, h, q, kv: (q >= kv) & (doc[q] == doc[kv]),
        "prefix_512": lambda b, h, q, kv: (kv < 512) | (q >= kv),
    }.get(name)


def mod_of(name):
    slopes = torch.tensor([2.0 ** (-8 * (h + 1) / HEADS) for h in range(HEADS)])
    return {
        "alibi": lambda s, b, h, q, kv: s + slopes[h] * (kv - q),
        "softcap": lambda s, b, h, q, kv: torch.tanh(s / 20) * 20,
    }.get(name)


def make(way, name, backward):
    """The function of a case, or None."""
    if way == "sdpa":
        if name not in ("none", "causal"):
            return None
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=name == "causal")
    if backward:
        return None  # "FlexAttention does not support backward on CPU"
    mask = mask_of(name)
    blocks = create_block_mask(mask, 1, 1, LENGTH, LENGTH, device="cpu") if mask else None
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, score_mod=mod_of(name), block_mask=blocks)


def make_decode(way, words):
    """One query for each entry: the function of a case, or None, and the shapes of q and of k and v."""
    batch, length = int(words[0][1:]), int(words[1][1:])
    kv_heads = {"gqa1": HEADS, "gqa4": HEADS // 4, "mqa": 1}[words[2]]
    shapes = [(batch, HEADS, 1, 128)] + 2 * [(batch, kv_heads, length, 128)]
    if "paged" in words:
        return None, shapes  # paged keys need a gather
    if way == "sdpa":
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), shapes
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention)
    return lambda q, k, v: compiled(q, k, v, enable_gqa=True), shapes


def main():
    way = sys.argv[1]
    torch.manual_seed(0)
    for line in sys.stdin:
        dtype, name, *rest = line.split()
        backward = rest == ["backward"]
        t = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        shapes = 3 * [(1, HEADS, LENGTH, DIM)]
        if name == "decode":
            run, shapes = make_decode(way, rest)
        else:
            run = make(way, name, backward)
        x = [torch.randn(s).to(t).requires_grad_(backward) for s in shapes]
        g = torch.randn(shapes[0]).to(t)
        if run is None:
            print(json.dumps({"name": line.strip(), "ms": None}), flush=True)
            continue

        def call():
            if backward:
                torch.autograd.grad(run(*x), x, g)
            else:
                with torch.no_grad():
                    run(*x)

        call()
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        print(json.dumps({"name": line.strip(), "ms": sorted(times)[3] * 1e3}), flush=True)


if __name__ == "__main__":
    main()
