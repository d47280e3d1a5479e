"""Writes outer.txt: a run of DiLoCo's outer optimiser by NumPy, for outer_test.cc.

    python distributed/diloco/testdata/make_outer.py > distributed/diloco/testdata/outer.txt
"""

import numpy as np

REPLICAS, EXCHANGES, VALUES = 3, 6, 700
LR, MOMENTUM, ALPHA = 0.7, 0.9, 0.25
WEIGHTS = [640, 1280, 37]

def through_wire(values, most):
    """f32 values as they arrive: in blocks of 256, multiples of a scale; `most` 0: as they are."""
    out = values.copy()
    for begin in range(0, len(values) if most else 0, 256):
        block = values[begin:begin + 256]
        scale = np.abs(block).max() / np.float32(most)
        out[begin:begin + 256] = np.rint(block / scale) * scale
    return out

def average(gradients, most):
    total = np.zeros(VALUES, np.float32)
    for w, d in zip(WEIGHTS, gradients):
        total = total + np.float32(w) * through_wire(d.astype(np.float32), most)
    return through_wire(total / np.float32(sum(WEIGHTS)), most).astype(np.float64)

for wire, most in [("f64", None), ("f32", 0), ("int8", 127), ("int4", 7)]:
    i = np.arange(VALUES, dtype=np.float64)
    anchor, momentum = np.sin(i), np.zeros(VALUES)
    parameters = [anchor.copy() for _ in range(REPLICAS)]
    for x in range(EXCHANGES):
        parameters = [p + 0.01 * np.cos(i * (r + 1) + x) for r, p in enumerate(parameters)]
        gradients = [anchor - p for p in parameters]
        if most is None:
            mean = sum(w * d for w, d in zip(WEIGHTS, gradients)) / sum(WEIGHTS)
        else:
            mean = average(gradients, most)
        momentum = MOMENTUM * momentum + mean
        anchor = anchor - LR * (mean + MOMENTUM * momentum)
        parameters = [ALPHA * p + (1 - ALPHA) * anchor for p in parameters]
    print(wire, len(range(0, VALUES, 23)))
    for k in range(0, VALUES, 23):
        print(k, repr(float(anchor[k])), repr(float(momentum[k])), repr(float(parameters[1][k])))
