"""The cases of ../ops.cc in PyTorch. usage: ops.py eager|compile

Each line of standard input names a case to time now; the answer is one JSON object.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F


def scaled(times):
    def run(x):
        for _ in range(times):
            x = x * 1.0001
        return x
    return run


def case(name):
    """The function of a case and its operands."""
    if name.startswith("mul_x"):
        return scaled(int(name[5:])), (torch.randn(32 << 20),)
    if name.startswith("matmul_"):
        _, dtype, n = name.split("_")
        dtype, n = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype], int(n)
        return (lambda a, b: a @ b), (torch.randn(n, n).to(dtype), torch.randn(n, n).to(dtype))
    order, image = torch.randperm(4096), torch.randn(64, 64, 64, 64)
    a, b, w, bias = torch.randn(4096, 4096), torch.randn(4096, 4096), torch.randn(4096), torch.randn(4096)
    run = {
        "gelu_mul": lambda a, b: F.gelu(a, approximate="tanh") * b,
        "softmax": lambda a, b: F.softmax(a, -1),
        "layer_norm": lambda a, b: F.layer_norm(a, (4096,), w, bias),
        "rms_norm_residual": lambda a, b: F.rms_norm(a + b, (4096,), w, 1e-5),
        "logsumexp": lambda a, b: torch.logsumexp(a, -1),
        "sum_over_rows": lambda a, b: a.sum(0),
        "transpose_add": lambda a, b: a.t() + b,
        "pool_by_amax": lambda a, b: image.view(64, 64, 32, 2, 32, 2).amax((3, 5)),
        "max_pool2d": lambda a, b: F.max_pool2d(image, 2),
        "avg_pool2d": lambda a, b: F.avg_pool2d(image, 2),
        "index_select_last": lambda a, b: torch.index_select(a, 1, order),
        "index_select_first": lambda a, b: torch.index_select(a, 0, order),
        "flip": lambda a, b: torch.flip(a, (1,)),
        "roll": lambda a, b: torch.roll(a, 5, 1),
        "transpose": lambda a, b: a.t().contiguous(),
        "columns_by_2": lambda a, b: a[:, ::2] * 2,
        "heads_to_front": lambda a, b: image.permute(0, 2, 1, 3).contiguous(),
        "sum_over_columns": lambda a, b: a.sum(1),
        "cumsum": lambda a, b: torch.cumsum(a, 1),
        "randn": lambda a, b: torch.randn(4096, 4096),
    }[name]
    return run, (a, b)


def seconds(run, operands):
    begin, calls = time.perf_counter(), 0
    while True:
        result = run(*operands)
        del result
        calls += 1
        if time.perf_counter() - begin >= 0.01:
            return (time.perf_counter() - begin) / calls


def main():
    compiled = sys.argv[1] == "compile"
    torch.manual_seed(0)
    with torch.no_grad():
        for line in sys.stdin:
            name = line.strip()
            run, operands = case(name)
            if compiled:
                torch._dynamo.reset()
                run = torch.compile(run)
            seconds(run, operands)
            times = sorted(seconds(run, operands) for _ in range(7))
            print(json.dumps({"name": name, "ms": times[3] * 1e3}), flush=True)


if __name__ == "__main__":
    main()
