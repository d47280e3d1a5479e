// Every configuration builds without memory, has the published number of parameters, and survives the text form.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "models/gpt/config.h"
#include "models/hf/families.h"
#include "models/moe/config.h"

namespace weft {
namespace {

std::unique_ptr<nn::LanguageModel> make(const nn::ModelFamily& family, const std::string& preset) {
  return family.make(family.preset(preset));
}

struct Published {
  const char *family, *preset;
  int64_t parameters;
};

TEST(Presets, HaveThePublishedSizes) {
  const Published table[] = {
      {"gpt", "gpt2", 124439808},
      {"gpt", "gpt2-medium", 354823168},
      {"gpt", "gpt2-large", 774030080},
      {"gpt", "gpt2-xl", 1557611200},
      {"llama", "llama-8b", 8030261248},
      {"llama", "llama-70b", 70553706496},
      {"llama", "llama-405b", 405853388800},
      {"llama", "llama-1b", 1235814400},
      {"llama", "llama-3b", 3212749824},
      {"llama", "llama2-7b", 6738415616},
      {"llama", "mistral-7b", 7241732096},
      {"llama", "tinyllama-1.1b", 1100048384},
      {"llama", "smollm2-135m", 134515008},
      {"llama", "qwen-32b", 32763876352},
      {"moe", "mixtral-8x7b", 46702792704},
      {"moe", "deepseek-moe-16b", 16375728128},
  };
  for (const Published& p : table) {
    const auto model = make(family_named(p.family), p.preset);
    EXPECT_EQ(model->num_parameters(), p.parameters) << p.preset;
    for (const Parameter& parameter : model->parameters()) EXPECT_FALSE(parameter.materialised());
  }
}

// The shapes that training speed is measured on: counts of the same models in PyTorch.
TEST(Presets, BenchmarkModels) {
  EXPECT_EQ(make(gpt::family(), "gpt_tiny")->num_parameters(), 820352);
  EXPECT_EQ(make(gpt::family(), "gpt_base")->num_parameters(), 10793856);
  EXPECT_EQ(make(moe::family(), "moe_small")->num_parameters(), 13756672);
}

TEST(Presets, SurviveTheTextForm) {
  for (const nn::ModelFamily* family : model_families()) {
    EXPECT_EQ(family->presets.front(), family->default_preset);
    for (const std::string& preset : family->presets) {
      const nn::ConfigMap config = family->preset(preset);
      EXPECT_EQ(family->make(config)->config(), config) << preset;
    }
  }
}

TEST(Presets, RefuseWhatTheyDoNotKnow) {
  using weft::testing::error_of;
  EXPECT_EQ(error_of([] { gpt::preset("gpt5"); }),
            "gpt: no configuration 'gpt5'; need one of gpt_shakespeare, gpt_tiny, gpt_base, gpt2, gpt2-medium, "
            "gpt2-large, gpt2-xl");
  EXPECT_EQ(error_of([] {
              gpt::family().make({{"layers", "two"}});
            }),
            "config: field 'layers' is 'two'; need a whole number");
  EXPECT_EQ(error_of([] { gpt::family().make({{"tied", "1"}}); }), "config: field 'tied' is '1'; need true or false");
  EXPECT_EQ(error_of([] {
              gpt::family().make({{"depth", "2"}});
            }),
            "config: no field 'depth'; need one of bias, context, dim, dropout, ffn, heads, layers, norm_eps, "
            "rms_norm, tied, vocab");
  const auto set = [](const nn::ModelFamily& family, const nn::ConfigMap& fields) {
    return error_of([&] { family.with_fields(family.preset(family.default_preset), fields); });
  };
  EXPECT_EQ(set(gpt::family(), {{"lyers", "2"}}),
            "config: no field 'lyers' (did you mean layers?); need one of bias, context, dim, dropout, ffn, heads, "
            "layers, norm_eps, rms_norm, tied, vocab");
  EXPECT_EQ(set(gpt::family(), {{"dropout", "1"}}),
            "config: field 'dropout' is '1'; need a number from 0 to less than 1");
  EXPECT_EQ(set(moe::family(), {{"kv_heads", "3"}}), "config: field 'kv_heads' is '3'; need a divisor of heads, 4");
  EXPECT_EQ(set(moe::family(), {{"route", "zipf:11"}}),
            "config: field 'route' is 'zipf:11'; need learned, balanced, zipf:S with S from 0 to 10, or skew:P with P "
            "from 0 to 1");
  EXPECT_EQ(moe::family().with_fields(moe::family().preset("moe_tiny"), {{"aux_loss", "0.50"}}).at("aux_loss"), "0.5");
}

TEST(Presets, FlopsPerToken) {
  // 6 per weight but the position table (the head is the token table again), and attention: 12 L D for each visible
  // score, of which a token has (T + 1) / 2 on average.
  const auto gpt2 = make(gpt::family(), "gpt2");
  const double vectors = 124439808 - 1024 * 768 - 12 * (12 * 768 * 768) - 50257 * 768;
  EXPECT_EQ(gpt2->flops_per_token(1024), 6 * (124439808 - 1024 * 768 - vectors) + 12.0 * 12 * 768 * 1025 / 2);
  // A token uses two of eight experts.
  const auto mixtral = make(moe::family(), "mixtral-8x7b");
  const double all = 32.0 * 8 * 3 * 4096 * 14336, norms = 65 * 4096, table = 32000 * 4096;
  EXPECT_EQ(mixtral->flops_per_token(1), 6 * (46702792704.0 - table - norms - all * 6 / 8) + 12.0 * 32 * 4096);
}

}  // namespace
}  // namespace weft
