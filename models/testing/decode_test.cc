// Decoding with a KV cache gives the logits of the whole text at once.
#include <gtest/gtest.h>

#include "framework/testing/compare.h"
#include "framework/testing/gradcheck.h"
#include "models/testing/fixture.h"
#include "weft.h"

namespace weft::testing {
namespace {

// Each logit is a chain of a few hundred f32 roundings, whatever the order of its sums.
constexpr double kRoundings = 512;

class Decode : public ::testing::TestWithParam<std::string> {};

TEST_P(Decode, EqualsTheWholeText) {
  Fixture f = load_fixture(GetParam());
  f.model->eval();
  const int64_t T = f.tokens.size(1), prompt = 5;
  const Tensor want = f.model->logits(f.tokens);
  const nn::KvCache cache = f.model->make_cache(f.tokens.size(0), T);
  std::vector<Tensor> parts{f.model->logits(f.tokens.slice(1, 0, prompt), cache)};
  for (int64_t t = prompt; t < T; ++t) parts.push_back(f.model->logits(f.tokens.slice(1, t, t + 1), cache));
  EXPECT_TRUE(close(cat(parts, 1), want, kFloat32, kRoundings));
  EXPECT_EQ(cache.position.value().item<int64_t>(), T);
  EXPECT_NE(error_of([&] { f.model->logits(f.tokens.slice(1, 0, 1), cache); }), "");
  cache.reset();
  EXPECT_TRUE(
      close(f.model->logits(f.tokens.slice(1, 0, prompt), cache), want.slice(1, 0, prompt), kFloat32, kRoundings));
}

TEST_P(Decode, CapturesOncePerLength) {
  Fixture f = load_fixture(GetParam());
  f.model->eval();
  const int64_t T = f.tokens.size(1);
  const Tensor want = f.model->logits(f.tokens);
  const nn::KvCache cache = f.model->make_cache(f.tokens.size(0), T);
  auto step = compile([&](Tensor tokens) { return f.model->logits(tokens, cache); });
  std::vector<Tensor> parts;
  for (int64_t t = 0; t < T; ++t) parts.push_back(step(f.tokens.slice(1, t, t + 1)));
  EXPECT_TRUE(close(cat(parts, 1), want, kFloat32, kRoundings));
  EXPECT_EQ(step.stats().captures, 1);
}

INSTANTIATE_TEST_SUITE_P(All, Decode, ::testing::ValuesIn(fixture_names()),
                         [](const auto& info) { return info.param; });

TEST(Decode, RefusesTooManyTokens) {
  Fixture f = load_fixture("gpt");
  EXPECT_EQ(error_of([&] { f.model->make_cache(1, 13); }), "make_cache: capacity is 13; need 1 to the context of 12");
  EXPECT_EQ(error_of([&] {
              f.model->logits(cat({f.tokens, f.tokens}, 1));
            }),
            "gpt: 24 tokens in a sequence; need at most the context, 12");
  EXPECT_EQ(error_of([&] { f.model->logits(f.logits); }),
            "gpt: tokens are f32[2, 12, 40]; need integers [batch, time]");
}

}  // namespace
}  // namespace weft::testing
