// The conformance suite of flex_attention: every mask and score_mod of ops/attention/testing/conformance.h, forward and
// backward with the gradients of captured tables, against f64 over all points. It covers generated and interpreted
// mods, masks with and without a block mask, and the same bits in every run and for any number of threads. The cases
// are a covering array by seed: every pair of choices occurs in one of them.
//
//   ./bazelw run --test_sharding_strategy=disabled //compiler/targets/cpu/mods:conformance_test --
//       --full --seconds=60 --seed=1
//
// walks the full product of all choices instead (some 10^8 cases), in an order by seed, for that many seconds (default:
// to the end). --seed without --full gives another covering array.
#include "ops/attention/testing/conformance.h"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/core/core.h"

namespace weft::testing {
namespace {

bool g_full = false;
double g_seconds = 1e18;
uint64_t g_seed = 1;

// ---- choices ----

constexpr DType kTypes[] = {kFloat32, kBFloat16, kFloat16};
constexpr int64_t kLengths[] = {1, 17, 127, 129, 1000};
constexpr int64_t kDims[] = {8, 40, 64, 80, 96, 128, 192, 256};
constexpr int64_t kValueDims[] = {0, 24, 65};  // 0: the same as k
constexpr std::array<int64_t, 2> kHeads[] = {{1, 1}, {2, 2}, {6, 2}, {3, 1}, {6, 1}, {8, 1}, {16, 2}};
constexpr std::array<int64_t, 2> kBatches[] = {{1, 1}, {2, 2}, {2, 1}};  // batches of q, and of k and v

// Sizes of block masks, queries by keys; 0: the mask without blocks.
constexpr std::array<int64_t, 2> kBlockSizes[] = {{0, 0}, {128, 128}, {64, 64}, {64, 192}};

enum Choice { kMask, kScore, kType, kSq, kSkv, kD, kDv, kHead, kBatch, kGenerated, kBlocks, kChoices };
using Combination = std::array<int, kChoices>;

Combination levels() {
  return {static_cast<int>(conformance_masks().size()),
          static_cast<int>(conformance_scores().size()),
          std::size(kTypes),
          std::size(kLengths),
          std::size(kLengths),
          std::size(kDims),
          std::size(kValueDims),
          std::size(kHeads),
          std::size(kBatches),
          2,
          std::size(kBlockSizes)};
}

AttentionSizes sizes_of(const Combination& r) {
  const int64_t d = kDims[r[kD]], dv = kValueDims[r[kDv]];
  return {.b = kBatches[r[kBatch]][0],
          .kv_b = kBatches[r[kBatch]][1],
          .hq = kHeads[r[kHead]][0],
          .hkv = kHeads[r[kHead]][1],
          .sq = kLengths[r[kSq]],
          .skv = kLengths[r[kSkv]],
          .d = d,
          .dv = dv ? dv : d};
}
/// The cost of the reference, in products.
double cost(const Combination& r) {
  const AttentionSizes s = sizes_of(r);
  return static_cast<double>(s.b * s.hq * s.sq * s.skv) * static_cast<double>(3 * s.d + 2 * s.dv + 60);
}

constexpr double kMostCost = 5e8;

/// Rows in which every two levels of two choices meet, without costly ones; greedy, by seed.
std::vector<Combination> covering_array(uint64_t seed) {
  const Combination n = levels();
  std::array<int, kChoices + 1> first{};
  for (int c = 0; c < kChoices; ++c) first[c + 1] = first[c] + n[c];
  const int all = first[kChoices];
  std::vector<char> open(all * all);
  std::vector<std::array<int, 4>> pairs;
  for (int a = 0; a < kChoices; ++a)
    for (int b = a + 1; b < kChoices; ++b)
      for (int i = 0; i < n[a]; ++i)
        for (int j = 0; j < n[b]; ++j) {
          pairs.push_back({a, i, b, j});
          open[(first[a] + i) * all + first[b] + j] = 1;
        }
  Dice dice(seed);
  std::vector<Combination> rows;
  auto gain = [&](const Combination& r) {
    int g = 0;
    for (int a = 0; a < kChoices; ++a)
      for (int b = a + 1; b < kChoices; ++b) g += open[(first[a] + r[a]) * all + first[b] + r[b]];
    return g;
  };
  for (const auto& [a, i, b, j] : pairs) {
    if (!open[(first[a] + i) * all + first[b] + j]) continue;
    Combination best{};
    int most = -1;
    for (int t = 0; t < 60 || most < 0; ++t) {
      Combination r;
      for (int c = 0; c < kChoices; ++c) r[c] = static_cast<int>(dice.below(n[c]));
      r[a] = i, r[b] = j;
      if (cost(r) > kMostCost) continue;
      const int g = gain(r);
      if (g > most) best = r, most = g;
    }
    for (int x = 0; x < kChoices; ++x)
      for (int y = x + 1; y < kChoices; ++y) open[(first[x] + best[x]) * all + first[y] + best[y]] = 0;
    rows.push_back(best);
  }
  return rows;
}

// ---- one case ----

using Operand = RandomOperand;

struct Case {
  AttentionSizes s;
  DType type;
  const NamedMask& mask_name;
  const NamedScore& score_name;
  bool generated;
  std::array<int64_t, 2> blocks;
  MadeMask mask;
  MadeScore score;
  Operand q, k, v, w;
  Tensor dlse;
  std::vector<double> dlse_values;
  std::vector<Tensor> tables;

  Case(const AttentionSizes& s, DType type, const NamedMask& m, const NamedScore& sc, bool generated,
       std::array<int64_t, 2> blocks, Dice dice)
      : s(s),
        type(type),
        mask_name(m),
        score_name(sc),
        generated(generated),
        blocks(blocks),
        mask(m.make(s, dice)),
        score(sc.make(s, dice)),
        q(type, {s.b, s.hq, s.sq, s.d}, dice),
        k(type, {s.kv_b, s.hkv, s.skv, s.d}, dice),
        v(type, {s.kv_b, s.hkv, s.skv, s.dv}, dice),
        w(type, {s.b, s.hq, s.sq, s.dv}, dice) {
    const DType wide = type == kFloat64 ? kFloat64 : kFloat32;
    const Operand u(wide, {s.b, s.hq, s.sq}, dice);
    dlse = u.tensor, dlse_values = u.values;
    for (const Tensor& t : score.tables)
      tables.push_back(type == kFloat64 && is_floating(t.dtype()) ? t.to(kFloat64) : t);
  }

  std::string text() const {
    return str_cat("mask '", mask_name.name, "', score '", score_name.name, "', ", type, ", b ", s.b, " kv_b ", s.kv_b,
                   " hq ", s.hq, " hkv ", s.hkv, " sq ", s.sq, " skv ", s.skv, " d ", s.d, " dv ", s.dv,
                   generated ? ", generated" : ", interpreted",
                   blocks[0] ? str_cat(", blocks of ", blocks[0], " x ", blocks[1]) : std::string());
  }

  /// out, lse, max, dq, dk, dv, gradients of the floating-point tables.
  std::vector<Tensor> run() const { return run(q.tensor, k.tensor, v.tensor, tables); }
  std::vector<Tensor> run(const Tensor& q, const Tensor& k, const Tensor& v, std::span<const Tensor> tables) const {
    std::vector<Tensor> wrt{q.requires_grad(), k.requires_grad(), v.requires_grad()}, in;
    for (const Tensor& t : tables) {
      in.push_back(is_floating(t.dtype()) ? t.requires_grad() : t);
      if (is_floating(t.dtype())) wrt.push_back(in.back());
    }
    FlexAttentionOptions o{.enable_gqa = s.hq != s.hkv};
    if (score.mod) o.score_mod = score.mod(in);
    if (mask.mod && blocks[0]) {
      o.block_mask = create_block_mask(mask.mod, s.b, s.hq, s.sq, s.skv, {.block_size = blocks});
    } else {
      o.mask_mod = mask.mod;
    }
    const AttentionResult r = flex_attention_aux(wrt[0], wrt[1], wrt[2], o);
    std::vector<Tensor> out{r.out.detach(), r.lse.detach(), r.max_scores.detach()};
    for (const Tensor& g : grad(loss(r), wrt)) out.push_back(g);
    return out;
  }

  Tensor loss(const AttentionResult& r) const {
    const DType wide = dlse.dtype();
    return sum(cast(r.out, wide) * cast(w.tensor, wide)) + sum(where(isfinite(r.lse), r.lse * dlse, 0.0));
  }
  DenseAttention dense() const {
    std::vector<DType> types;
    for (const Tensor& t : tables) types.push_back(t.dtype());
    return {s,
            type,
            1 / std::sqrt(static_cast<double>(s.d)),
            {q.values, k.values, v.values, w.values, dlse_values},
            mask,
            score,
            types};
  }

  void check(int threads, int other_threads) const {
    SCOPED_TRACE(text());
    const internal::MakeTileMod made = internal::make_tile_mod;
    ASSERT_NE(made, nullptr);
    if (!generated) internal::make_tile_mod = nullptr;
    set_num_threads(threads);
    std::vector<Tensor> got, again;
    try {
      got = run();
      set_num_threads(other_threads);
      again = run();
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
    internal::make_tile_mod = made;
    if (got.size() != again.size() || got.empty()) return;
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(same_bits(got[i], again[i]))
          << "result " << i << " with " << threads << " and " << other_threads << " threads";
    const DenseAttention want = dense();
    expect_within("out", got[0], want.out);
    expect_within("lse", got[1], want.lse);
    expect_within("max", got[2], want.max);
    expect_within("dq", got[3], want.dq);
    expect_within("dk", got[4], want.dk);
    expect_within("dv", got[5], want.dv);
    size_t next = 6;
    for (size_t t = 0; t < tables.size(); ++t)
      if (is_floating(tables[t].dtype())) expect_within(str_cat("table ", t).c_str(), got[next++], want.tables[t]);
  }
};

void check(const Combination& r, uint64_t seed) {
  static constexpr int kThreads[] = {1, 2, 3, 5};
  Dice dice(seed * 1000003 + 17);
  const int a = static_cast<int>(dice.below(4)), b = static_cast<int>((a + 1 + dice.below(3)) % 4);
  Case(sizes_of(r), kTypes[r[kType]], conformance_masks()[r[kMask]], conformance_scores()[r[kScore]], r[kGenerated],
       kBlockSizes[r[kBlocks]], dice)
      .check(kThreads[a], kThreads[b]);
}

// One test per score_mod, so that each mod is compiled once if tests are sharded.
class Conformance : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

TEST_P(Conformance, EveryPairOfChoices) {
  if (g_full) GTEST_SKIP() << "the full product runs instead";
  uint64_t n = 0;
  for (const Combination& r : covering_array(g_seed)) {
    ++n;
    if (r[kScore] != GetParam()) continue;
    check(r, n);
    if (HasFatalFailure()) return;
  }
  RecordProperty("cases", static_cast<int>(n));
}

// All f64 scores are stored in memory. The remaining errors come from mods and derivatives.
TEST_P(Conformance, InF64) {
  if (g_full) GTEST_SKIP() << "the full product runs instead";
  for (size_t m = 0; m < conformance_masks().size(); ++m) {
    const bool odd = m % 2;
    const AttentionSizes s{.b = 2,
                           .kv_b = odd ? 1 : 2,
                           .hq = 2,
                           .hkv = odd ? 2 : 1,
                           .sq = odd ? 17 : 23,
                           .skv = m % 3 ? 29 : 13,
                           .d = 5,
                           .dv = 3};
    Case(s, kFloat64, conformance_masks()[m], conformance_scores()[GetParam()], true, {}, Dice(m)).check(1, 2);
    if (HasFatalFailure()) return;
  }
}

// In a captured step the same nodes run, so the bits are the same.
TEST_P(Conformance, Compiled) {
  if (g_full) GTEST_SKIP() << "the full product runs instead";
  const size_t masks = conformance_masks().size(), scores = conformance_scores().size();
  for (size_t m = GetParam(); m < masks; m += scores) {
    const bool odd = m % 2;
    const AttentionSizes s{
        .b = 2, .kv_b = 2, .hq = 2, .hkv = odd ? 2 : 1, .sq = odd ? 129 : 17, .skv = 127, .d = 40, .dv = 24};
    const Case c(s, odd ? kBFloat16 : kFloat32, conformance_masks()[m], conformance_scores()[GetParam()], true,
                 kBlockSizes[m / 2 % 2], Dice(m));
    SCOPED_TRACE(c.text());
    auto step = compile([&](const Tensor& q, const Tensor& k, const Tensor& v) { return c.run(q, k, v, c.tables); });
    const std::vector<Tensor> want = c.run(), got = step(c.q.tensor, c.k.tensor, c.v.tensor);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same_bits(got[i], want[i])) << i;
  }
}

// The gradient of all tables along one direction, from the f32 kernels, against central differences of the f64 form.
// The difference between two step widths bounds the contribution of higher derivatives; the rest is roundoff of f64.
TEST_P(Conformance, TablesMatchFiniteDifferences) {
  if (g_full) GTEST_SKIP() << "the full product runs instead";
  const AttentionSizes s{.b = 2, .kv_b = 2, .hq = 2, .hkv = 1, .sq = 33, .skv = 40, .d = 8, .dv = 8};
  for (size_t m : {0, 1, 9, 38}) {
    const NamedMask& mask = conformance_masks()[m];
    const NamedScore& score = conformance_scores()[GetParam()];
    const Case narrow(s, kFloat32, mask, score, true, {}, Dice(m)), wide(s, kFloat64, mask, score, true, {}, Dice(m));
    SCOPED_TRACE(narrow.text());
    const std::vector<Tensor> got = narrow.run();
    const DenseAttention bounds = narrow.dense();
    Dice dice(m + 5);
    std::vector<Tensor> direction;
    double slope = 0, bound = 0;
    size_t next = 6;
    for (size_t t = 0; t < narrow.tables.size(); ++t) {
      direction.emplace_back();
      if (!is_floating(narrow.tables[t].dtype())) continue;
      const Operand e(kFloat64, narrow.tables[t].shape(), dice);
      direction.back() = e.tensor;
      const std::vector<double> g = got[next++].to(kFloat64).to_vector<double>();
      for (size_t i = 0; i < g.size(); ++i)
        slope += g[i] * e.values[i], bound += bounds.tables[t].bound[i] * std::abs(e.values[i]);
    }
    if (next == 6) return;  // no table is learned
    auto difference = [&](double h) {
      double loss[2];
      for (int side = 0; side < 2; ++side) {
        std::vector<Tensor> moved;
        for (size_t t = 0; t < wide.tables.size(); ++t)
          moved.push_back(direction[t].defined() ? wide.tables[t] + direction[t] * (side ? -h : h) : wide.tables[t]);
        FlexAttentionOptions o{.score_mod = wide.score.mod(moved), .mask_mod = wide.mask.mod, .enable_gqa = true};
        loss[side] = wide.loss(flex_attention_aux(wide.q.tensor, wide.k.tensor, wide.v.tensor, o)).item<double>();
      }
      return (loss[0] - loss[1]) / (2 * h);
    };
    const double coarse = difference(2e-4), fine = difference(1e-4);
    const double terms = static_cast<double>(s.b * s.hq * s.sq * (s.skv + s.dv)) * 20;
    EXPECT_NEAR(slope, fine, bound + 2 * std::abs(coarse - fine) + terms * 0x1p-53 / 1e-4);
  }
}

// A learned sink takes part in the softmax and contributes no value: out * sigmoid(lse - sink).
TEST(ConformanceSinks, ThroughTheLogSumExp) {
  const AttentionSizes s{.b = 1, .kv_b = 1, .hq = 3, .hkv = 1, .sq = 37, .skv = 41, .d = 8, .dv = 8};
  for (DType type : {kFloat32, kFloat64}) {
    const Case c(s, type, conformance_masks()[38], conformance_scores()[0], true, {}, Dice(4));  // some rows are empty
    Dice dice(9);
    const Operand sink(type, {3}, dice);
    const Tensor own = sink.tensor.requires_grad(), q = c.q.tensor.requires_grad();
    const AttentionResult r =
        flex_attention_aux(q, c.k.tensor, c.v.tensor, {.mask_mod = c.mask.mod, .enable_gqa = true});
    const Tensor out = r.out * unsqueeze(sigmoid(r.lse - reshape(own, {1, 3, 1})), -1);
    const std::vector<double> got = out.detach().to(kFloat64).to_vector<double>(),
                              dsink = grad(sum(out * c.w.tensor), {own})[0].to(kFloat64).to_vector<double>();
    std::vector<double> want_sink(3), size(3);
    // Scores below 3, sums of 8 and of up to 41 terms, then a quotient: n roundings each, of values below 1.
    const double eps = unit_roundoff(type), bound = 200 * eps;
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t i = 0; i < s.sq; ++i) {
        const double at = sink.values[h];
        double total = std::exp(at);
        std::vector<double> o(s.dv);
        for (int64_t j = 0; j < s.skv; ++j) {
          if (!c.mask.seen(0, h, i, j)) continue;
          double dot = 0;
          for (int64_t x = 0; x < s.d; ++x) dot += c.q.values[(h * s.sq + i) * s.d + x] * c.k.values[j * s.d + x];
          const double p = std::exp(dot / std::sqrt(8.0));
          total += p;
          for (int64_t x = 0; x < s.dv; ++x) o[x] += p * c.v.values[j * s.dv + x];
        }
        for (int64_t x = 0; x < s.dv; ++x) {
          const int64_t k = (h * s.sq + i) * s.dv + x;
          EXPECT_NEAR(got[k], o[x] / total, bound) << k;
          want_sink[h] -= c.w.values[k] * o[x] / total * std::exp(at) / total;
          size[h] += 1;
        }
      }
    for (int64_t h = 0; h < 3; ++h) EXPECT_NEAR(dsink[h], want_sink[h], size[h] * bound + size[h] * size[h] * eps);
  }
}

std::string name_of(const ::testing::TestParamInfo<int>& i) {
  std::string name = conformance_scores()[i.param].name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Scores, Conformance, ::testing::Range(0, static_cast<int>(conformance_scores().size())),
                         name_of);

TEST(ConformanceProduct, Full) {
  if (!g_full) GTEST_SKIP() << "asked for by --full";
  const Combination n = levels();
  uint64_t all = 1;
  for (int x : n) all *= static_cast<uint64_t>(x);
  const auto start = std::chrono::steady_clock::now();
  uint64_t done = 0, at = Dice(g_seed).below(static_cast<int64_t>(all));
  // A step without a common divisor with the number of cases reaches each case once.
  constexpr uint64_t kStep = 1000000007;
  for (; done < all; ++done) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() > g_seconds) break;
    at = (at + kStep) % all;
    Combination r;
    uint64_t rest = at;
    for (int c = 0; c < kChoices; ++c) r[c] = static_cast<int>(rest % n[c]), rest /= n[c];
    check(r, at);
    if (HasFatalFailure()) break;
  }
  std::printf("%llu of %llu cases\n", static_cast<unsigned long long>(done), static_cast<unsigned long long>(all));
}

}  // namespace
}  // namespace weft::testing

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--full")) {
      weft::testing::g_full = true;
    } else if (!std::strncmp(argv[i], "--seconds=", 10)) {
      weft::testing::g_seconds = std::atof(argv[i] + 10);
    } else if (!std::strncmp(argv[i], "--seed=", 7)) {
      weft::testing::g_seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else {
      std::fprintf(stderr, "conformance_test: unknown flag %s; need --full, --seconds=N or --seed=N\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
