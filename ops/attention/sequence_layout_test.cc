// Tests layouts of a sequence over ranks: permutations whose causal work is equal, or differs by no more than the
// tokens that are assigned one by one.
#include "ops/attention/sequence_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/dispatch/capture.h"
#include "framework/dispatch/interpreter.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft {
namespace {

std::vector<int64_t> values(const Tensor& t) { return t.contiguous().to_vector<int64_t>(); }

void expect_layout(const Tensor& layout, int64_t n, int64_t ranks) {
  std::vector<int64_t> at = values(layout);
  ASSERT_EQ(static_cast<int64_t>(at.size()), n);
  for (int64_t r = 0; r < ranks; ++r)
    EXPECT_TRUE(std::is_sorted(at.begin() + r * (n / ranks), at.begin() + (r + 1) * (n / ranks)));
  std::sort(at.begin(), at.end());
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(at[static_cast<size_t>(i)], i);
}

Tensor ids(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> id;
  for (size_t d = 0; d < lengths.size(); ++d)
    id.insert(id.end(), static_cast<size_t>(lengths[d]), static_cast<int64_t>(d * d));
  return Tensor::from_vector<int64_t>(id, {static_cast<int64_t>(id.size())});
}

// The number of (query, key) pairs that each rank's queries see: keys of their own document at or before them. layout
// undefined: in order; document_ids undefined: one document.
std::vector<int64_t> causal_pairs(int64_t length, int64_t ranks, const Tensor& layout = {},
                                  const Tensor& document_ids = {}) {
  std::vector<int64_t> at, id, pairs(static_cast<size_t>(ranks));
  if (layout.defined()) at = layout.contiguous().to_vector<int64_t>();
  if (document_ids.defined()) id = cast(document_ids, kInt64).contiguous().to_vector<int64_t>();
  std::vector<int64_t> seen(static_cast<size_t>(length), 1);
  for (size_t i = 1; i < seen.size(); ++i)
    if (id.empty() || id[i] == id[i - 1]) seen[i] = seen[i - 1] + 1;
  for (int64_t i = 0; i < length; ++i)
    pairs[static_cast<size_t>(i / (length / ranks))] +=
        seen[static_cast<size_t>(at.empty() ? i : at[static_cast<size_t>(i)])];
  return pairs;
}

Tensor one_document_layout(int64_t n, int64_t ranks) { return document_layout(zeros({n}, {.dtype = kInt64}), ranks); }

// A row of causal work: query p sees p + 1 keys. In order, counting half of the diagonal, rank i has 2i + 1 shares.
TEST(SequenceLayout, HeadTailIsEqualWorkWhereInOrderIsNot) {
  for (int64_t c : {1, 2, 3, 4, 8, 16}) {
    const int64_t n = 48 * c, own = n / c;
    const Tensor layout = one_document_layout(n, c);
    expect_layout(layout, n, c);
    const std::vector<int64_t> work = causal_pairs(n, c, layout), in_order = causal_pairs(n, c);
    for (int64_t w : work) EXPECT_EQ(w, n * (n + 1) / 2 / c);
    EXPECT_EQ(2 * in_order.back() - own, (2 * c - 1) * (2 * in_order.front() - own));
  }
  EXPECT_EQ(values(one_document_layout(8, 2)), (std::vector<int64_t>{0, 1, 6, 7, 2, 3, 4, 5}));
}

TEST(SequenceLayout, DocumentsAreBalancedEach) {
  for (int64_t c : {1, 2, 4}) {
    // Whole chunks: equal work.
    const std::vector<int64_t> whole{8 * c, 2 * c, 40 * c};
    const Tensor id = ids(whole), layout = document_layout(id, c);
    const int64_t n = id.numel();
    expect_layout(layout, n, c);
    const std::vector<int64_t> work = causal_pairs(n, c, layout, id);
    for (int64_t w : work) EXPECT_EQ(w, work[0]);
  }
  // Any lengths: at most 2c - 1 tokens of each document are assigned one by one, and each sees at most 2c - 1 keys.
  uint64_t state = 1;
  for (int64_t c : {2, 3, 4, 8}) {
    for (int times = 0; times < 20; ++times) {
      std::vector<int64_t> lengths;
      int64_t n = 0;
      for (int d = 0; d < 9; ++d) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        lengths.push_back(1 + static_cast<int64_t>(state >> 33) % 70);
        n += lengths.back();
      }
      lengths.push_back(c - n % c);
      n += lengths.back();
      const Tensor id = ids(lengths), layout = document_layout(id, c);
      expect_layout(layout, n, c);
      const std::vector<int64_t> work = causal_pairs(n, c, layout, id);
      const auto [least, most] = std::minmax_element(work.begin(), work.end());
      int64_t dealt = 0;
      for (int64_t l : lengths) dealt += (l % (2 * c)) * (l % (2 * c) + 1) / 2;
      EXPECT_LE(*most - *least, dealt);
    }
  }
}

// Segments in which no row begins a document are whole chunks here, so the rows' total work is equal.
TEST(SequenceLayout, RowsShareALayout) {
  for (int64_t c : {2, 4}) {
    const Tensor first = ids({8 * c, 24 * c}), second = ids({16 * c, 4 * c, 12 * c});
    const Tensor layout = document_layout(stack({first, second}), c);
    expect_layout(layout, 32 * c, c);
    std::vector<int64_t> work = causal_pairs(32 * c, c, layout, first);
    const std::vector<int64_t> more = causal_pairs(32 * c, c, layout, second);
    for (size_t r = 0; r < work.size(); ++r) EXPECT_EQ(work[r] + more[r], work[0] + more[0]);
  }
}

// In a captured step, the ids come from a batch.
TEST(SequenceLayout, InACapturedStep) {
  const Tensor id = ids({5, 9, 10}), other = ids({12, 12});
  const std::vector<TensorType> types{id.type()};
  const Ref<Graph> g =
      capture_graph([](std::span<const Tensor> in) { return std::vector<Tensor>{document_layout(in[0], 4)}; }, types);
  for (const Tensor& t : {id, other}) EXPECT_EQ(values(interpret(*g, {&t, 1})[0]), values(document_layout(t, 4)));
}

TEST(SequenceLayout, Errors) {
  EXPECT_EQ(testing::error_of([] { document_layout(zeros({10}, {.dtype = kInt64}), 4); }),
            "document_layout: length 10 on 4 ranks; need a multiple of 4");
}

}  // namespace
}  // namespace weft
