// generate() and load_model(): the memory they take, and the tokens and logits for each dtype and cache capacity.
#include "models/train/generate.h"

#include <gtest/gtest.h>

#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "models/hf/families.h"
#include "models/train/checkpoint.h"
#include "models/train/load.h"
#include "weft.h"

namespace weft::testing {
namespace {

// A small model of a family, with other fields as given.
std::unique_ptr<nn::LanguageModel> make(const std::string& family, const nn::ConfigMap& fields) {
  manual_seed(11);
  nn::ConfigMap config = family_named(family).preset(family_named(family).default_preset);
  for (const auto& [field, value] : fields) config[field] = value;
  auto model = family_named(family).make(config);
  model->eval();
  for (const auto& [name, cell] : model->named_cells()) cell.value();
  return model;
}

const nn::ConfigMap kSmall{{"vocab", "97"}, {"layers", "2"}, {"heads", "4"}, {"dim", "64"}};

std::vector<int32_t> prompt_of(int64_t length, int64_t vocab) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < length; ++i) prompt.push_back(static_cast<int32_t>((i * 7919 + 13) % vocab));
  return prompt;
}

// Bytes that f allocates at most, beyond those in use before.
int64_t peak_of(const std::function<void()>& f) {
  Allocator::of(Device::cpu()).reset_peak();
  const int64_t before = memory_stats().live;
  f();
  return memory_stats().peak - before;
}

// Each logit is a chain of a few hundred f32 roundings, whatever the order of its sums.
constexpr double kRoundings = 512;

class Generate : public ::testing::TestWithParam<std::string> {};

TEST_P(Generate, DoesNotAllocateTheWholeContext) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "65536";
  const auto model = make(GetParam(), fields);
  nn::KvCacheShape shape = model->cache_shape();
  const int64_t whole = 2 * shape.layers * shape.kv_heads * shape.capacity * shape.head_dim * 4;
  // Verification copies the operands of kernels, among them the table of positions.
  const std::string before = switch_value("WEFT_VERIFY");
  set_switch("WEFT_VERIFY", "0");
  const int64_t used = peak_of([&] { train::generate(*model, {1, 2, 3}, {.max_new_tokens = 20, .temperature = 0}); });
  set_switch("WEFT_VERIFY", before);
  EXPECT_LT(used, whole / 16) << "bytes of the cache of the whole context: " << whole;
}

TEST_P(Generate, ComputesNoLogitsOfThePrompt) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "512";
  fields["vocab"] = "20000";
  const auto model = make(GetParam(), fields);
  const int64_t all = 400 * model->vocab() * 4;
  const int64_t used =
      peak_of([&] { train::generate(*model, prompt_of(400, 97), {.max_new_tokens = 1, .temperature = 0}); });
  EXPECT_LT(used, all) << "bytes of the logits of all positions: " << all;
}

// The reference: a cache for the whole context, the logits of all positions, argmax.
std::vector<int32_t> greedy(const nn::LanguageModel& model, std::vector<int32_t> ids, int64_t count) {
  NoGrad guard;
  const nn::KvCache cache = model.make_cache(1, model.context());
  auto step = compile([&](Tensor tokens) {
    NoGrad inside;
    return model.logits(tokens, cache).to(kFloat32);
  });
  std::vector<int32_t> made;
  for (int64_t i = 0; i < count; ++i) {
    const auto length = static_cast<int64_t>(ids.size());
    const Tensor logits = step(Tensor::from_vector<int32_t>(ids, {1, length}));
    made.push_back(argmax(select(select(logits, 0, 0), 0, length - 1), 0).item<int32_t>());
    ids = {made.back()};
  }
  return made;
}

TEST_P(Generate, CapacityDoesNotChangeTokens) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "2048";
  const auto model = make(GetParam(), fields);
  // Room for 64 tokens, for 128, and a cache that grows from 1024 to 2048.
  EXPECT_EQ(train::generate(*model, prompt_of(20, 97), {.max_new_tokens = 40, .temperature = 0}),
            greedy(*model, prompt_of(20, 97), 40));
  EXPECT_EQ(train::generate(*model, prompt_of(20, 97), {.max_new_tokens = 80, .temperature = 0}),
            greedy(*model, prompt_of(20, 97), 80));
  EXPECT_EQ(train::generate(*model, prompt_of(500, 97), {.max_new_tokens = 540, .temperature = 0}),
            greedy(*model, prompt_of(500, 97), 540));
}

// Attention may split its sum over the keys by the capacity, so logits agree up to the roundings of these sums.
TEST_P(Generate, LogitsAgreeForAllCapacities) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "4096";
  const auto model = make(GetParam(), fields);
  NoGrad guard;
  const Tensor text = Tensor::from_vector<int32_t>(prompt_of(700, 97), {1, 700});
  const nn::KvCache large = model->make_cache(1, 4096);
  nn::KvCache small = model->make_cache(1, 512);
  for (const auto& [from, to] : {std::pair(0, 500), std::pair(500, 501), std::pair(501, 512), std::pair(512, 513),
                                 std::pair(513, 700), std::pair(699, 700)}) {
    if (to > small.capacity) small = small.grown(1024);
    EXPECT_EQ(small.position.value().item<int64_t>(), large.position.value().item<int64_t>());
    const Tensor tokens = text.slice(1, from, to);
    EXPECT_TRUE(close(model->logits(tokens, small), model->logits(tokens, large), kFloat32, kRoundings))
        << "tokens from " << from;
  }
}

TEST_P(Generate, NextLogitsAreTheLastOnes) {
  const auto model = make(GetParam(), kSmall);
  NoGrad guard;
  const Tensor text = Tensor::from_vector<int32_t>(prompt_of(60, 97), {2, 30});
  const nn::KvCache a = model->make_cache(2, 64), b = model->make_cache(2, 64);
  for (const auto& [from, to] : {std::pair(0, 20), std::pair(20, 21), std::pair(21, 30)}) {
    const Tensor tokens = text.slice(1, from, to);
    const Tensor all = model->logits(tokens, a), last = model->next_logits(tokens, b);
    EXPECT_EQ(last.shape(), Shape({2, 97}));
    // A product of 64 terms may be summed in another order for another number of rows.
    EXPECT_TRUE(close(last, select(all, 1, to - from - 1).contiguous(), kFloat32, 64));
    EXPECT_EQ(a.position.value().item<int64_t>(), b.position.value().item<int64_t>());
  }
}

// The greedy tokens after prompts of all lengths are the tokens that a cache reads one by one, and chunks of few sizes
// need few captures.
TEST_P(Generate, PromptsOfAllLengthsNeedFewCaptures) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "512";
  const auto model = make(GetParam(), fields);
  train::TokenDecoder decoder(*model, 512), single(*model, 512);
  for (int64_t i = 0; i < 100; ++i) {
    const std::vector<int32_t> prompt = prompt_of(1 + i * 299 / 99, 97);
    const train::SampleOptions options{.max_new_tokens = 4, .temperature = 0};
    const std::vector<int32_t> got = train::generate(decoder, prompt, options);
    if (i % 9 != 0) continue;
    std::vector<int32_t> want;
    single.forget();
    std::vector<float> logits;
    for (int32_t id : prompt) logits = single.read({&id, 1});
    for (int64_t k = 0; k < 4; ++k) {
      want.push_back(train::sample_token(logits, options, 0));
      logits = single.read({&want.back(), 1});
    }
    EXPECT_EQ(got, want) << "prompt of " << prompt.size();
  }
  EXPECT_LE(decoder.captures(), 8);
  EXPECT_EQ(single.captures(), 1);
}

// Near the end of the context there is no room for padding.
TEST_P(Generate, PromptsFillTheContext) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "75";
  const auto model = make(GetParam(), fields);
  train::TokenDecoder decoder(*model, 75);
  const std::vector<int32_t> prompt = prompt_of(75, 97);
  NoGrad guard;
  for (int64_t first : {75, 70, 64, 3}) {
    decoder.forget();
    std::vector<float> logits;
    for (int64_t at = 0; at < 75; at += first)
      logits = decoder.read(std::span(prompt).subspan(at, std::min<int64_t>(first, 75 - at)));
    EXPECT_EQ(decoder.held(), 75);
    const Tensor want = select(select(model->logits(Tensor::from_vector<int32_t>(prompt, {1, 75})), 0, 0), 0, 74);
    EXPECT_TRUE(close(Tensor::from_vector<float>(logits, {97}), want.contiguous(), kFloat32, kRoundings)) << first;
  }
}

TEST_P(Generate, ContinuationsHaveTheScoresOfTheirTokens) {
  nn::ConfigMap fields = kSmall;
  fields["context"] = "64";
  const auto model = make(GetParam(), fields);
  const train::ContinuationScorer scorer(*model);
  for (const auto& [context, count] : {std::pair(1, 1), std::pair(5, 3), std::pair(40, 24), std::pair(41, 24)}) {
    const std::vector<int32_t> all = prompt_of(context + count, 97);
    const auto s = scorer(std::span(all).first(context), std::span(all).subspan(context));
    const std::vector<double> each = train::score(*model, all);
    double want = 0;
    for (int64_t i = 0; i < count; ++i) want += each[each.size() - 1 - i];
    EXPECT_NEAR(s.logprob, want, 1e-4 * static_cast<double>(count)) << context << " + " << count;
    EXPECT_EQ(s.tokens, count);
    const auto next =
        train::generate(*model, {all.begin(), all.begin() + context}, {.max_new_tokens = 1, .temperature = 0});
    EXPECT_TRUE(scorer(std::span(all).first(context), next).greedy);
    const std::vector<int32_t> other{next[0] == 0 ? 1 : 0};
    EXPECT_FALSE(scorer(std::span(all).first(context), other).greedy);
  }
  EXPECT_LE(scorer.captures(), 2);
}

TEST_P(Generate, CacheHasTheDtypeOfTheActivations) {
  for (bool converted : {false, true}) {
    const auto model = make(GetParam(), kSmall);
    if (converted)
      model->to(kBFloat16);
    else
      model->set_compute_dtype(kBFloat16);
    EXPECT_EQ(model->make_cache(1, 8).layers.front().keys.dtype(), kBFloat16);
  }
}

// A model, a checkpoint of it, and the same model with bf16 activations whose layers convert f32 weights in each call.
struct Loaded {
  std::string folder;
  std::unique_ptr<nn::LanguageModel> f32, per_call;
};
Loaded save(const std::string& family, const nn::ConfigMap& fields) {
  Loaded l;
  l.f32 = make(family, fields);
  l.per_call = make(family, fields);
  l.per_call->set_compute_dtype(kBFloat16);
  const train::TrainState state{.family = family, .model = l.f32->config()};
  l.folder = train::save_checkpoint(::testing::TempDir() + "/" + family, state, l.f32->named_cells(), {}, 0);
  return l;
}

TEST_P(Generate, SixteenBitModelsTakeHalfTheMemory) {
  nn::ConfigMap fields = kSmall;
  fields["dim"] = "256";
  const Loaded l = save(GetParam(), fields);
  const auto live = [&](const std::string& dtype) {
    const int64_t before = memory_stats().live;
    const auto m = train::load_model(family_named(GetParam()), {.checkpoint = l.folder, .dtype = dtype});
    return memory_stats().live - before;
  };
  const int64_t f32 = live("f32"), bf16 = live("bf16");
  // Norms and routers stay f32.
  EXPECT_LT(bf16, f32 * 52 / 100) << f32;
  EXPECT_GE(bf16, f32 / 2);
  // Loading never stores all f32 weights either: only the largest tensor exists in both dtypes.
  EXPECT_LT(peak_of([&] { train::load_model(family_named(GetParam()), {.checkpoint = l.folder, .dtype = "bf16"}); }),
            f32 * 8 / 10);
}

TEST_P(Generate, SixteenBitModelsGiveTheLogitsOfPerCallCasts) {
  const Loaded l = save(GetParam(), kSmall);
  const auto once = train::load_model(family_named(GetParam()), {.checkpoint = l.folder, .dtype = "bf16"}).model;
  for (const auto& [name, p] : once->named_parameters())
    EXPECT_EQ(p.dtype(), name.find("norm") != name.npos || name.find("router") != name.npos ? kFloat32 : kBFloat16)
        << name;
  NoGrad guard;
  const Tensor text = Tensor::from_vector<int32_t>(prompt_of(60, 97), {2, 30});
  const Tensor got = once->logits(text), want = l.per_call->logits(text), exact = l.f32->logits(text);
  EXPECT_EQ(got.dtype(), kBFloat16);
  if (GetParam() == "gpt") {
    // Token and position embeddings are rounded before they are added; with casts in each call, their f32 sum is
    // rounded. This is one of many roundings on the way to the logits, so it must not double the distance to f32.
    const auto distance = [&](const Tensor& x) { return amax(abs(x.to(kFloat32) - exact)).item<double>(); };
    EXPECT_LE(distance(got), 2 * distance(want));
  } else {
    EXPECT_TRUE(same_bits(got, want));
    EXPECT_EQ(train::generate(*once, {1, 2, 3}, {.max_new_tokens = 40, .temperature = 0}),
              train::generate(*l.per_call, {1, 2, 3}, {.max_new_tokens = 40, .temperature = 0}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Generate, ::testing::ValuesIn(family_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::testing
