#include "models/weights/families/decoder.h"

namespace weft::weights {

// A model_type with experts in each layer. The fixed fields switch off the parts that only Weft trains: capacities, the
// z-loss and the balancing bias.
static Kind kind(const char* model_type, Fields fields, Fixed fixed, Kind more = {}) {
  more.refused = {{"decoder_sparse_step", "1", true},
                  {"moe_layer_freq", "1", true},
                  {"mlp_only_layers", "[]", true},
                  {"attention_bias", "false", true}};
  return decoder_kind(model_type,
                      joined(std::move(fields), {{"num_experts_per_tok", "top_k", nullptr, "expert_used_count"}}),
                      joined(std::move(fixed), {{"rope", "true"},
                                                {"score", "softmax"},
                                                {"route_scale", "1"},
                                                {"capacity_factor", "0"},
                                                {"z_loss", "0"},
                                                {"bias_rate", "0"},
                                                {"route", "learned"}}),
                      std::move(more));
}

// Weft's one shared expert is as wide as all shared experts of the file.
static void finish_deepseek(const ConfigFile&, nn::ConfigMap& config) {
  config["shared_ffn"] = io::text_of(number(config, "shared_ffn") * number(config, "ffn"));
}

const Family& moe_family() {
  static const Fixed no_shared{{"shared_ffn", "0"}}, all_experts{{"dense_layers", "0"}, {"dense_ffn", "0"}};
  static const Field aux{"router_aux_loss_coef", "aux_loss", "0.001"};
  static const auto* family = new Family{
      .program = "moe",
      .kinds =
          {kind("mixtral",
                joined(decoder_fields({.eps = "1e-5"}), {{"num_local_experts", "experts", nullptr, "expert_count"},
                                                         {"intermediate_size", "ffn", nullptr, "feed_forward_length"},
                                                         aux}),
                joined(joined(no_shared, all_experts),
                       {{"qkv_bias", "false"}, {"qk_norm", "false"}, {"normalize", "true"}}),
                {.rope_theta = 1000000, .model_class = "MixtralForCausalLM", .gguf = "llama", .gguf_permuted = true}),
           kind("qwen3_moe",
                joined(decoder_fields(), {{"num_experts|num_local_experts", "experts", nullptr, "expert_count"},
                                          {"moe_intermediate_size", "ffn", nullptr, "expert_feed_forward_length"},
                                          {"norm_topk_prob", "normalize", "false"},
                                          aux}),
                joined(joined(no_shared, all_experts), {{"qkv_bias", "false"}, {"qk_norm", "true"}}),
                {.model_class = "Qwen3MoeForCausalLM", .gguf = "qwen3moe"}),
           kind("qwen2_moe",
                joined(decoder_fields(), {{"num_experts", "experts"},
                                          {"moe_intermediate_size", "ffn"},
                                          {"shared_expert_intermediate_size", "shared_ffn"},
                                          {"norm_topk_prob", "normalize", "false"},
                                          aux}),
                joined(all_experts, {{"qkv_bias", "true"}, {"qk_norm", "false"}}), {.plan_only = true}),
           kind("deepseek",
                joined(decoder_fields(), {{"n_routed_experts", "experts"},
                                          {"moe_intermediate_size", "ffn"},
                                          {"n_shared_experts", "shared_ffn", "0"},
                                          {"first_k_dense_replace", "dense_layers", "0"},
                                          {"intermediate_size", "dense_ffn"},
                                          {"norm_topk_prob", "normalize", "false"},
                                          {"aux_loss_alpha", "aux_loss", "0.001"}}),
                {{"qkv_bias", "false"}, {"qk_norm", "false"}}, {.finish = finish_deepseek, .plan_only = true})},
      .rows = joined(
          decoder_rows(),
          {{"blocks.{}.moe.router.weight", "layers.{}.mlp.gate.weight", Layout::kSame, "blk.{}.ffn_gate_inp.weight",
            "qwen3_moe"},
           {"blocks.{}.moe.router.weight", "layers.{}.block_sparse_moe.gate.weight", Layout::kSame, nullptr, "mixtral"},
           {"blocks.{}.moe.w1", "layers.{}.mlp.experts.{e}.gate_proj.weight", Layout::kExpert, nullptr, "qwen3_moe"},
           {"blocks.{}.moe.w3", "layers.{}.mlp.experts.{e}.up_proj.weight", Layout::kExpert, nullptr, "qwen3_moe"},
           {"blocks.{}.moe.w2", "layers.{}.mlp.experts.{e}.down_proj.weight", Layout::kExpert, nullptr, "qwen3_moe"},
           {"blocks.{}.moe.w1", "layers.{}.{block_sparse_moe|mlp}.experts.{e}.w1.weight", Layout::kExpert, nullptr,
            "mixtral"},
           {"blocks.{}.moe.w3", "layers.{}.{block_sparse_moe|mlp}.experts.{e}.w3.weight", Layout::kExpert, nullptr,
            "mixtral"},
           {"blocks.{}.moe.w2", "layers.{}.{block_sparse_moe|mlp}.experts.{e}.w2.weight", Layout::kExpert, nullptr,
            "mixtral"},
           {"blocks.{}.moe.w1", "layers.{}.{mlp|block_sparse_moe}.experts.gate_up_proj", Layout::kExpertsGate,
            "blk.{}.ffn_gate_exps.weight", ""},
           {"blocks.{}.moe.w3", "layers.{}.{mlp|block_sparse_moe}.experts.gate_up_proj", Layout::kExpertsUp,
            "blk.{}.ffn_up_exps.weight", ""},
           {"blocks.{}.moe.w2", "layers.{}.{mlp|block_sparse_moe}.experts.down_proj", Layout::kExperts,
            "blk.{}.ffn_down_exps.weight", ""}}),
      .ignored = decoder_ignored(),
      .training = {{"", "capacity_factor"}, {"", "z_loss"}},
  };
  return *family;
}

}  // namespace weft::weights
