// The work that depends on values, as a call counts it, equals a count of single scores and rows.
#include "compiler/exec/run/count.h"

#include <gtest/gtest.h>

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "framework/base/testing/error_of.h"
#include "ops/attention/masks/masks.h"
#include "ops/composite/composite.h"

namespace weft {
namespace {

Tensor ints(const std::vector<int64_t>& v) { return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size())}); }

/// The launches of ops whose names begin with `op`, and of groups with it.
std::vector<LaunchRecord> launches_of(const StepRecord& r, std::string_view op) {
  std::vector<LaunchRecord> all;
  for (const LaunchRecord& l : r.launches)
    if (l.name.starts_with(op) || l.ops.find(op) != std::string::npos) all.push_back(l);
  return all;
}

/// Calls the step, which counts, and returns its launches of an op.
template <class F>
std::vector<LaunchRecord> counted(const F& step, const std::vector<Tensor>& args, std::string_view op) {
  step.count_work();
  step(args);
  std::vector<LaunchRecord> all = launches_of(step.record(), op);
  EXPECT_FALSE(all.empty()) << op;
  return all;
}

constexpr int64_t kB = 2, kH = 4, kKv = 2, kD = 16;
constexpr double kForward = 2 * (kD + kD) + 20, kBackward = 6 * kD + 4 * kD + 30;  // operations of a score

/// Scores that the mask leaves, point by point.
double points(const MaskMod& mask, int64_t n) {
  double count = 0;
  for (uint8_t seen : create_mask(mask, kB, kH, n, n).to_vector<uint8_t>()) count += seen;
  return count;
}

Tensor heads(int64_t h, int64_t n) { return testing::normal({kB, h, n, kD}); }

/// Attention and its gradients; the mask reads in[3].
auto attention_step(const std::function<MaskMod(const Tensor&)>& mask) {
  return compile([mask](const std::vector<Tensor>& in) {
    const Tensor q = in[0].requires_grad();
    const Tensor out = flex_attention(q, in[1], in[2], {.mask_mod = mask(in[3]), .enable_gqa = true});
    return std::vector{out, grad(sum(out * out), std::vector{q})[0]};
  });
}

TEST(CountWork, OfMasksThatAreKnownIsPlanned) {
  const int64_t n = 300;
  for (const MaskMod& mask : {attention::causal(), attention::causal() & attention::sliding_window(40)}) {
    const auto step = attention_step([&](const Tensor&) { return mask; });
    const std::vector<Tensor> in{heads(kH, n), heads(kKv, n), heads(kKv, n), ints({0})};
    const double scores = points(mask, n);
    const auto forward = counted(step, in, "attention"), backward = launches_of(step.record(), "attention_backward");
    ASSERT_EQ(forward.size(), 2u);  // the plan with the backward
    ASSERT_EQ(backward.size(), 1u);
    EXPECT_EQ(forward[0].known().flops, scores * kForward);
    EXPECT_EQ(backward[0].known().flops, scores * kBackward);
    EXPECT_FALSE(forward[0].work.at_most || forward[0].counted);
  }
}

TEST(CountWork, OfMasksThatReadTables) {
  const int64_t n = 300;
  const auto by_head = [](const Tensor& t) {
    return MaskMod([t](Index b, Index h, Index q, Index kv) { return (q - kv < t[h] + b) & (q >= kv); });
  };
  const auto documents = [](const Tensor& t) { return attention::document(t) & attention::causal(); };
  const auto scattered = [](const Tensor& t) {
    return MaskMod([t](Index, Index, Index q, Index kv) { return remainder(q * q * t[q] + kv * kv * 13, 5) == 0; });
  };
  std::vector<int64_t> ids, other, factors;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i / 70), other.push_back(i / 31), factors.push_back(i % 7);
  struct Case {
    std::function<MaskMod(const Tensor&)> mask;
    std::vector<Tensor> tables;
  };
  for (const Case& c : {Case{documents, {ints(ids), ints(other)}},
                        Case{by_head, {ints({3, 9, 50, 300}), ints({1, 1, 1, 1})}}, Case{scattered, {ints(factors)}}}) {
    const auto step = attention_step(c.mask);
    for (const Tensor& table : c.tables) {
      const std::vector<Tensor> in{heads(kH, n), heads(kKv, n), heads(kKv, n), table};
      const double scores = points(c.mask(table), n);
      const auto all = counted(step, in, "attention");
      ASSERT_EQ(all.size(), 2u);
      for (const LaunchRecord& l : all) {
        EXPECT_TRUE(l.work.at_most && l.counted);
        EXPECT_FALSE(l.done.at_most);
        EXPECT_EQ(l.work.flops, kB * kH * n * n * (l.phase == Phase::kForward ? kForward : kBackward));
        EXPECT_EQ(l.done.flops, scores * (l.phase == Phase::kForward ? kForward : kBackward));
        EXPECT_EQ(l.done.products, l.done.flops - scores * (l.phase == Phase::kForward ? 20 : 30));
        EXPECT_LE(l.done.bytes, l.work.bytes);
      }
      EXPECT_FALSE(step.record().sum().work.at_most);
    }
  }
}

// The lists of blocks are operands: their blocks are counted, and the mask in blocks whose bits they do not have.
TEST(CountWork, OfBlockMasks) {
  const int64_t n = 300;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(i / 70);
  const MaskMod mask = attention::document(ints(ids)) & attention::causal();
  for (const int64_t stored : {int64_t{1} << 20, int64_t{0}}) {
    const BlockMask blocks = create_block_mask(mask, 1, 1, n, n, {.max_tile_bytes = stored});
    const auto step = compile([=](const std::vector<Tensor>& in) {
      return std::vector{flex_attention(in[0], in[1], in[2], {.block_mask = blocks})};
    });
    const auto all = counted(step, {heads(kH, n), heads(kH, n), heads(kH, n)}, "attention");
    ASSERT_EQ(all.size(), 1u);
    EXPECT_TRUE(all[0].counted);
    EXPECT_EQ(all[0].done.flops, points(mask, n) * kForward);
  }
}

// One query for each entry against a cache: the rows of the cache before its length are read, and no others.
TEST(CountWork, OfLengthsOfACache) {
  const int64_t capacity = 512;
  const auto step = compile([](const std::vector<Tensor>& in) {
    const KvCacheAttention r =
        attention_with_kv_cache(in[0], in[1], in[2], {.k = in[3], .v = in[4], .cache_seqlens = in[5], .causal = true});
    return std::vector{r.out, r.k_cache, r.v_cache};
  });
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{3, 400}, {511, 0}}) {
    const auto all = counted(
        step, {heads(kH, 1), heads(kKv, capacity), heads(kKv, capacity), heads(kKv, 1), heads(kKv, 1), ints(lengths)},
        "attention");
    ASSERT_EQ(all.size(), 1u);
    const double keys = static_cast<double>(lengths[0] + 1 + lengths[1] + 1);
    EXPECT_EQ(all[0].done.flops, keys * kH * kForward);
    EXPECT_EQ(all[0].work.bytes - all[0].done.bytes, (2.0 * capacity - keys) * kKv * 2 * kD * 4);
    EXPECT_EQ(all[0].work.flops, 2.0 * capacity * kH * kForward);
  }
}

TEST(CountWork, OfPages) {
  const int64_t page = 64, pages = 9, of_entry = 4;
  const auto step = compile([](const std::vector<Tensor>& in) {
    return std::vector{
        attention_with_kv_cache(in[0], in[1], in[2], {.cache_seqlens = in[3], .block_table = in[4]}).out};
  });
  const Tensor k = testing::normal({pages, kKv, page, kD}), v = testing::normal({pages, kKv, page, kD}),
               table = Tensor::from_vector<int64_t>({3, 1, -1, -1, 0, 5, 7, 2}, {kB, of_entry});
  const auto all = counted(step, {heads(kH, 1), k, v, ints({70, 256}), table}, "attention");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].done.flops, (70 + 256) * kH * kForward);
  EXPECT_EQ(all[0].work.bytes - all[0].done.bytes, (pages * page - 70.0 - 256) * kKv * 2 * kD * 4);
}

// Rows outside all groups, and an expert without rows.
TEST(CountWork, OfRaggedRows) {
  const int64_t rows = 40, k = 8, n = 24;
  const Tensor x = testing::normal({rows, k}), w = testing::normal({3, k, n});
  const auto step = compile([](const std::vector<Tensor>& in) {
    const Tensor x = in[0].requires_grad(), w = in[1].requires_grad();
    const Tensor y = relu(grouped_matmul(x, w, in[2]));
    const auto g = grad(sum(y * y), std::vector{x, w});
    return std::vector{y, g[0], g[1]};
  });
  for (const std::vector<int64_t>& offsets : {std::vector<int64_t>{0, 10, 10, 17}, {0, 1, 30, 40}}) {
    const auto all = counted(step, {x, w, ints(offsets)}, "grouped_dot");
    ASSERT_EQ(all.size(), 3u);  // forward, and one for each gradient
    const double used = static_cast<double>(offsets.back());
    for (const LaunchRecord& l : all) {
      EXPECT_TRUE(l.counted);
      EXPECT_EQ(l.work.products, 2.0 * rows * k * n);
      EXPECT_EQ(l.done.products, 2 * used * k * n);
      EXPECT_EQ(l.work.flops - l.done.flops, l.work.products - l.done.products);
      if (used == rows) {
        EXPECT_EQ(l.done.bytes, l.work.bytes);
      } else {
        EXPECT_LT(l.done.bytes, l.work.bytes);
      }
    }
  }
}

TEST(CountWork, IsOffUnlessAsked) {
  const auto step =
      compile([](const std::vector<Tensor>& in) { return std::vector{grouped_matmul(in[0], in[1], in[2])}; });
  const std::vector<Tensor> in{testing::normal({8, 4}), testing::normal({2, 4, 4}), ints({0, 3, 5})};
  const auto record = [&] { return launches_of(step.record(), "grouped_dot").at(0); };
  for (int i = 0; i < 4; ++i) step(in);
  EXPECT_FALSE(record().counted);
  EXPECT_EQ(record().known().flops, 2.0 * 8 * 4 * 4);
  step.count_work();
  EXPECT_FALSE(record().counted);  // not before the call
  const std::vector<float> want = step(in)[0].to_vector<float>();
  EXPECT_EQ(record().done.flops, 2.0 * 5 * 4 * 4);
  EXPECT_NE(step.record().to_json().find("\"counted\""), std::string::npos);
  const int64_t peak = step.stats().measured_peak_bytes;
  EXPECT_EQ(step(std::vector<Tensor>{in[0], in[1], ints({0, 8, 8})})[0].shape(), (Shape{8, 4}));
  EXPECT_EQ(record().done.flops, 2.0 * 5 * 4 * 4);  // later calls count nothing
  EXPECT_EQ(step.stats().measured_peak_bytes, peak);
  EXPECT_EQ(step(in)[0].to_vector<float>(), want);
}

// Wrong values give the kernel's own error, which names the op.
TEST(CountWork, LeavesErrorsToTheKernel) {
  const auto step =
      compile([](const std::vector<Tensor>& in) { return std::vector{grouped_matmul(in[0], in[1], in[2])}; });
  const Tensor x = testing::normal({8, 4}), w = testing::normal({2, 4, 4});
  const std::vector<Tensor> wrong{x, w, ints({0, 99, -5})};
  step(std::vector<Tensor>{x, w, ints({0, 3, 5})});
  const std::string want = testing::error_of([&] { step(wrong); });
  step.count_work();
  EXPECT_NE(want, "");
  EXPECT_EQ(testing::error_of([&] { step(wrong); }), want);
}

}  // namespace
}  // namespace weft
