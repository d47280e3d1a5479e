#!/usr/bin/env python3
"""Writes framework/io/testdata/formats.gguf: blocks of each format that Weft reads, with the values that the package
`gguf` of llama.cpp computes, and metadata of each type. And fixtures/NAME/model.gguf for some models of make_hf.py, by
the rules of llama.cpp's convert_hf_to_gguf.py.

Run it by hand, with gguf, numpy, torch and safetensors installed:  python models/testing/hf/make_gguf.py
"""
import json
import math
import os

import gguf
import numpy as np
from gguf import quants
from safetensors.torch import load_file

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fixtures")
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


def permute(w, heads):
    """The rows of each head in the order of rotary pairs, as convert_hf_to_gguf.py orders them."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def llama3_factors(rope, head_dim):
    freqs = 1.0 / (rope["rope_theta"] ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim))
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for f in freqs:
        length = 2 * math.pi / f
        if length < high:
            factors.append(1)
        elif length > low:
            factors.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"])
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


# model -> architecture, and whether q and k are permuted
CONVERTED = {"gpt2": ("gpt2", False), "llama3": ("llama", True), "llama_bf16": ("llama", True),
             "mixtral": ("llama", True), "qwen3_moe": ("qwen3moe", False)}


def convert(name):
    arch, permuted = CONVERTED[name]
    folder = os.path.join(MODELS, name)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        c = json.load(file)
    weights = load_file(os.path.join(folder, "model.safetensors"))
    get = lambda *names: next((c[n] for n in names if c.get(n) is not None), None)
    layers, heads, dim = get("n_layer", "num_hidden_layers"), get("n_head", "num_attention_heads"), get(
        "n_embd", "hidden_size")
    kv_heads = get("num_key_value_heads") or heads
    head_dim = get("head_dim") or dim // heads
    w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), arch)
    w.add_context_length(get("n_positions", "max_position_embeddings"))
    w.add_embedding_length(dim)
    w.add_block_count(layers)
    w.add_feed_forward_length(get("intermediate_size", "n_inner") or 4 * dim)
    w.add_head_count(heads)
    if arch == "gpt2":
        w.add_layer_norm_eps(c["layer_norm_epsilon"])
    else:
        w.add_head_count_kv(kv_heads)
        w.add_layer_norm_rms_eps(c["rms_norm_eps"])
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
        w.add_rope_dimension_count(head_dim)
        rope = c["rope_parameters"]
        w.add_rope_freq_base(rope["rope_theta"])
        if rope["rope_type"] == "linear":
            w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            w.add_rope_scaling_factor(rope["factor"])
        if rope["rope_type"] == "llama3":
            w.add_tensor("rope_freqs.weight", llama3_factors(rope, head_dim))
    if experts := get("num_local_experts", "num_experts"):
        w.add_expert_count(experts)
        w.add_expert_used_count(c["num_experts_per_tok"])
    if get("moe_intermediate_size"):
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch], layers)
    merged = {}
    for key in sorted(weights):
        data = weights[key].float().numpy()
        if key.endswith((".attn.bias", ".attn.masked_bias")):
            continue
        if arch == "gpt2" and key.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            data = data.T
        if permuted and ".q_proj." in key:
            data = permute(data, heads)
        if permuted and ".k_proj." in key:
            data = permute(data, kv_heads)
        if ".experts." in key:
            before, after = key.split(".experts.")
            number, part = after.split(".", 1)
            merged.setdefault(f"{before}.experts.{part}", []).append((int(number), data))
            continue
        w.add_tensor(names.get_name(key, try_suffixes=(".weight", ".bias")), np.ascontiguousarray(data))
    for key, parts in sorted(merged.items()):
        data = np.stack([p for _, p in sorted(parts, key=lambda p: p[0])])
        w.add_tensor(names.get_name(key, try_suffixes=(".weight",)), data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    for name in CONVERTED:
        convert(name)
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
