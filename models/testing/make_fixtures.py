"""One training step of each model family in plain PyTorch: writes fixtures/*.safetensors for
model_fixture_test.

Run by hand, with torch and safetensors installed:  python models/testing/make_fixtures.py
A fixture holds the configuration (metadata), tokens and targets, every parameter and buffer, logits, loss, every
gradient, and the parameters after one AdamW step. Everything is computed in f64 from f32 parameters and stored in f32.
"""
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

BATCH, TIME = 2, 12
LR, EPS, BETAS, WEIGHT_DECAY = 1e-3, 1e-5, (0.9, 0.95), 0.1

# Fields as in models/*/config.h; those left out have the defaults of the family.
FIXTURES = {
    "gpt": dict(family="gpt", vocab=40, context=TIME, layers=2, heads=2, dim=16, ffn=32, rms_norm=False, bias=True,
                tied=True, norm_eps=1e-5),
    "gpt_plain": dict(family="gpt", vocab=40, context=TIME, layers=2, heads=4, dim=16, ffn=64, rms_norm=True,
                      bias=False, tied=False, norm_eps=1e-5),
    "llama": dict(family="llama", vocab=40, context=32, layers=2, heads=4, kv_heads=2, dim=32, ffn=48, tied=False,
                  norm_eps=1e-5, rope_theta=10000.0, rope_factor=8.0, rope_low_freq_factor=1.0,
                  rope_high_freq_factor=4.0, rope_original_context=16),
    "moe": dict(family="moe", vocab=40, context=TIME, layers=2, heads=2, kv_heads=2, dim=16, rope=False, experts=4,
                top_k=2, ffn=24, score="softmax", normalize=True, aux_loss=0.01, z_loss=0.001, tied=False,
                norm_eps=1e-5),
    "moe_sigmoid": dict(family="moe", vocab=40, context=TIME, layers=3, heads=4, kv_heads=2, dim=16, rope=True,
                        rope_theta=10000.0, experts=6, top_k=2, ffn=24, shared_ffn=16, dense_layers=1, dense_ffn=32,
                        score="sigmoid", normalize=True, route_scale=1.5, aux_loss=0.01, bias_rate=0.001, tied=True,
                        norm_eps=1e-6),
}


def shapes(c):
    """Name -> shape of every parameter and buffer, in Weft's names."""
    D, V = c["dim"], c["vocab"]
    head_dim, kv = D // c["heads"], c.get("kv_heads", c["heads"])
    out = {"tok.weight": (V, D)}
    if c["family"] == "gpt" or not c.get("rope", True):
        out["pos.weight"] = (c["context"], D)
    bias = c.get("bias", False)

    def linear(name, n, m):
        out[name + ".weight"] = (m, n)
        if bias:
            out[name + ".bias"] = (m,)

    def norm(name):
        out[name + ".weight"] = (D,)
        if bias:
            out[name + ".bias"] = (D,)

    for i in range(c["layers"]):
        b = f"blocks.{i}"
        norm(b + ".norm1")
        linear(b + ".attn.qkv", D, head_dim * (c["heads"] + 2 * kv))
        linear(b + ".attn.out", D, D)
        norm(b + ".norm2")
        if c["family"] == "gpt":
            linear(b + ".ffn.up", D, c["ffn"])
            linear(b + ".ffn.down", c["ffn"], D)
        elif c["family"] == "llama" or i < c.get("dense_layers", 0):
            hidden = c["ffn"] if c["family"] == "llama" else c["dense_ffn"]
            for part in ("gate", "up"):
                linear(f"{b}.ffn.{part}", D, hidden)
            linear(b + ".ffn.down", hidden, D)
        else:
            E, H = c["experts"], c["ffn"]
            linear(b + ".moe.router", D, E)
            out[b + ".moe.w1"] = out[b + ".moe.w3"] = (E, D, H)
            out[b + ".moe.w2"] = (E, H, D)
            if c.get("bias_rate", 0) > 0:
                out[b + ".moe.balance"] = (E,)
            if c.get("shared_ffn", 0):
                for part in ("gate", "up"):
                    linear(f"{b}.moe.shared.{part}", D, c["shared_ffn"])
                linear(b + ".moe.shared.down", c["shared_ffn"], D)
    norm("norm")
    if not c["tied"]:
        out["head.weight"] = (V, D)
    return out


def initial(name, shape):
    if name.endswith("balance"):
        return torch.randn(shape) * 0.1
    if "norm" in name:
        return torch.randn(shape) * 0.2 + (1 if name.endswith("weight") else 0)
    return torch.randn(shape) * (0.7 if "router" in name else 0.25)


class Reference:
    def __init__(self, config, params):
        self.c, self.p, self.margin = config, params, float("inf")

    def linear(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def norm(self, name, x):
        w, eps = self.p[name + ".weight"], self.c["norm_eps"]
        if self.c["family"] != "gpt" or self.c["rms_norm"]:
            return F.rms_norm(x, w.shape, w, eps)
        return F.layer_norm(x, w.shape, w, self.p.get(name + ".bias"), eps)

    def rotate(self, x):  # [B, H, T, D], pairs (i, i + D/2)
        c, T, D = self.c, x.shape[2], x.shape[3]
        freq = c["rope_theta"] ** (-torch.arange(0, D, 2, dtype=torch.float64) / D)
        if c.get("rope_factor", 1) != 1:
            low, high = c["rope_low_freq_factor"], c["rope_high_freq_factor"]
            turns = c["rope_original_context"] * freq / (2 * torch.pi)
            keep = ((turns - low) / (high - low)).clamp(0, 1)
            freq = keep * freq + (1 - keep) * freq / c["rope_factor"]
        angle = torch.arange(T, dtype=torch.float64)[:, None] * freq
        cos, sin = angle.cos(), angle.sin()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attention(self, name, x):
        c = self.c
        B, T, D = x.shape
        H, G = c["heads"], c.get("kv_heads", c["heads"])
        R, d = H // G, D // H
        qkv = self.linear(name + ".qkv", x).view(B, T, G, R + 2, d)
        q = qkv[:, :, :, :R].reshape(B, T, H, d).transpose(1, 2)
        k, v = qkv[:, :, :, R].transpose(1, 2), qkv[:, :, :, R + 1].transpose(1, 2)
        if c["family"] == "llama" or c.get("rope", False):
            q, k = self.rotate(q), self.rotate(k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.linear(name + ".out", y.transpose(1, 2).reshape(B, T, D))

    def swiglu(self, name, x):
        return self.linear(name + ".down", F.silu(self.linear(name + ".gate", x)) * self.linear(name + ".up", x))

    def moe(self, name, x):
        """Returns y and the auxiliary losses; experts one after another, each on the tokens that chose it."""
        c, p = self.c, self.p
        E, K = c["experts"], c["top_k"]
        flat = x.reshape(-1, x.shape[-1])
        logits = self.linear(name + ".router", flat)
        scores = logits.softmax(-1) if c["score"] == "softmax" else logits.sigmoid()
        choice = scores + p[name + ".balance"] if name + ".balance" in p else scores
        best = choice.topk(K + 1, -1)
        self.margin = min(self.margin, (best.values[:, :-1] - best.values[:, 1:]).min().item())
        idx = best.indices[:, :K]
        w = scores.gather(-1, idx)
        if c["normalize"]:
            w = w / w.sum(-1, keepdim=True)
        w = w * c.get("route_scale", 1)
        y = torch.zeros_like(flat)
        for e in range(E):
            tok, slot = torch.where(idx == e)
            h = flat[tok]
            h = (F.silu(h @ p[name + ".w1"][e]) * (h @ p[name + ".w3"][e])) @ p[name + ".w2"][e]
            y = y.index_add(0, tok, h * w[tok, slot, None])
        if name + ".shared.up.weight" in p:
            y = y + self.swiglu(name + ".shared", flat)
        probs = scores / scores.sum(-1, keepdim=True)
        share = F.one_hot(idx, E).to(probs.dtype).mean((0, 1))
        z_loss = c.get("z_loss", 0) * logits.logsumexp(-1).square().mean()
        aux = c["aux_loss"] * E * (share * probs.mean(0)).sum() + z_loss
        return y.view_as(x), aux

    def step(self, tokens, targets):
        c, p = self.c, self.p
        x = p["tok.weight"][tokens]
        if "pos.weight" in p:
            x = x + p["pos.weight"][: tokens.shape[1]]
        aux = 0
        for i in range(c["layers"]):
            b = f"blocks.{i}"
            x = x + self.attention(b + ".attn", self.norm(b + ".norm1", x))
            n = self.norm(b + ".norm2", x)
            if c["family"] == "gpt":
                x = x + self.linear(b + ".ffn.down", F.gelu(self.linear(b + ".ffn.up", n), approximate="tanh"))
            elif b + ".ffn.gate.weight" in p:
                x = x + self.swiglu(b + ".ffn", n)
            else:
                y, a = self.moe(b + ".moe", n)
                x, aux = x + y, aux + a
        x = self.norm("norm", x)
        logits = F.linear(x, p["tok.weight"] if c["tied"] else p["head.weight"])
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + aux


def make(name, config, seed, folder):
    torch.manual_seed(seed)
    start = {k: initial(k, s) for k, s in shapes(config).items()}
    tokens = torch.randint(0, config["vocab"], (BATCH, TIME))
    targets = torch.randint(0, config["vocab"], (BATCH, TIME))
    params = {k: v.double().requires_grad_(not k.endswith("balance")) for k, v in start.items()}
    reference = Reference(config, params)
    logits, loss = reference.step(tokens, targets)
    if reference.margin <= 2e-3:
        return False  # a choice of experts too close to call in f32: take another seed
    loss.backward()
    trained = {k: v for k, v in params.items() if v.requires_grad}
    out = {"tokens": tokens, "targets": targets, "logits": logits.detach(), "loss": loss.detach()}
    for k, v in start.items():
        out["param." + k] = v
    for k, v in trained.items():
        assert v.grad.abs().max() > 0, f"{name}: {k} has no gradient"
        out["grad." + k] = v.grad.clone()
    torch.optim.AdamW(trained.values(), lr=LR, eps=EPS, betas=BETAS, weight_decay=WEIGHT_DECAY).step()
    for k, v in trained.items():
        out["step." + k] = v.detach()
    out = {k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in out.items()}
    text = {k: str(v).lower() if isinstance(v, bool) else repr(v).strip("'") for k, v in config.items()}
    text |= {"lr": repr(LR), "eps": repr(EPS), "beta1": repr(BETAS[0]), "beta2": repr(BETAS[1]),
             "weight_decay": repr(WEIGHT_DECAY)}
    save_file(out, os.path.join(folder, name + ".safetensors"),
              {"torch": torch.__version__.split("+")[0], **{"fixture." + k: v for k, v in text.items()}})
    print(f"{name}: loss {loss.item():.6f}, router margin {reference.margin:.2e}, seed {seed}")
    return True


if __name__ == "__main__":
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
    os.makedirs(folder, exist_ok=True)
    for fixture, fields in FIXTURES.items():
        assert any(make(fixture, fields, seed, folder) for seed in range(100))
