#!/usr/bin/env python3
"""Compares Weft's number formats with ml_dtypes and numpy, bit for bit.

ml_dtypes is installed in its own virtual environment, which is created from requirements.txt on first use (about 100
MB); nothing else in the project needs it. For each format it compares the table (finfo), the value of every code, and
the codes of about 900,000 f32 values: all upper halves with thirteen lower ones, which hold every tie of a format of
up to 16 bits, and random values. --table prints ops/numerics/testing/number_format_codes.inc instead.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from python_environment import python_with  # noqa: E402

LOW = [0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF]


def inputs(np):
    """f32 values: every tie of the formats of up to 16 bits, and random bits."""
    high = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    ties = (high | np.array(LOW, np.uint32)).ravel()
    return np.concatenate([ties, np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, np.uint32)]).view(np.float32)


def codes_of(np, dtypes, name, x):
    """The codes that the reference gives f32 values, as u32."""
    if name == "FP32":
        return x.view(np.uint32)
    if name == "TF32":  # f32 without the lower 13 bits of the mantissa: no library has it
        bits = x.view(np.uint32).astype(np.uint64)
        nearest = (bits + 0xFFF + ((bits >> 13) & 1)) >> 13
        return nearest.astype(np.uint32)
    if name == "E2M1":
        return x.astype(dtypes.float4_e2m1fn).view(np.uint8).astype(np.uint32)
    kind = {"FP16": np.float16, "BF16": dtypes.bfloat16, "E4M3": dtypes.float8_e4m3fn, "E5M2": dtypes.float8_e5m2}[name]
    y = x.astype(kind)
    return y.view(np.uint8 if y.itemsize == 1 else np.uint16).astype(np.uint32)


def element(np, dtypes, name, y):
    """f64 values, each exact in f32, rounded to an element and saturated."""
    kind, most = (dtypes.float8_e4m3fn, 448) if name == "E4M3" else (dtypes.float4_e2m1fn, 6)
    return np.clip(y, -most, most).astype(kind).astype(np.float64)


def blocks_of(np, dtypes, name, x):
    """f32 values rounded to a block format, by the rules of OCP MX and of NVFP4, with elements of ml_dtypes."""
    x = x.astype(np.float64)
    if name == "NVFP4":
        whole = np.float64(np.float32(np.abs(x).max() / (6 * 448)))
        b = x.reshape(-1, 16)
        scale = element(np, dtypes, "E4M3", np.abs(b).max(1, keepdims=True) / 6 / whole) * whole
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(scale == 0, 0, element(np, dtypes, "E2M1", b / scale) * scale).ravel()
    kind, top = ("E4M3", 8) if name == "MXFP8" else ("E2M1", 2)
    b = x.reshape(-1, 32)
    most = np.abs(b).max(1, keepdims=True)
    exponent = np.where(most > 0, np.frexp(most)[1] - 1 - top, 0).clip(-127, 127)
    scale = np.exp2(exponent.astype(np.float64))
    stored = scale.astype(np.float32).astype(dtypes.float8_e8m0fnu)
    assert (stored.view(np.uint8) == exponent + 127).all()
    return (element(np, dtypes, kind, b / scale) * scale).ravel()


def compare(args):
    import ml_dtypes as dtypes
    import numpy as np

    def weft(name, how, x):
        """The output of //tools/precision/testing:convert for these values."""
        with tempfile.TemporaryDirectory() as folder:
            x.tofile(f"{folder}/x")
            subprocess.run([args.convert, f"--format={name}", f"--how={how}", f"--values={folder}/x",
                            f"--out={folder}/y"], check=True)
            return np.fromfile(f"{folder}/y", np.float64 if how in ("decode", "round") else np.uint32)

    failed = 0
    np.seterr(over="ignore", invalid="ignore")

    def report(name, what, count, wrong):
        nonlocal failed
        failed += bool(wrong)
        print(f"{name:6} {what:28} {count:8} compared, {wrong} different")

    x = inputs(np)
    kinds = {"FP32": np.float32, "FP16": np.float16, "BF16": dtypes.bfloat16, "E4M3": dtypes.float8_e4m3fn,
             "E5M2": dtypes.float8_e5m2, "E2M1": dtypes.float4_e2m1fn}
    for name, kind in kinds.items():
        info = dtypes.finfo(kind)
        want = [info.bits, info.nexp, info.nmant, info.max, info.smallest_normal, info.smallest_subnormal, info.eps]
        got = weft(name, "limits", np.zeros(0, np.float32)).view(np.float64)
        report(name, "limits", len(want), sum(float(w) != g for w, g in zip(want, got)))
    for name in ["FP32", "TF32", "FP16", "BF16", "E4M3", "E5M2", "E2M1"]:
        values = x[~np.isnan(x)] if name == "E2M1" else x  # E2M1 has no NaN
        want, got = codes_of(np, dtypes, name, values), weft(name, "codes", values)
        nan = np.isnan(values)
        if name in ("FP16", "FP32", "TF32"):  # numpy keeps a NaN's bits
            want, got = want[~nan], got[~nan]
        report(name, "codes of f32 values", len(want), int((want != got).sum()))
        if name in kinds and name != "FP32":
            bits = dtypes.finfo(kinds[name]).bits
            codes = np.arange(1 << bits, dtype=np.uint32)
            small = codes.astype(np.uint16 if bits == 16 else np.uint8).view(kinds[name]).astype(np.float64)
            ours = weft(name, "decode", codes)
            same = (small.view(np.uint64) == ours.view(np.uint64)) | (np.isnan(small) & np.isnan(ours))
            report(name, "values of all codes", len(codes), int((~same).sum()))
    random = np.random.default_rng(1)
    for name in ["MXFP8", "MXFP4", "NVFP4"]:
        wide = random.normal(size=1 << 18) * np.exp2(random.integers(-20, 20, 1 << 18) if name != "NVFP4" else 0)
        values = np.concatenate([wide, np.zeros(32), np.float64(x[np.isfinite(x)][: 1 << 16])
                                 if name != "NVFP4" else []]).astype(np.float32)
        values = values[: len(values) // 32 * 32]
        want, got = blocks_of(np, dtypes, name, values), weft(name, "round", values)
        report(name, "rounded blocks", len(want), int((want != got).sum()))
    for name, kind in [("INT8", np.int8), ("INT4", dtypes.int4)]:
        values = x[np.isfinite(x)]
        info = dtypes.iinfo(kind)
        want = np.clip(np.rint(values), int(info.min), int(info.max)).astype(kind).astype(np.int32)
        report(name, "codes of f32 values", len(want), int((want != weft(name, "codes", values).view(np.int32)).sum()))
    return 1 if failed else 0


def table():
    import ml_dtypes as dtypes
    import numpy as np
    random = np.random.default_rng(5)
    x = np.concatenate([[0, -0.0, 0.25, -0.75, 1.0625, 1.5625, 3.5, 5, 240, 448, 464, 465, 57344, 61439, 61440, 65504,
                         65519, 65520, 1e30, 2 ** -10, 3 * 2 ** -10, 2 ** -17, 2 ** -25, 2 ** -134, np.inf],
                        random.normal(size=20), random.normal(size=20) * np.exp2(random.integers(-30, 20, 20))])
    x = x.astype(np.float32)
    names = ["BF16", "FP16", "E4M3", "E5M2", "E2M1"]
    print("// f32 value: codes in BF16, FP16, E4M3, E5M2, E2M1. Written by tools/precision/ml_dtypes_check.py --table.")
    np.seterr(over="ignore")
    columns = [codes_of(np, dtypes, n, x) for n in names]
    for v, *codes in zip(x, *columns):
        number = "HUGE_VALF" if np.isinf(v) else float(v).hex() + "f"
        print("{" + ", ".join([number] + [str(int(c)) for c in codes]) + "},")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", default="~/.cache/weft/ml-dtypes-venv", metavar="DIR", help="the virtual environment")
    parser.add_argument("--convert", metavar="FILE", help="the program //tools/precision/testing:convert, if built")
    parser.add_argument("--table", action="store_true", help="print the table of codes for the tests")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return table() if args.table else compare(args)
    python = python_with("ml_dtypes", args.venv, ROOT / "tools" / "precision" / "requirements.txt")
    if not args.table and not args.convert:
        subprocess.run([ROOT / "bazelw", "build", "//tools/precision/testing:convert"], cwd=ROOT, check=True)
        args.convert = ROOT / "out" / "bin" / "tools" / "precision" / "testing" / "convert"
    command = [python, __file__, "--inside"] + (["--table"] if args.table else [f"--convert={args.convert}"])
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
