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
          .fields = {{"vocab_size", "vocab", nullptr, "vocab_size"},
                     {"n_positions", "context", nullptr, "context_length"},
                     {"n_layer", "layers", nullptr, "block_count"},
                     {"n_head", "heads", nullptr, "attention.head_count"},
                     {"n_embd", "dim", nullptr, "embedding_length"},
                     {"n_inner", "ffn", "", "feed_forward_length"},
                     {"tie_word_embeddings", "tied", "true"},
                     {"layer_norm_epsilon", "norm_eps", "1e-5", "attention.layer_norm_epsilon"}},
          .fixed = {{"rms_norm", "false"}, {"bias", "true"}, {"dropout", "0"}},
          .refused = {{"activation_function", "gelu_new|gelu_pytorch_tanh"},
                      {"scale_attn_weights", "true"},
                      {"scale_attn_by_inverse_layer_idx", "false"},
                      {"reorder_and_upcast_attn", "false"},
                      {"add_cross_attention", "false"}},
          .finish = finish,
          .model_class = "GPT2LMHeadModel",
          .gguf = "gpt2",
      }},
      .rows = {{"tok.weight", "wte.weight", Layout::kSame, "token_embd.weight"},
               {"pos.weight", "wpe.weight", Layout::kSame, "position_embd.weight"},
               {"blocks.{}.norm1.weight", "h.{}.ln_1.weight", Layout::kSame, "blk.{}.attn_norm.weight"},
               {"blocks.{}.norm1.bias", "h.{}.ln_1.bias", Layout::kSame, "blk.{}.attn_norm.bias"},
               {"blocks.{}.attn.qkv.weight", "h.{}.attn.c_attn.weight", Layout::kQkvTransposed,
                "blk.{}.attn_qkv.weight"},
               {"blocks.{}.attn.qkv.bias", "h.{}.attn.c_attn.bias", Layout::kQkv, "blk.{}.attn_qkv.bias"},
               {"blocks.{}.attn.out.weight", "h.{}.attn.c_proj.weight", Layout::kTransposed,
                "blk.{}.attn_output.weight"},
               {"blocks.{}.attn.out.bias", "h.{}.attn.c_proj.bias", Layout::kSame, "blk.{}.attn_output.bias"},
               {"blocks.{}.norm2.weight", "h.{}.ln_2.weight", Layout::kSame, "blk.{}.ffn_norm.weight"},
               {"blocks.{}.norm2.bias", "h.{}.ln_2.bias", Layout::kSame, "blk.{}.ffn_norm.bias"},
               {"blocks.{}.ffn.up.weight", "h.{}.mlp.c_fc.weight", Layout::kTransposed, "blk.{}.ffn_up.weight"},
               {"blocks.{}.ffn.up.bias", "h.{}.mlp.c_fc.bias", Layout::kSame, "blk.{}.ffn_up.bias"},
               {"blocks.{}.ffn.down.weight", "h.{}.mlp.c_proj.weight", Layout::kTransposed, "blk.{}.ffn_down.weight"},
               {"blocks.{}.ffn.down.bias", "h.{}.mlp.c_proj.bias", Layout::kSame, "blk.{}.ffn_down.bias"},
               {"norm.weight", "ln_f.weight", Layout::kSame, "output_norm.weight"},
               {"norm.bias", "ln_f.bias", Layout::kSame, "output_norm.bias"},
               {"head.weight", "lm_head.weight", Layout::kSame, "output.weight"}},
      .ignored = {"h.{}.attn.bias", "h.{}.attn.masked_bias"},
      .training = {{"embd_pdrop|resid_pdrop", "dropout"}},
      .prefix = "transformer.",
  };
  return *family;
}

}  // namespace weft::weights
