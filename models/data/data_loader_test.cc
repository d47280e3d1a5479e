#include "models/data/data_loader.h"

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "framework/base/testing/error_of.h"
#include "framework/dispatch/capture.h"
#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::data {
namespace {

using testing::expect_error;
using testing::expect_has;

TensorDataset<2> numbers(int64_t n) {
  const Tensor x = arange(n).to(kFloat32);
  return TensorDataset(stack({x, x * 10}, 1), arange(n));
}

// The labels of one epoch, batch by batch.
template <class L>
std::vector<std::vector<int64_t>> epoch_of(L& loader) {
  std::vector<std::vector<int64_t>> out;
  for (const auto& [x, y] : loader) {
    out.push_back(y.template to_vector<int64_t>());
    EXPECT_EQ(x.shape(), (Shape{y.numel(), 2}));
    EXPECT_TRUE(testing::same_bits(select(x, 1, 1), y.to(kFloat32) * 10));
  }
  return out;
}
std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& batches) {
  std::vector<int64_t> all;
  for (const auto& b : batches) all.insert(all.end(), b.begin(), b.end());
  return all;
}

TEST(DataLoader, YieldsTheItemsInOrder) {
  DataLoader loader(numbers(7), {.batch_size = 3});
  EXPECT_EQ(loader.size(), 3);
  const std::vector<std::vector<int64_t>> want = {{0, 1, 2}, {3, 4, 5}, {6}};
  EXPECT_EQ(epoch_of(loader), want);
  EXPECT_EQ(epoch_of(loader), want);
  DataLoader whole(numbers(7), {.batch_size = 3, .drop_last = true});
  EXPECT_EQ(whole.size(), 2);
  EXPECT_EQ(epoch_of(whole).size(), 2u);
  DataLoader empty(numbers(0), {.batch_size = 3, .workers = 2});
  EXPECT_EQ(epoch_of(empty).size(), 0u);
  EXPECT_EQ(numbers(5).get(3)[1].item<int64_t>(), 3);
}

TEST(DataLoader, TheOrderIsAFunctionOfSeedAndEpoch) {
  DataLoader loader(numbers(100), {.batch_size = 8, .shuffle = true, .seed = 5});
  const auto first = epoch_of(loader), second = epoch_of(loader);
  EXPECT_NE(first, second);
  const std::vector<int64_t> all = joined(first);
  EXPECT_EQ(std::set<int64_t>(all.begin(), all.end()).size(), 100u);
  for (int workers : {0, 1, 3}) {
    DataLoader again(numbers(100), {.batch_size = 8, .shuffle = true, .workers = workers, .seed = 5, .prefetch = 1});
    EXPECT_EQ(epoch_of(again), first);
    EXPECT_EQ(epoch_of(again), second);
  }
  DataLoader other(numbers(100), {.batch_size = 8, .shuffle = true, .seed = 6});
  EXPECT_NE(epoch_of(other), first);
}

TEST(DataLoader, ContinuesFromASavedPosition) {
  for (int workers : {0, 2}) {
    const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .workers = workers, .seed = 9};
    DataLoader loader(numbers(22), options);
    epoch_of(loader);
    std::vector<std::vector<int64_t>> rest;
    DataPosition saved;
    int64_t batch = 0;
    for (const auto& [x, y] : loader) {
      if (++batch == 2) saved = loader.position();
      if (batch > 2) rest.push_back(y.to_vector<int64_t>());
    }
    EXPECT_EQ(saved, (DataPosition{1, 2}));
    EXPECT_EQ(loader.position(), (DataPosition{2, 0}));
    const auto third = epoch_of(loader);
    DataLoader resumed(numbers(22), options);
    resumed.seek(saved);
    EXPECT_EQ(epoch_of(resumed), rest);
    EXPECT_EQ(epoch_of(resumed), third);
    resumed.seek({1, resumed.size()});  // after the last batch
    EXPECT_EQ(epoch_of(resumed).size(), 0u);
    EXPECT_EQ(epoch_of(resumed), third);
    for (const auto& batch_of_two : resumed) {  // left early: the next loop is a whole epoch
      (void)batch_of_two;
      break;
    }
    EXPECT_EQ(resumed.position(), (DataPosition{3, 1}));
    EXPECT_EQ(epoch_of(resumed).size(), 6u);
    EXPECT_EQ(resumed.position(), (DataPosition{5, 0}));
  }
}

struct Item {
  Tensor value, label;
};
// Items one by one, with random changes, and a failure at one of them.
struct Noisy {
  int64_t fails_at = -1;
  int64_t size() const { return 20; }
  Item get(int64_t i, uint64_t seed) const {
    if (i == fails_at) throw std::runtime_error("no such picture");
    std::this_thread::sleep_for(std::chrono::microseconds(seed % 300));
    return {full({2}, static_cast<double>(seed % 1000)), full({}, i, {.dtype = kInt64})};
  }
};

TEST(DataLoader, WorkersGiveTheBitsOfNone) {
  auto values = [](int workers) {
    DataLoader loader(Noisy{}, {.batch_size = 3, .shuffle = true, .workers = workers, .seed = 1});
    std::vector<float> all;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const auto& [value, label] : loader)
        for (float v : value.to_vector<float>()) all.push_back(v);
    return all;
  };
  const std::vector<float> want = values(0);
  EXPECT_EQ(want.size(), 80u);
  EXPECT_NE(std::vector<float>(want.begin(), want.begin() + 40), std::vector<float>(want.begin() + 40, want.end()));
  EXPECT_EQ(values(1), want);
  EXPECT_EQ(values(4), want);
}

TEST(DataLoader, PassesExceptionsOnWithTheItem) {
  for (int workers : {0, 3}) {
    DataLoader loader(Noisy{.fails_at = 7}, {.batch_size = 3, .workers = workers});
    int batches = 0;
    expect_error(
        [&] {
          for (const auto& batch : loader) batches += batch.label.numel() == 3;
        },
        "DataLoader: item 7 of epoch 0: no such picture");
    EXPECT_EQ(batches, 2);
    expect_error(
        [&] {
          for (const auto& batch : loader) (void)batch;
        },
        "DataLoader: item 7 of epoch 1: no such picture");
  }
}

struct Slow {
  std::atomic<int>* calls;
  int64_t size() const { return 1000000; }
  Tensor get(int64_t i) const {
    ++*calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return full({}, static_cast<double>(i));
  }
};
TEST(DataLoader, EndsInTheMiddleOfBatches) {
  std::atomic<int> calls{0};
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) {
    DataLoader loader(Slow{&calls}, {.batch_size = 100000, .workers = 2});
    loader.seek({0, 3});
  }
  {
    DataLoader loader(Slow{&calls}, {.batch_size = 2, .workers = 2, .prefetch = 3});
    for (const Tensor& batch : loader)
      if (batch.to_vector<float>()[0] >= 6) break;
    // At most the consumed batches and the batches ahead.
    EXPECT_LE(calls, 2 * (4 + 2 * 3 + 2));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(DataLoader, ItemsMayBeVectorsAndTensorsMayBeRead) {
  struct Lists {
    int64_t size() const { return 4; }
    std::vector<Tensor> get(int64_t i) const { return {full({}, static_cast<double>(i)), ones({2})}; }
  };
  DataLoader loader(Lists{}, {.batch_size = 4});
  for (const std::vector<Tensor>& batch : loader) {
    ASSERT_EQ(batch.size(), 2u);
    EXPECT_EQ(batch[0].to_vector<float>(), (std::vector<float>{0, 1, 2, 3}));
    EXPECT_EQ(batch[1].shape(), (Shape{4, 2}));
  }
}

// Items with vectors of the lengths that `of` gives for an index, and get_batch with 7 rows.
struct Lengths {
  std::function<std::array<size_t, 2>(int64_t)> of;
  int64_t size() const { return 4; }
  std::array<std::vector<Tensor>, 2> get(int64_t i) const {
    const Tensor t = full({}, static_cast<double>(i));
    return {std::vector<Tensor>(of(i)[0], t), std::vector<Tensor>(of(i)[1], t)};
  }
};
struct SevenRows {
  int64_t size() const { return 4; }
  Tensor get(int64_t) const { return ones({}); }
  Tensor get_batch(std::span<const int64_t>) const { return zeros({7}); }
};
TEST(DataLoader, EachBatchHasTheStructureOfItsItems) {
  for (int workers : {0, 2}) {
    auto lengths = [](int64_t i) { return std::array{static_cast<size_t>(3 - i), static_cast<size_t>(i)}; };
    DataLoader loader(Lengths{lengths}, {.batch_size = 1, .workers = workers});
    size_t at = 0;
    for (const auto& [down, up] : loader) {
      EXPECT_EQ(down.size(), 3 - at);
      EXPECT_EQ(up.size(), at);
      for (const auto& list : {down, up})
        for (const Tensor& t : list) EXPECT_EQ(t.to_vector<float>(), (std::vector<float>{static_cast<float>(at)}));
      ++at;
    }
    EXPECT_EQ(at, 4u);
    // Items 0 and 1 have three tensors each.
    DataLoader pairs(Lengths{lengths}, {.batch_size = 2, .workers = workers});
    expect_error([&] { pairs.begin(); },
                 "DataLoader: item 1 of epoch 0: its vectors of tensors have the lengths [2, 1], and the first item "
                 "[3, 0]; need "
                 "equal lengths in all items of a batch, or .batch_size = 1");
    DataLoader rows(SevenRows{}, {.batch_size = 2, .workers = workers});
    expect_error(
        [&] { rows.begin(); },
        "DataLoader: the items [0, 1] of epoch 0: get_batch of 2 indices gave f32[7] as tensor 0; need one row "
        "for each index");
  }
}

struct Huge {
  int64_t size() const { return INT64_MAX; }
  Tensor get(int64_t i) const { return full({}, i, {.dtype = kInt64}); }
};
TEST(DataLoader, SizesNearTheLargestNumber) {
  expect_error([] { DataLoader loader(Huge{}, {.batch_size = INT64_MAX}); },
               "DataLoader: batch_size is 9223372036854775807 of 9223372036854775807 items; need at most 2^28 items");
  DataLoader last(Huge{}, {.batch_size = 1000});
  last.seek({0, last.size() - 1});
  for (const Tensor& batch : last) {
    EXPECT_EQ(batch.numel(), INT64_MAX % 1000);
    EXPECT_EQ(batch[-1].item<int64_t>(), INT64_MAX - 1);
  }
  DataLoader all(numbers(3), {.batch_size = INT64_MAX});
  EXPECT_EQ(epoch_of(all).size(), 1u);
}

TEST(DataLoader, ErrorsSayWhatIsWrong) {
  const auto placed = [](const std::function<void()>& fn, const std::string& text, int line) {
    expect_has(testing::placed_error_of(fn), str_cat(text, "; at models/data/data_loader_test.cc:", line));
  };
  placed([] { TensorDataset(ones({3}), ones({4})); },
         "TensorDataset: got f32[4] beside f32[3]; need tensors with one common first extent", __LINE__ - 1);
  placed([] { numbers(3).get(-1); }, "", __LINE__);
  placed([] { capture([](Tensor x) { return TensorDataset(x).get(0)[0]; }, ones({2})); },
         "TensorDataset: the value of this f32[2] does not exist yet: it belongs to a function that is being captured; "
         "need the dataset outside, and its batches as arguments",
         __LINE__ - 3);
  expect_error([] { TensorDataset(ones({})); }, "TensorDataset: got f32[]");
  expect_error([] { TensorDataset(ones({3}), 2); }, "TensorDataset: got the number 2; need tensors");
  expect_error([] { TensorDataset<2>(ones({3}), Tensor()); }, "TensorDataset: got an undefined tensor; need tensors");
  expect_error([] { DataLoader loader(numbers(3), {.batch_size = 0}); }, "DataLoader: batch_size is 0; need 1 or more");
  expect_error([] { DataLoader loader(numbers(3), {.workers = -1}); }, "DataLoader: workers is -1; need 0 to 1024");
  expect_error([] { DataLoader loader(numbers(3), {.prefetch = 0}); }, "DataLoader: prefetch is 0; need 1 to 2^20");
  DataLoader loader(numbers(3));
  expect_error(
      [&] {
        loader.seek({0, 4});
      },
      "DataLoader: position is epoch 0, batch 4; need an epoch from 0 and a batch");
  expect_error(
      [&] {
        for (const auto& batch : loader) loader.begin(), (void)batch;
      },
      "DataLoader: another loop over this loader has begun; need one loop at a time");
  auto step = [&](Tensor x) {
    for (const auto& [a, b] : loader) x = x + a;
    return x;
  };
  expect_error([&] { capture(step, ones({2})); },
               "DataLoader: a loop inside a compiled function would be captured once");
  struct Uneven {
    int64_t size() const { return 2; }
    Tensor get(int64_t i) const { return ones({i + 1}); }
  };
  DataLoader uneven(Uneven{}, {.batch_size = 2});
  expect_error([&] { uneven.begin(); },
               "item 1 of epoch 0: tensor 0 is f32[2] in one item and f32[1] in another; need one type in all items");
}

}  // namespace
}  // namespace weft::data
