// Loaders: each epoch a permutation, the same samples for any batch size, resume and set of ranks.
#include "models/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "framework/base/testing/error_of.h"

namespace weft::data {
namespace {

using ::testing::HasSubstr;
using weft::testing::error_of;

TokenDataset counting(int64_t n) {
  std::vector<int32_t> ids(n);
  for (int64_t i = 0; i < n; ++i) ids[i] = static_cast<int32_t>(i);
  return TokenDataset::from_tokens(ids, n);
}

TEST(Permute, IsAPermutationForEverySize) {
  for (int64_t n = 1; n < 300; ++n) {
    for (uint64_t key : {0u, 1u, 12345u}) {
      std::vector<bool> seen(n);
      for (int64_t i = 0; i < n; ++i) {
        int64_t p = permute(i, n, key);
        ASSERT_TRUE(p >= 0 && p < n && !seen[p]) << n;
        seen[p] = true;
      }
    }
  }
  std::set<int64_t> some;
  for (int64_t i = 0; i < 1000; ++i) some.insert(permute(i, int64_t{1} << 40, 9));
  EXPECT_EQ(some.size(), 1000u);
}

TEST(Permute, LooksRandom) {
  // Over many keys the image of each point is uniform: 6 standard deviations of a binomial.
  constexpr int n = 10, keys = 20'000;
  for (int64_t i : {0, 9}) {
    std::vector<int> counts(n);
    for (uint64_t key = 0; key < keys; ++key) ++counts[permute(i, n, key)];
    for (int c : counts) EXPECT_NEAR(c, keys / n, 6 * 43);
  }
  // Neighbours do not stay neighbours.
  int64_t close = 0;
  for (int64_t i = 0; i + 1 < 10'000; ++i) close += std::abs(permute(i, 10'000, 4) - permute(i + 1, 10'000, 4)) == 1;
  EXPECT_LT(close, 20);
}

TEST(ShuffledLoader, BatchesOfOtherSizesContinue) {
  ShuffledLoader by_six(counting(1000), {.batch_size = 6, .seq_len = 4, .seed = 1}), by_four = by_six;
  const Batch a = by_six.next(), b = by_six.next();
  std::vector<int32_t> twelve = a.tokens, parts;
  twelve.insert(twelve.end(), b.tokens.begin(), b.tokens.end());
  for (int i = 0; i < 3; ++i) {
    const Batch c = by_four.next(4);
    EXPECT_EQ(c.rows, 4);
    parts.insert(parts.end(), c.tokens.begin(), c.tokens.end());
  }
  EXPECT_EQ(parts, twelve);
  EXPECT_EQ(by_four.position(), 12);
}

TEST(ShuffledLoader, TargetsFollowTokens) {
  ShuffledLoader l(counting(1000), {.batch_size = 4, .seq_len = 16, .seed = 1});
  for (int i = 0; i < 50; ++i) {
    Batch b = l.next();
    ASSERT_EQ(b.tokens.size(), 64u);
    for (int64_t r = 0; r < 4; ++r) {
      int32_t first = b.tokens[r * 16];
      for (int64_t s = 0; s < 16; ++s) {
        ASSERT_EQ(b.tokens[r * 16 + s], first + s);
        ASSERT_EQ(b.targets[r * 16 + s], first + s + 1);
      }
    }
  }
  EXPECT_EQ(l.position(), 200);
}

TEST(ShuffledLoader, AnEpochVisitsEachWindowOnce) {
  ShuffledLoader l(counting(1000), {.batch_size = 1, .seq_len = 16, .seed = 3});
  EXPECT_EQ(l.windows(), 61);
  std::set<std::vector<int64_t>> orders;
  std::set<int64_t> offsets;
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> begins;
    for (int64_t i = 0; i < 61; ++i) begins.push_back(l.window_begin(epoch * 61 + i));
    orders.insert(begins);
    std::sort(begins.begin(), begins.end());
    offsets.insert(begins[0]);
    for (int64_t i = 0; i < 61; ++i) ASSERT_EQ(begins[i], begins[0] + i * 16);
    EXPECT_GE(begins[0], 0);
    EXPECT_LE(begins[60] + 17, 1000);
  }
  EXPECT_EQ(orders.size(), 5u);
  EXPECT_GT(offsets.size(), 1u);
}

TEST(ShuffledLoader, SamplesDependOnNothingElse) {
  TokenDataset d = counting(5000);
  ShuffledLoader all(d, {.batch_size = 12, .seq_len = 8, .seed = 5});
  Batch want = all.next();
  // Resume at the exact sample.
  Batch second = all.next();
  ShuffledLoader resumed(d, {.batch_size = 12, .seq_len = 8, .seed = 5});
  resumed.seek(12);
  EXPECT_EQ(resumed.next().tokens, second.tokens);
  EXPECT_EQ(resumed.position(), all.position());
  // Another batch size draws the same samples.
  ShuffledLoader thirds(d, {.batch_size = 4, .seq_len = 8, .seed = 5});
  std::vector<int32_t> joined;
  for (int i = 0; i < 3; ++i) {
    Batch b = thirds.next();
    joined.insert(joined.end(), b.tokens.begin(), b.tokens.end());
  }
  EXPECT_EQ(joined, want.tokens);
  // Ranks read their rows alone.
  for (int64_t ranks : {2, 3, 4}) {
    int64_t rows = 12 / ranks;
    for (int64_t r = 0; r < ranks; ++r) {
      std::vector<int64_t> tokens(rows * 8), targets(rows * 8);
      all.read(0, r * rows, (r + 1) * rows, tokens, targets);
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), want.tokens.begin() + r * rows * 8));
      EXPECT_TRUE(std::equal(targets.begin(), targets.end(), want.targets.begin() + r * rows * 8));
    }
  }
  // Another seed, another order.
  ShuffledLoader other(d, {.batch_size = 12, .seq_len = 8, .seed = 6});
  EXPECT_NE(other.next().tokens, want.tokens);
}

TEST(ShuffledLoader, OrderIsFixedForever) {
  // A checkpoint's data position must mean the same in every version.
  ShuffledLoader l(counting(1000), {.batch_size = 1, .seq_len = 10, .seed = 42});
  std::vector<int64_t> begins;
  for (int64_t i : {0, 1, 2, 97, 98, 1'000'000'000}) begins.push_back(l.window_begin(i));
  EXPECT_THAT(begins, ::testing::ElementsAre(640, 580, 960, 970, 403, 36));
}

TEST(ShuffledLoader, SmallestText) {
  ShuffledLoader l(counting(9), {.batch_size = 3, .seq_len = 8});
  Batch b = l.next();
  for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(b.tokens[r * 8], 0);
  // Texts of every size just above: never beyond the end.
  for (int64_t n = 9; n < 60; ++n) {
    ShuffledLoader any(counting(n), {.batch_size = 64, .seq_len = 8, .seed = static_cast<uint64_t>(n)});
    for (int32_t t : any.next().targets) ASSERT_LT(t, n);
  }
}

TEST(SequentialLoader, InOrderAndFull) {
  SequentialLoader l(counting(100), {.batch_size = 3, .seq_len = 10});
  EXPECT_EQ(l.windows(), 9);
  EXPECT_EQ(l.batches(), 3);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(l.batch(b).tokens[r * 10], (b * 3 + r) * 10);
  EXPECT_EQ(l.batch(2).targets.back(), 90);
  std::vector<int64_t> tokens(10), targets(10);
  l.read(1, 2, 3, tokens, targets);
  EXPECT_EQ(tokens[0], 50);
  // Fewer windows than rows: they repeat.
  SequentialLoader few(counting(25), {.batch_size = 5, .seq_len = 10});
  EXPECT_EQ(few.batches(), 1);
  Batch b = few.batch(0);
  for (int64_t r = 0; r < 5; ++r) EXPECT_EQ(b.tokens[r * 10], r % 2 * 10);
  EXPECT_THAT(error_of([&] { few.batch(1); }), HasSubstr("got batch 1; need 0 to 0"));
}

TEST(Loader, BadInputIsOneSentence) {
  TokenDataset d = counting(100);
  EXPECT_EQ(error_of([&] { ShuffledLoader(d, {.batch_size = 0, .seq_len = 8}); }),
            "data: got batch_size 0; need at least 1");
  EXPECT_EQ(error_of([&] { ShuffledLoader(d, {.batch_size = 1, .seq_len = -1}); }),
            "data: got seq_len -1; need at least 1");
  EXPECT_EQ(error_of([&] { ShuffledLoader(d, {.batch_size = 1, .seq_len = 100}); }),
            "data: the training text has 100 tokens; need at least 101 (seq_len + 1); give a longer text or a smaller "
            "seq_len");
  EXPECT_THAT(error_of([&] { SequentialLoader(d, {.batch_size = 1, .seq_len = 100, .what = "validation"}); }),
              HasSubstr("the validation text has 100 tokens"));
  ShuffledLoader l(d, {.batch_size = 2, .seq_len = 8});
  EXPECT_THAT(error_of([&] { l.seek(-1); }), HasSubstr("got position -1"));
  std::vector<int32_t> small(8), right(16);
  EXPECT_THAT(error_of([&] { l.read(0, 0, 2, small, right); }),
              HasSubstr("got room for 8 tokens and 16 targets; need 16"));
  EXPECT_THAT(error_of([&] { l.read(0, 2, 1, small, right); }), HasSubstr("got rows 2 to 1"));
}

}  // namespace
}  // namespace weft::data
