"""The loss of a checkpoint in PyTorch, which reads its weights by safetensors.torch.load_file, beside Weft's.

Run by hand, with torch and safetensors installed:
    python models/testing/torch_checkpoint.py runs/gpt-gpt_shakespeare/step_600 --score out/bin/models/gpt/score
The losses must agree to 1e-5. Without --score it only prints PyTorch's loss, as checkpoint_meshes_test needs it. The
models are in make_fixtures.py.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from make_fixtures import Reference

TOLERANCE = 1e-5


def value(text):
    """A field of a configuration."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read(folder):
    """The configuration and the weights of a checkpoint."""
    with open(os.path.join(folder, "state.json")) as file:
        state = json.load(file)
    config = {"family": state["family"]} | {field: value(text) for field, text in state["model"].items()}
    return config, {name: t.double() for name, t in load_file(os.path.join(folder, "model.safetensors")).items()}


def torch_loss(config, weights, ids):
    tokens = torch.tensor(ids)[None]
    logits, _ = Reference(config, weights).step(tokens[:, :-1], tokens[:, 1:])
    return F.cross_entropy(logits.flatten(0, 1), tokens[0, 1:]).item()


def weft_loss(score, folder, ids):
    with tempfile.TemporaryDirectory() as temporary:
        path = os.path.join(temporary, "ids.txt")
        with open(path, "w") as file:
            file.write(" ".join(map(str, ids)))
        run = subprocess.run([score, "--checkpoint", folder, "--tokens", path], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    return json.loads(run.stdout.splitlines()[-1])["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a folder step_N of gpt, llama or moe")
    parser.add_argument("--score", help="the program score of the family")
    args = parser.parse_args()
    config, weights = read(args.checkpoint)
    ids = [(7 * i + i * i) % config["vocab"] for i in range(min(config["context"], 64) + 1)]
    loss = torch_loss(config, weights, ids)
    print(f"PyTorch: {loss:.9f}")
    if args.score:
        weft = weft_loss(args.score, args.checkpoint, ids)
        print(f"Weft:    {weft:.9f}")
        if abs(weft - loss) > TOLERANCE * abs(loss):
            sys.exit(f"the losses differ by {abs(weft - loss) / abs(loss):.1e}; need at most {TOLERANCE}")


if __name__ == "__main__":
    main()
