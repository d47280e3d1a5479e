#include "models/data/split.h"

#include <gtest/gtest.h>

#include <set>

#include "framework/base/testing/error_of.h"
#include "ops/core/core.h"

namespace weft::data {
namespace {

using testing::expect_error;

TensorDataset<1> numbers(int64_t n) { return TensorDataset<1>(arange(n)); }

template <class D>
std::vector<int64_t> items_of(const D& d) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < d.size(); ++i) out.push_back(d.get(i)[0].template item<int64_t>());
  return out;
}

TEST(RandomSplit, PartsAreDisjointAndTheSameForASeed) {
  const auto parts = random_split(numbers(10), {7, 3}, 1), again = random_split(numbers(10), {7, 3}, 1);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].size(), 7);
  std::vector<int64_t> all = items_of(parts[0]);
  EXPECT_EQ(all, items_of(again[0]));
  EXPECT_NE(all, items_of(random_split(numbers(10), {7, 3}, 2)[0]));
  for (int64_t i : items_of(parts[1])) all.push_back(i);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 10u);
  std::vector<int64_t> batches;
  DataLoader loader(parts[1], {.batch_size = 2});
  for (const auto& [x] : loader)
    for (int64_t i : x.to_vector<int64_t>()) batches.push_back(i);
  EXPECT_EQ(batches, items_of(parts[1]));
}

TEST(RandomSplit, SharesLeaveTheRestToTheFirstParts) {
  std::vector<int64_t> sizes;
  for (const auto& part : random_split(numbers(11), {0.25, 0.25, 0.5})) sizes.push_back(part.size());
  EXPECT_EQ(sizes, (std::vector<int64_t>{3, 3, 5}));  // 2, 2 and 5, and two items more
}

TEST(RandomSplit, RefusesLengthsThatDoNotFit) {
  expect_error(
      [] {
        random_split(numbers(10), {7, 2});
      },
      "random_split: the sum of the lengths is 9 and the dataset has 10 items; need equal numbers");
  expect_error([] { random_split(numbers(10), {0.5, 0.25}); }, "random_split: the sum of the shares is 0.75; need 1");
  expect_error(
      [] {
        random_split(numbers(10), {0.5, 5});
      },
      "random_split: got numbers of items and shares; need one kind");
  expect_error([] { random_split(numbers(10), {11, -1}); }, "random_split: a length is -1; need 0 items or more");
  expect_error([] { random_split(numbers(4), {4})[0].get(4); }, "Subset: index is 4; need 0 to 3");
}

}  // namespace
}  // namespace weft::data
