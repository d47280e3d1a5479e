#!/usr/bin/env python3
"""Runs the ONNX models of //tools/graph:graph in onnxruntime and compares their logits with Weft's.

onnxruntime is installed in its own virtual environment, which is created from requirements.txt on first use (about
100 MB); nothing else in the project needs it. Fails if a logit differs by more than 1e-4.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from python_environment import python_with  # noqa: E402

LIMIT = 1e-4
COMPARE = """
import sys, numpy, onnxruntime
folder = sys.argv[1]
session = onnxruntime.InferenceSession(folder + "/model.onnx", providers=["CPUExecutionProvider"])
logits = session.run(["logits"], {"tokens": numpy.load(folder + "/tokens.npy")})[0]
weft = numpy.load(folder + "/logits.npy")
assert logits.shape == weft.shape, f"shape {logits.shape}, Weft {weft.shape}"
print(float(abs(logits - weft).max()))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    families = sorted(path.parent.name for path in ROOT.glob("models/*/model.h"))
    parser.add_argument("models", nargs="*", default=families, metavar="MODEL", help="all by default")
    parser.add_argument("--venv", default="~/.cache/weft/onnxruntime-venv", metavar="DIR",
                        help="the virtual environment")
    parser.add_argument("--graph", metavar="FILE", help="the graph program, if it is built already")
    args = parser.parse_args()
    python = python_with("onnxruntime", args.venv, ROOT / "tools" / "graph" / "requirements.txt")
    graph = args.graph
    if not graph:
        subprocess.run([ROOT / "bazelw", "build", "//tools/graph"], cwd=ROOT, check=True)
        graph = ROOT / "out" / "bin" / "tools" / "graph" / "graph"
    failed = False
    for model in args.models:
        for weights in ("inline", "external"):
            with tempfile.TemporaryDirectory() as folder:
                subprocess.run([graph, f"--model={model}", "--format=onnx", "--batch_size=2", f"--weights={weights}",
                                f"--out={folder}/model.onnx", f"--example={folder}"], check=True,
                               stdout=subprocess.DEVNULL)
                out = subprocess.run([python, "-c", COMPARE, folder], check=True, stdout=subprocess.PIPE, text=True)
            difference = float(out.stdout)
            failed |= not difference <= LIMIT
            print(f"{model}, weights {weights}: largest difference of logits {difference:.1e}, allowed {LIMIT:.0e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
