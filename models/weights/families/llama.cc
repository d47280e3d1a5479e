#include "models/weights/families/decoder.h"

namespace weft::weights {

static Kind kind(const char* model_type, Fields fields, Fixed fixed, Kind more = {}) {
  fields.push_back({"intermediate_size", "ffn", nullptr, "feed_forward_length"});
  return decoder_kind(model_type, std::move(fields), std::move(fixed), std::move(more));
}

// A list of the layers with rotary positions: each n-th has none.
static void finish_smollm3(const ConfigFile& file, nn::ConfigMap& config) {
  const int64_t layers = number(config, "layers");
  const std::vector<int64_t> has_rope = file.integers("no_rope_layers");
  if (has_rope.empty()) return;
  int64_t every = 0;
  while (every < std::ssize(has_rope) && has_rope[static_cast<size_t>(every)]) ++every;
  every = every == std::ssize(has_rope) ? 0 : every + 1;
  bool fits = std::ssize(has_rope) == layers;
  for (int64_t i = 0; i < std::ssize(has_rope); ++i)
    fits &= (has_rope[static_cast<size_t>(i)] != 0) == (every == 0 || (i + 1) % every != 0);
  WEFT_CHECK(fits, file.what(), ": field 'no_rope_layers' is not ", layers,
             " numbers with a 0 at each n-th; need such a list");
  config["no_rope_every"] = io::text_of(every);
}

// LlamaForCausalLM and models that differ from it in a few fields.
const Family& llama_family() {
  static const Fixed plain{{"qkv_bias", "false"}, {"qk_norm", "false"}, {"no_rope_every", "0"}};
  static const Fields biases{{"attention_bias", "attn_bias", "false"}};
  static const Fixed no_biases{{"attn_bias", "false"}};
  static const auto* family = new Family{
      .program = "llama",
      .kinds = {kind("llama", joined(decoder_fields(), biases), plain,
                     {.model_class = "LlamaForCausalLM", .gguf = "llama", .gguf_permuted = true}),
                kind("mistral", decoder_fields(), joined(plain, no_biases), {.sliding_window = 4096}),
                kind("smollm3",
                     joined(joined(decoder_fields({.tied = "true"}), biases),
                            {{"no_rope_layer_interval", "no_rope_every", "4"}}),
                     {{"qkv_bias", "false"}, {"qk_norm", "false"}},
                     {.rope_theta = 2000000,
                      .finish = finish_smollm3,
                      .model_class = "SmolLM3ForCausalLM",
                      .gguf = "smollm3",
                      .gguf_permuted = true}),
                kind("qwen2", decoder_fields(),
                     {{"attn_bias", "false"}, {"qkv_bias", "true"}, {"qk_norm", "false"}, {"no_rope_every", "0"}},
                     {.model_class = "Qwen2ForCausalLM", .gguf = "qwen2"}),
                kind("qwen3", decoder_fields({.head_dim = "128"}),
                     {{"attn_bias", "false"}, {"qkv_bias", "false"}, {"qk_norm", "true"}, {"no_rope_every", "0"}},
                     {.refused = {{"attention_bias", "false"}}, .model_class = "Qwen3ForCausalLM", .gguf = "qwen3"}),
                kind("gemma", decoder_fields({.tied = "true"}), joined(plain, no_biases), {.plan_only = true})},
      .rows = joined(
          decoder_rows(),
          {{"blocks.{}.ffn.gate.weight", "layers.{}.mlp.gate_proj.weight", Layout::kSame, "blk.{}.ffn_gate.weight"},
           {"blocks.{}.ffn.up.weight", "layers.{}.mlp.up_proj.weight", Layout::kSame, "blk.{}.ffn_up.weight"},
           {"blocks.{}.ffn.down.weight", "layers.{}.mlp.down_proj.weight", Layout::kSame, "blk.{}.ffn_down.weight"}}),
      .ignored = decoder_ignored(),
  };
  return *family;
}

}  // namespace weft::weights
