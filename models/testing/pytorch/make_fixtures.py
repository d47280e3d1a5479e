#!/usr/bin/env python3
"""Evaluates the right sides of cases.txt and everyday.txt with PyTorch, and their gradients: writes fixtures.txt, which
pytorch_test reads. Run by hand, with torch installed:  python models/testing/pytorch/make_fixtures.py"""
import itertools
import math
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.optim import lr_scheduler

import cases

FOLDER = os.path.dirname(os.path.abspath(__file__))
inf, nan = math.inf, math.nan


def grid(name, count):
    """Numbers of (0, 1), exact in f32, distinct for up to 1021: the same as grid() of rows.cc."""
    seed = sum(name.encode())
    return [(2 * pow(e * 619 + seed * 97, 7, 1021) + 1) / 2048 for e in range(count)]


def weights(output, count):
    return torch.tensor([((e + 5 * output) * 7 + 3) % 13 / 8 - 11 / 16 for e in range(count)], dtype=torch.float64)


def value_of(o):
    count = math.prod(o.shape)
    numbers = o.literal
    if numbers is None:
        lo, hi = o.range
        numbers = [lo + (hi - lo) * g for g in grid(o.name, count)]
    dtype = dict(f64=torch.float64, i64=torch.int64, bool=torch.bool)[o.dtype]
    t = torch.tensor(numbers, dtype=torch.float64).to(dtype).reshape(o.shape)
    return t.requires_grad_() if o.dtype == "f64" else t


class Evaluation:
    """The functions that rows call; the same names are in rows.h."""

    def __init__(self, operands):
        self.leaves = {}
        self.layers = 0
        self.names = dict(torch=torch, F=F, nn=nn, D=torch.distributions, lr_scheduler=lr_scheduler, math=math, inf=inf,
                          nan=nan, FILLED=self.filled, trained=self.trained, rates=rates, itertools=itertools)
        for o in operands:
            self.names[o.name] = value_of(o)
            if o.dtype == "f64":
                self.leaves[o.name] = self.names[o.name]

    def filled(self, layer):
        layer.double()
        with torch.no_grad():
            for name, p in itertools.chain(layer.named_parameters(), layer.named_buffers()):
                if p.is_floating_point():
                    shift = 0.5 if name.endswith("running_var") else -0.5
                    p.copy_((torch.tensor(grid(name, p.numel()), dtype=torch.float64) + shift).reshape(p.shape))
        for name, p in layer.named_parameters():
            if p.requires_grad:
                self.leaves[f"{self.layers}.{name}"] = p
        self.layers += 1
        return layer

    def trained(self, make, steps, **options):
        torch.set_default_dtype(torch.float64)  # dtype of scalars in the optimiser's state
        layer = self.filled(nn.Linear(4, 3))
        for name in ("weight", "bias"):
            del self.leaves[f"{self.layers - 1}.{name}"]
        x, y = self.names["x"].detach(), self.names["y"].detach()
        opt = make(layer.parameters() if make is not torch.optim.Muon else [layer.weight], **options)
        for _ in range(steps):
            def closure():
                opt.zero_grad()
                loss = ((layer(x) - y[:, :3]) ** 2).mean()
                loss.backward()
                return loss
            opt.step(closure)
        torch.set_default_dtype(torch.float32)
        return layer.weight.detach(), layer.bias.detach()


def rates(schedule, steps, base, **options):
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=base)
    s = schedule(opt, **options)
    out = []
    for _ in range(steps):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        s.step()
    return torch.tensor(out, dtype=torch.float64)


def flatten(v):
    if isinstance(v, torch.Tensor):
        return [v]
    if isinstance(v, bool):
        return [torch.tensor(v)]
    if isinstance(v, torch.Size):
        return [torch.tensor(v)]
    if isinstance(v, float):
        return [torch.tensor(v, dtype=torch.float64)]
    if isinstance(v, int):
        return [torch.tensor(v)]
    return [t for part in v for t in flatten(part)]


DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
          torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool"}


def numbers(t):
    # Ten digits, because the test allows differences of 1e-9.
    return " ".join(("%.10g" % v if v % 1 else str(int(v))) if math.isfinite(v) else str(v)
                    for v in t.detach().double().flatten().tolist())


def autocast_lines(row, operands):
    """Dtypes and shapes, by tensors of a GPU without storage."""
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    with FakeTensorMode(), torch.device("cuda"):
        names = dict(torch=torch, F=F, nn=nn, FILLED=lambda layer: layer)
        dtypes = dict(f64=torch.float32, i64=torch.int64, bool=torch.bool)
        for o in operands:
            names[o.name] = torch.zeros(o.shape, dtype=dtypes[o.dtype])
        statements, expressions = cases.parts(row.torch)
        exec(statements, names)
        lines = [f"{DTYPES[t.dtype]}{list(t.shape)}" for t in flatten(eval(f"({expressions},)", names))]
    torch.set_autocast_enabled("cuda", False)
    return lines


def lines_of(row, operands):
    if "autocast" in row.tags:
        return autocast_lines(row, operands)
    torch.manual_seed(0)
    e = Evaluation(operands)
    statements, expressions = cases.parts(row.torch)
    exec(statements, e.names)
    outs = flatten(eval(f"({expressions},)", e.names))
    lines = []
    for t in outs:
        lines.append(f"{DTYPES[t.dtype]}{list(t.shape)} {'' if 'shape' in row.tags else numbers(t)}".rstrip())
    losses = [(t * weights(i, t.numel()).reshape(t.shape)).sum() for i, t in enumerate(outs)
              if t.is_floating_point() and t.requires_grad]
    if losses and "shape" not in row.tags:
        grads = torch.autograd.grad(sum(losses), list(e.leaves.values()), allow_unused=True)
        for name, g in zip(e.leaves, grads):
            if g is not None:
                lines.append(f"grad {name} {numbers(g)}")
    return lines


def main():
    operands, rows, _ = cases.read()
    out = [f"# torch {torch.__version__.split('+')[0]}; made by: python models/testing/pytorch/make_fixtures.py"]
    out += ["let " + o.text for o in operands]
    done, failures = set(), 0
    for row in rows:
        if not row.torch or row.torch in done:
            continue
        done.add(row.torch)
        try:
            lines = lines_of(row, operands)
        except Exception as e:  # a row that PyTorch refuses is a mistake in the list
            failures += 1
            print(f"{row.place}: {row.torch}: {type(e).__name__}: {e}", file=sys.stderr)
            continue
        out += ["= " + row.torch, *lines]
    if failures:
        sys.exit(f"{failures} rows failed; fixtures.txt is unchanged")
    with open(os.path.join(FOLDER, "fixtures.txt"), "w") as file:
        file.write("\n".join(out) + "\n")
    print(f"{len(done)} rows, {os.path.getsize(os.path.join(FOLDER, 'fixtures.txt'))} bytes")


if __name__ == "__main__":
    main()
