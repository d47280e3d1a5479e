#include "models/weights/config.h"

namespace weft::weights {

static void finish(const ConfigFile&, nn::ConfigMap& config) {
  if (config["ffn"].empty()) config["ffn"] = io::text_of(4 * number(config, "dim"));
}

// GPT2LMHeadModel. Its linear layers are Conv1D: [in, out].
const Family& gpt2_family() {
  static const auto* family = new Family{
      .program = "gpt",
      .kinds = {{
          .model_type = "gpt2",
          .fields = {{"vocab_size", "vocab"},
                     {"n_positions", "context"},
                     {"n_layer", "layers"},
                     {"n_head", "heads"},
                     {"n_embd", "dim"},
                     {"n_inner", "ffn", ""},
                     {"tie_word_embeddings", "tied", "true"},
                     {"layer_norm_epsilon", "norm_eps", "1e-5"}},
          .fixed = {{"rms_norm", "false"}, {"bias", "true"}, {"dropout", "0"}},
          .refused = {{"activation_function", "gelu_new|gelu_pytorch_tanh"},
                      {"scale_attn_weights", "true"},
                      {"scale_attn_by_inverse_layer_idx", "false"},
                      {"reorder_and_upcast_attn", "false"},
                      {"add_cross_attention", "false"}},
          .finish = finish,
      }},
      .rows = {{"tok.weight", "wte.weight"},
               {"pos.weight", "wpe.weight"},
               {"blocks.{}.norm1.weight", "h.{}.ln_1.weight"},
               {"blocks.{}.norm1.bias", "h.{}.ln_1.bias"},
               {"blocks.{}.attn.qkv.weight", "h.{}.attn.c_attn.weight", Layout::kQkvTransposed},
               {"blocks.{}.attn.qkv.bias", "h.{}.attn.c_attn.bias", Layout::kQkvBias},
               {"blocks.{}.attn.out.weight", "h.{}.attn.c_proj.weight", Layout::kTransposed},
               {"blocks.{}.attn.out.bias", "h.{}.attn.c_proj.bias"},
               {"blocks.{}.norm2.weight", "h.{}.ln_2.weight"},
               {"blocks.{}.norm2.bias", "h.{}.ln_2.bias"},
               {"blocks.{}.ffn.up.weight", "h.{}.mlp.c_fc.weight", Layout::kTransposed},
               {"blocks.{}.ffn.up.bias", "h.{}.mlp.c_fc.bias"},
               {"blocks.{}.ffn.down.weight", "h.{}.mlp.c_proj.weight", Layout::kTransposed},
               {"blocks.{}.ffn.down.bias", "h.{}.mlp.c_proj.bias"},
               {"norm.weight", "ln_f.weight"},
               {"norm.bias", "ln_f.bias"},
               {"head.weight", "lm_head.weight"}},
      .ignored = {"h.{}.attn.bias", "h.{}.attn.masked_bias"},
  };
  return *family;
}

}  // namespace weft::weights
