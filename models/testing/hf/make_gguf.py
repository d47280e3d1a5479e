#!/usr/bin/env python3
"""Writes framework/io/testdata/formats.gguf: blocks of each format that Weft reads, with the values that the package
`gguf` of llama.cpp computes, and metadata of each type.

Run it by hand, with gguf and numpy installed:  python models/testing/hf/make_gguf.py
"""
import os

import gguf
import numpy as np
from gguf import quants

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
FOLDER = os.path.join(ROOT, "framework", "io", "testdata")
ROWS, COLUMNS = 2, 256
T = gguf.GGMLQuantizationType
# The places of 16-bit scales in a block; other bytes are random.
SCALES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2],
          T.Q6_K: [208]}


def blocks_of(kind, random):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(0, 256, (ROWS, COLUMNS // block, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scale = random.normal(0, 0.01, data.shape[:2]).astype(np.float16)
        data[:, :, at:at + 2] = scale[..., None].view(np.uint8)
    return data.reshape(ROWS, -1)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    random = np.random.default_rng(7)
    w = gguf.GGUFWriter(os.path.join(FOLDER, "formats.gguf"), "llama")
    w.add_uint8("a.u8", 200)
    w.add_int8("a.i8", -3)
    w.add_uint16("a.u16", 60000)
    w.add_int16("a.i16", -300)
    w.add_uint32("a.u32", 4000000000)
    w.add_int32("a.i32", -70000)
    w.add_uint64("a.u64", 1 << 40)
    w.add_int64("a.i64", -(1 << 40))
    w.add_float32("a.f32", 1e-5)
    w.add_float64("a.f64", 1e-5)
    w.add_bool("a.bool", True)
    w.add_string("a.text", "Grüße\n")
    w.add_array("a.texts", ["a", "", "▁b"])
    w.add_array("a.integers", [1, -2, 3])
    w.add_array("a.numbers", [0.5, -1.5])
    for kind in SCALES:
        data = blocks_of(kind, random)
        w.add_tensor(kind.name, data, raw_dtype=kind)
        w.add_tensor(kind.name + ".values", quants.dequantize(data, kind))
    source = random.normal(0, 1, (ROWS, COLUMNS)).astype(np.float32)
    source[0, :32] = 0
    w.add_tensor("source", source)
    w.add_tensor("source.q8_0", quants.quantize(source, T.Q8_0), raw_dtype=T.Q8_0)
    for kind in (T.F16, T.BF16):
        data = quants.quantize(source, kind)
        w.add_tensor(kind.name, data, raw_dtype=kind if kind == T.BF16 else None)
        w.add_tensor(kind.name + ".values", quants.dequantize(data, kind))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    main()
