// Damaged GGUF files of models: the configuration and all weights are read, or refused with one line.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/testing/fuzz.h"
#include "models/weights/gguf.h"

namespace weft::weights {
namespace {

std::string seed_file(const std::string& arch, const io::GgufMetadata& more) {
  const std::string path = ::testing::TempDir() + "/fuzz_model.gguf";
  // Factors of llama3 for an original context of 16: one between its limits, and the whole factor.
  const double smooth = (16 / (2 * M_PI) - 1) / 3;
  const float x[64] = {static_cast<float>(1 / ((1 - smooth) / 8 + smooth)), 8};
  const auto data = std::as_bytes(std::span(x));
  const io::GgufData tensors[] = {{"token_embd.weight", io::kGgufF32, {4, 16}, data},
                                  {"blk.0.attn_q.weight", io::kGgufQ8_0, {2, 32}, data.first(68)},
                                  {"rope_freqs.weight", io::kGgufF32, {2}, data.first(8)}};
  io::GgufMetadata m{{"general.architecture", arch},
                     {arch + ".context_length", uint32_t{32}},
                     {arch + ".embedding_length", uint32_t{16}},
                     {arch + ".block_count", uint32_t{2}},
                     {arch + ".feed_forward_length", uint32_t{24}},
                     {arch + ".attention.head_count", uint32_t{4}},
                     {arch + ".attention.head_count_kv", uint32_t{2}},
                     {arch + ".attention.layer_norm_rms_epsilon", 1e-5f},
                     {arch + ".rope.freq_base", 10000.0f},
                     {arch + ".rope.dimension_count", uint32_t{4}}};
  m.insert(m.end(), more.begin(), more.end());
  io::write_gguf(path, m, tensors);
  return io::read_file(path);
}

TEST(GgufModelFuzz, DamagedFiles) {
  weft::testing::FuzzFile file(::testing::TempDir() + "/fuzz_model_damaged.gguf");
  const std::string llama = seed_file("llama", {}),
                    moe = seed_file("llama",
                                    {{"llama.expert_count", uint32_t{4}}, {"llama.expert_used_count", uint32_t{2}}}),
                    yarn = seed_file("qwen3", {{"qwen3.rope.scaling.type", std::string("none")},
                                               {"qwen3.rope.scaling.factor", 4.0f},
                                               {"qwen3.attention.key_length", uint32_t{4}}});
  weft::testing::fuzz({.seeds = {llama, moe, yarn},
                       .damage = weft::testing::damage_bytes,
                       .read =
                           [&](const std::string& s) {
                             file.set(s);
                             const io::GgufFile gguf(file.path());
                             const HfConfig config = read_gguf_config(gguf);
                             EXPECT_TRUE(config.family && config.kind);
                             const auto source = gguf_source(gguf);
                             std::vector<std::byte> room;
                             for (const std::string& name : source->names())
                               source->read(name, 0, source->find(name)->shape.numel(), room);
                           },
                       .names = file.path(),
                       .inputs = 10000});
}

}  // namespace
}  // namespace weft::weights
