#!/usr/bin/env python3
"""Writes tiny models of transformers: fixtures/NAME/{config.json,model*.safetensors,expected.safetensors}.

Run it by hand, with torch, transformers and safetensors installed:  python models/testing/hf/make_hf.py
Every parameter is random, biases and norms too, because their initial values of 0 and 1 hide a dropped bias or norm.
`expected` has tokens, logits, gradients (under the names of the weights) and the losses of ten steps of AdamW, computed
in f64 from the stored weights.
"""
import json
import os
import shutil

import torch
import transformers as t
from safetensors.torch import load_file, save_file

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
BATCH, TIME = 2, 12
LR, EPS, BETAS, WEIGHT_DECAY = 1e-3, 1e-5, (0.9, 0.95), 0.1
SIZES = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5)
GPT2 = dict(vocab_size=40, n_embd=16, n_layer=2, n_head=4, n_positions=32, attn_pdrop=0.0, embd_pdrop=0.0,
            resid_pdrop=0.0)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=2.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8)
EXPERTS = dict(num_experts_per_tok=2, router_aux_loss_coef=0.0)


def old_rope(config):
    """The form of transformers 4: rope_theta and rope_scaling."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    if rope["rope_type"] != "default":
        config["rope_scaling"] = rope


def fused(config, weights):
    """The form of transformers 5 in memory: the weights of all experts in one tensor."""
    for i in range(config["num_hidden_layers"]):
        expert = lambda e, w: weights.pop(f"model.layers.{i}.block_sparse_moe.experts.{e}.{w}.weight")
        count = range(config["num_local_experts"])
        parts = [(torch.cat([expert(e, "w1"), expert(e, "w3")]), expert(e, "w2")) for e in count]
        weights[f"model.layers.{i}.mlp.experts.gate_up_proj"] = torch.stack([p[0] for p in parts])
        weights[f"model.layers.{i}.mlp.experts.down_proj"] = torch.stack([p[1] for p in parts])
        weights[f"model.layers.{i}.mlp.gate.weight"] = weights.pop(f"model.layers.{i}.block_sparse_moe.gate.weight")


def no_prefix(config, weights):
    for name in list(weights):
        weights[name.replace("transformer.", "")] = weights.pop(name)


def old_buffers(config, weights):
    for i in range(config["n_layer"]):
        weights[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 32, 32).tril()
        weights[f"transformer.h.{i}.attn.masked_bias"] = torch.tensor(-1e4)


def head_beside(config, weights):
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()


# name -> (configuration, changes of its file, changes of its weights, dtype, number of files)
MODELS = {
    "gpt2": (t.GPT2Config(**GPT2), None, old_buffers, torch.float32, 1),
    "gpt2_no_prefix": (t.GPT2Config(**GPT2, tie_word_embeddings=False, n_inner=40), None, no_prefix, torch.float32, 1),
    "llama3": (t.LlamaConfig(**SIZES, rope_parameters=LLAMA3), None, None, torch.float32, 1),
    "llama_yarn_old": (t.LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=YARN), old_rope, head_beside,
                       torch.float32, 3),
    "llama_bf16": (t.LlamaConfig(**SIZES, attention_bias=True, rope_parameters=LINEAR), None, None, torch.bfloat16, 1),
    "mistral": (t.MistralConfig(**SIZES, head_dim=8, sliding_window=None), old_rope, None, torch.float32, 1),
    "smollm3": (t.SmolLM3Config(**SIZES | dict(num_hidden_layers=4), no_rope_layer_interval=2, pad_token_id=None),
                None, None, torch.float32, 1),
    "qwen2": (t.Qwen2Config(**SIZES), None, None, torch.float32, 1),
    "qwen3": (t.Qwen3Config(**SIZES, head_dim=8), None, None, torch.float32, 1),
    "mixtral": (t.MixtralConfig(**SIZES, **EXPERTS, num_local_experts=4), None, None, torch.float32, 1),
    "mixtral_fused": (t.MixtralConfig(**SIZES, **EXPERTS, num_local_experts=3), None, fused, torch.float32, 1),
    "qwen3_moe": (t.Qwen3MoeConfig(**SIZES, **EXPERTS, head_dim=8, num_experts=4, moe_intermediate_size=24,
                                   norm_topk_prob=False), None, None, torch.float32, 1),
}


def randomise(model, generator):
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(generator=generator)
            p.mul_(0.15)
            if "norm" in name or "ln_" in name:
                p.add_(0.0 if name.endswith("bias") else 1.0)


def write_json(value, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)


def as_saved(model, folder):
    """The weights under the names that transformers writes."""
    model.save_pretrained(folder)
    return load_file(os.path.join(folder, "model.safetensors"))


def make(name, seed):
    config, change_config, change_weights, dtype, files = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    folder = os.path.join(FOLDER, name)
    shutil.rmtree(folder, ignore_errors=True)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    model = t.AutoModelForCausalLM.from_config(config).to(dtype)
    randomise(model, generator)
    weights = as_saved(model, folder)
    model = model.double().eval()
    tokens = torch.randint(0, 40, (BATCH, TIME), generator=generator)
    targets = torch.randint(0, 40, (BATCH, TIME), generator=generator)

    def loss_of(logits):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    with torch.no_grad():
        for router in getattr(model(tokens, output_router_logits=True), "router_logits", None) or ():
            best = router.sort(descending=True).values
            assert (best[:, 1] - best[:, 2]).min() > 1e-3, "the choice of experts hangs on rounding"
    logits = model(tokens).logits
    loss = loss_of(logits)
    loss.backward()
    expected = dict(tokens=tokens, targets=targets, logits=logits.detach().float(), loss=loss.detach().float())
    # A model whose weights are the gradients gives them the names of the weights.
    holder = t.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for p, g in zip(holder.parameters(), model.parameters()):
            p.copy_(g.grad)
            assert g.grad.abs().max() > 0
    grads = as_saved(holder, os.path.join(folder, "grads"))
    shutil.rmtree(os.path.join(folder, "grads"))
    opt = torch.optim.AdamW(model.parameters(), lr=LR, eps=EPS, betas=BETAS, weight_decay=WEIGHT_DECAY)
    losses = []
    for _ in range(10):
        opt.zero_grad()
        loss = loss_of(model(tokens).logits)
        losses.append(loss.item())
        loss.backward()
        opt.step()
    expected["losses"] = torch.tensor(losses, dtype=torch.float64)

    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        saved = json.load(file)
    if change_config:
        change_config(saved)
    saved = {k: v for k, v in saved.items() if k not in ("id2label", "label2id", "task_specific_params")}
    write_json(saved, path)
    if change_weights:
        change_weights(saved, weights)
        if change_weights is not old_buffers and change_weights is not head_beside:
            change_weights(saved, grads)
    os.remove(os.path.join(folder, "model.safetensors"))
    generation = os.path.join(folder, "generation_config.json")
    if os.path.exists(generation):
        os.remove(generation)
    names = sorted(weights)
    where = {}
    for i in range(files):
        file = "model.safetensors" if files == 1 else f"model-{i + 1:05}-of-{files:05}.safetensors"
        part = {n: weights[n].contiguous() for n in names[i::files]}
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
        where |= {n: file for n in part}
    if files > 1:
        write_json(dict(metadata={}, weight_map=where), os.path.join(folder, "model.safetensors.index.json"))
    expected |= {"grad." + n: g.float().contiguous() for n, g in grads.items()}
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(name, "loss", losses[0], "->", losses[-1], size, "bytes")


if __name__ == "__main__":
    for i, name in enumerate(MODELS):
        make(name, 100 + i)
