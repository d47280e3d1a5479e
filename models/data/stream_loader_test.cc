#include "models/data/stream_loader.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "ops/core/core.h"

namespace weft::data {
namespace {

using testing::expect_error;

// 5 numbers, from 10 times the epoch on.
struct Counting {
  auto stream(int64_t epoch) const {
    return [next = 10 * epoch, end = 10 * epoch + 5]() mutable -> std::optional<std::array<Tensor, 1>> {
      if (next == end) return std::nullopt;
      return std::array<Tensor, 1>{Tensor::from_vector<int64_t>({next++}, {})};
    };
  }
};

using Batches = std::vector<std::vector<int64_t>>;
template <class L>
Batches epoch_of(L& loader) {
  Batches out;
  for (const auto& [x] : loader) out.push_back(x.template to_vector<int64_t>());
  return out;
}

TEST(StreamLoader, YieldsBatchesInTheOrderOfTheStream) {
  StreamLoader loader(Counting(), {.batch_size = 2});
  EXPECT_EQ(epoch_of(loader), (Batches{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(epoch_of(loader), (Batches{{10, 11}, {12, 13}, {14}}));
  for (const auto& [x] : loader) {  // is left early: the next loop is the next epoch
    EXPECT_EQ(x.to_vector<int64_t>(), (std::vector<int64_t>{20, 21}));
    break;
  }
  EXPECT_EQ(loader.position(), (DataPosition{2, 1}));
  EXPECT_EQ(epoch_of(loader)[0], (std::vector<int64_t>{30, 31}));
  loader.seek({2, 1});
  EXPECT_EQ(epoch_of(loader), (Batches{{22, 23}, {24}}));
  StreamLoader whole(Counting(), {.batch_size = 2, .drop_last = true});
  EXPECT_EQ(epoch_of(whole).size(), 2u);
}

TEST(StreamLoader, RefusesOptionsOfIndices) {
  expect_error([] { StreamLoader(Counting(), {.shuffle = true}); }, "StreamLoader: got shuffle; need neither");
  expect_error([] { StreamLoader(Counting(), {.batch_size = 0}); }, "StreamLoader: batch_size is 0; need 1 or more");
}

// Sentences of different lengths as rows of one tensor, filled up with zeros.
TEST(DataLoader, CollateMakesABatchOfItems) {
  struct Sentences {
    int64_t size() const { return 3; }
    Tensor get(int64_t i) const { return ones({i + 1}); }
  };
  const auto padded = [](const std::vector<Tensor>& items) {
    int64_t most = 0;
    for (const Tensor& t : items) most = std::max(most, t.size(0));
    std::vector<Tensor> rows;
    for (const Tensor& t : items) rows.push_back(pad(t, {0, most - t.size(0)}));
    return std::pair{stack(rows), static_cast<double>(most)};
  };
  for (int workers : {0, 2}) {
    DataLoader loader(Sentences(), {.batch_size = 2, .workers = workers}, padded);
    std::vector<std::string> got;
    for (const auto& [x, most] : loader) got.push_back(str_cat(x.type(), " ", most, " ", sum(x).item<float>()));
    EXPECT_EQ(got, (std::vector<std::string>{"f32[2, 2] 2 3", "f32[1, 3] 3 3"}));
  }
}

}  // namespace
}  // namespace weft::data
