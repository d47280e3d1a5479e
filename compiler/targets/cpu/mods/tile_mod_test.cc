// Generated mods give the same bits as interpreted ones, on tiles of any size. New lengths compile nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/attention/flex_attention.h"
#include "ops/attention/masks/masks.h"
#include "ops/attention/mods/score_mods.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::Random;
using testing::random_tensor;

struct Case {
  const char* name;
  std::vector<Tensor> tables;
  std::function<Tensor(const Score&, std::span<const Tensor>)> mod;
};

std::vector<Case> cases() {
  Random random(1);
  auto table = [&](const Shape& s, DType t = kFloat32) { return random_tensor(t, s, random); };
  return {
      {"scale", {}, [](const Score& s, auto) { return s.value * 3.0; }},
      {"identity", {}, [](const Score& s, auto) { return s.value; }},
      {"softcap", {}, [](const Score& s, auto) { return tanh(s.value / 20.0) * 20.0; }},
      {"relative", {}, [](const Score& s, auto) { return s.value + (s.q - s.kv); }},
      {"alibi", {table({8})}, [](const Score& s, auto t) { return s.value + t[0][s.h] * (s.kv - s.q); }},
      {"head and row",
       {table({8}), table({700})},
       [](const Score& s, auto t) { return s.value * t[0][s.h] + t[1][s.q]; }},
      {"bias by distance",
       {table({8, 1400})},
       [](const Score& s, auto t) { return s.value + t[0][s.h][s.q - s.kv + 700]; }},
      {"twice the same table",
       {table({1400})},
       [](const Score& s, auto t) { return s.value + t[0][s.q] * t[0][s.kv] + t[0][s.kv]; }},
      {"16-bit table", {table({700}, kBFloat16)}, [](const Score& s, auto t) { return s.value + t[0][s.kv]; }},
      {"integers choose",
       {random_tensor(kInt64, {700}, random, 0, 4), table({5})},
       [](const Score& s, auto t) { return s.value + t[1][t[0][s.kv]]; }},
      {"one number", {table({})}, [](const Score& s, auto t) { return s.value * t[0]; }},
      {"without the score", {table({700})}, [](const Score& s, auto t) { return t[0][s.kv] + s.value * 0.0; }},
  };
}

TEST(TileMod, GivesTheBitsOfTheInterpreter) {
  ASSERT_NE(internal::make_tile_mod, nullptr);
  for (const Case& c : cases()) {
    const Body body = internal::trace_score([&](const Score& s) { return c.mod(s, c.tables); });
    std::vector<StridedView> views;
    for (const Tensor& t : body.lifted) views.push_back(t.view_for_kernel());
    const auto generated = internal::make_tile_mod(body.graph, views, 0);
    ASSERT_NE(generated, nullptr) << c.name;
    const auto plain = internal::interpreted_tile_mod(body.graph, views);
    Random random(2);
    for (const auto& [rows, cols, ld] :
         {std::array<int64_t, 3>{1, 1, 128}, {64, 128, 128}, {7, 128, 144}, {33, 5, 160}}) {
      const kernels::ScoreTile tile{
          .task = 0, .batch = 1, .head = 5, .q0 = 192, .kv0 = 384, .rows = rows, .cols = cols, .ld = ld};
      const Tensor raw = random_tensor(kFloat32, {rows, ld}, random, -4, 4),
                   g = random_tensor(kFloat32, {rows, ld}, random);
      std::vector<std::vector<float>> out[2];
      for (int way = 0; way < 2; ++way) {
        const internal::TileMod& mod = way ? *generated : *plain;
        std::vector<float> scores = raw.to_vector<float>(), grad = g.to_vector<float>(), before = scores;
        mod.forward(tile, scores.data());
        std::vector<std::vector<float>> sums;
        std::vector<float*> at;
        for (const Tensor& t : body.lifted) sums.push_back(std::vector<float>(static_cast<size_t>(t.numel()), 0.5f));
        for (auto& s : sums) at.push_back(s.data());
        mod.backward(tile, before.data(), grad.data(), at.data());
        out[way] = {scores, grad};
        out[way].insert(out[way].end(), sums.begin(), sums.end());
      }
      for (size_t i = 0; i < out[0].size(); ++i)
        for (size_t k = 0; k < out[0][i].size(); ++k) {
          // Sums over a tile run in another order: of up to rows x cols values below 1, each from a 16-bit table and
          // rounded.
          const double terms = static_cast<double>(i < 2 ? 0 : rows * cols);
          const double narrow =
              i >= 2 && body.lifted[i - 2].dtype() == kBFloat16 ? 0x1p-9 * static_cast<double>(rows) : 0;
          const double bound = terms * 0x1p-24 * terms + narrow + narrow * std::abs(out[0][i][k]);
          ASSERT_NEAR(out[0][i][k], out[1][i][k], bound)
              << c.name << ": result " << i << " element " << k << " of " << rows << " x " << cols;
        }
    }
  }
}

// Only the tables whose gradients are wanted have sums; the gradient of the score does not depend on that.
TEST(TileMod, ComputesTheGradientsThatAreWanted) {
  for (const Case& c : cases()) {
    const Body body = internal::trace_score([&](const Score& s) { return c.mod(s, c.tables); });
    std::vector<StridedView> views;
    for (const Tensor& t : body.lifted) views.push_back(t.view_for_kernel());
    const int64_t tables = int64_t{1} << views.size();
    const kernels::ScoreTile tile{
        .task = 0, .batch = 1, .head = 5, .q0 = 192, .kv0 = 384, .rows = 33, .cols = 70, .ld = 128};
    Random random(2);
    const Tensor raw = random_tensor(kFloat32, {tile.rows, tile.ld}, random, -4, 4),
                 g = random_tensor(kFloat32, {tile.rows, tile.ld}, random);
    for (const bool interpreted : {false, true}) {
      std::vector<std::vector<float>> all;
      for (int64_t fixed = 0; fixed < tables; ++fixed) {
        const auto mod = interpreted ? internal::interpreted_tile_mod(body.graph, views)
                                     : internal::make_tile_mod(body.graph, views, fixed);
        ASSERT_NE(mod, nullptr) << c.name;
        std::vector<std::vector<float>> got{g.to_vector<float>()};
        for (const Tensor& t : body.lifted) got.emplace_back(static_cast<size_t>(t.numel()), 0.5f);
        std::vector<float*> at;
        for (size_t i = 0; i < views.size(); ++i) at.push_back(fixed >> i & 1 ? nullptr : got[1 + i].data());
        mod->backward(tile, raw.to_vector<float>().data(), got[0].data(), at.data());
        if (fixed == 0) all = got;
        for (size_t i = 0; i < got.size(); ++i) {
          const bool wanted = i == 0 || !(fixed >> (i - 1) & 1);
          const std::vector<float> want = wanted ? all[i] : std::vector<float>(got[i].size(), 0.5f);
          EXPECT_EQ(got[i], want) << c.name << ", result " << i << " with tables " << fixed << " fixed";
        }
      }
    }
  }
}

// Only wanted gradients of tables are computed: captured constants and other arguments have none.
TEST(TileMod, TablesOfACompiledStepWithoutGradients) {
  Random random(5);
  const Tensor constant = random_tensor(kFloat32, {4}, random, 0.01, 0.1),
               x = random_tensor(kFloat32, {1, 4, 40, 16}, random);
  enum Slopes { kCaptured, kArgument, kRecords, kLearned };
  std::vector<Tensor> want;
  for (const Slopes how : {kLearned, kCaptured, kArgument, kRecords}) {
    SCOPED_TRACE(how);
    auto step = compile([&](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& slopes) {
      const Tensor a = q.requires_grad(), b = k.requires_grad(), c = v.requires_grad();
      const Tensor s = how == kCaptured ? constant : how == kArgument ? slopes : slopes.requires_grad();
      const Tensor y = flex_attention(a, b, c, {.score_mod = attention::alibi(s), .mask_mod = attention::causal()});
      return grad(sum(y * y), how == kLearned ? std::vector{a, b, c, s} : std::vector{a, b, c});
    });
    const std::vector<Tensor> got = step(x, x, x, constant);
    const Graph& joint = step.graph("joint");
    size_t backward = 0;
    for (int32_t id = 0; id < joint.size(); ++id) {
      const Node& n = joint.node(id);
      if (n.op != &attention_backward_op) continue;
      ++backward;
      EXPECT_EQ(n.outputs.size(), how == kLearned ? 4u : 3u);
    }
    EXPECT_EQ(backward, 1u);
    const std::string report = step.report();
    EXPECT_NE(report.find("score_mods\n  x 2 at "), std::string::npos) << report;  // forward and backward
    EXPECT_EQ(report.find("read of learned tables") != std::string::npos, how == kLearned) << report;
    if (how == kLearned) want = got;
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(testing::same_bits(got[i], want[i])) << i;
  }
}

// Positions use 32 bits. If these are too few, the mod is interpreted.
TEST(TileMod, AsManyPositionsAs32BitsCount) {
  static int asked = 0;
  const internal::MakeTileMod made = internal::make_tile_mod;
  internal::make_tile_mod = [](const Ref<Graph>&, std::span<const StridedView>, std::optional<int64_t>) {
    ++asked;
    return std::unique_ptr<internal::TileMod>();
  };
  const Body body = internal::trace_score([](const Score& s) { return s.value + (s.kv - s.q); });
  internal::ScoreTiles fits(body.graph, {}, internal::kGeneratedPositions);
  EXPECT_EQ(asked, 1);
  internal::ScoreTiles wide(body.graph, {}, internal::kGeneratedPositions + 1);
  EXPECT_EQ(asked, 1);
  internal::make_tile_mod = made;
}

TEST(TileMod, NewLengthsCompileNothing) {
  Random random(3);
  const Tensor slopes = random_tensor(kFloat32, {4}, random, 0.01, 0.1);
  auto step = compile([&](const Tensor& q, const Tensor& k, const Tensor& v) {
    const Tensor x = q.requires_grad(), s = slopes.requires_grad();
    const Tensor y = flex_attention(x, k, v,
                                    {.score_mod = [s](const Score& c) { return c.value + s[c.h] * (c.kv - c.q); },
                                     .mask_mod = [](Index, Index, Index i, Index j) { return i >= j; }});
    return grad(sum(y * y), {x, s});
  });
  int64_t compiled = 0;
  for (int i = 0; i < 500; ++i) {
    const int64_t n = 1 + (i * 37) % 503;  // 500 different lengths
    const Tensor x = random_tensor(kFloat32, {1, 4, n, 16}, random);
    step(x, x, x);
    if (i == 1) compiled = step.stats().compilations;
  }
  EXPECT_EQ(step.stats().compilations, compiled);
}

TEST(TileMod, ReportNamesItAndDumpHoldsItsText) {
  const std::string folder =
      str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/tile_mod_dump");
  ASSERT_EQ(setenv("WEFT_DUMP", folder.c_str(), 1), 0);
  const Tensor bias = ones({40});
  uint32_t line = 0;
  auto step = compile([&](const Tensor& q, const Tensor& v) {
    const Tensor x = q.requires_grad(), b = bias.requires_grad();
    line = __LINE__ + 1;
    const Tensor y = flex_attention(x, x, v, {.score_mod = [b](const Score& s) { return s.value * 3.0 + b[s.kv]; }});
    return grad(sum(y), {x, b});
  });
  step(ones({1, 2, 40, 16}), ones({1, 2, 40, 8}));
  const std::string report = step.report();
  unsetenv("WEFT_DUMP");
  const size_t at = report.find("score_mods\n");
  ASSERT_NE(at, std::string::npos) << report;
  const std::string text = report.substr(at, report.find("launches (", at) - at);
  EXPECT_NE(text.find(str_cat("tile_mod_test.cc:", line, ", head dims 16 and 8: forward ")), std::string::npos) << text;
  EXPECT_NE(text.find("  x 2 at "), std::string::npos) << text;  // forward and backward
  EXPECT_NE(text.find(", 1 read of learned tables"), std::string::npos) << text;
  int sources = 0;
  for (size_t s = text.find("source: "); s != std::string::npos; s = text.find("source: ", s + 1), ++sources) {
    const std::string path = text.substr(s + 8, text.find('\n', s) - s - 8);
    std::ifstream f(path);
    EXPECT_NE(std::string(std::istreambuf_iterator<char>(f), {}).find("kernel"), std::string::npos) << path;
  }
  EXPECT_EQ(sources, 3);  // forward, backward, positions in the table
}

}  // namespace
}  // namespace weft
