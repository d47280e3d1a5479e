// Batches of a dataset's items, in an order that is a pure function of seed and epoch. Worker threads make batches
// ahead; neither their number nor their speed changes what is yielded. The position can be saved and set.
//
// A dataset has size() and get(index), both const and safe to call from several threads; get returns a Tensor, or a
// tuple, array, vector or struct of tensors. It may have get(index, seed) instead, for random changes of items: the
// seed is a function of the loader's seed, the epoch and the index. It may have get_batch(indices), which is faster.
#pragma once
#include <array>
#include <concepts>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/dispatch/tree.h"
#include "ops/core/view.h"

namespace weft::data {

template <class D>
concept Dataset = requires(const D& d, int64_t i) {
  { d.size() } -> std::convertible_to<int64_t>;
  requires requires { d.get(i); } || requires {
    d.get(i, uint64_t{});
  };
};

namespace internal {
/// Checks that the tensors have equal first extents, and returns that.
int64_t common_size(std::span<const Tensor> tensors, std::source_location loc);
/// The slices of `x` along dim 0.
Tensor rows_of(const Tensor& x, std::span<const int64_t> indices);
}  // namespace internal

/// Items are the slices of the tensors along dim 0: `TensorDataset(x, y)` gives {x[i], y[i]}.
template <size_t N>
class TensorDataset {
 public:
  using Item = std::array<Tensor, N>;
  template <class... T>
  explicit TensorDataset(const T&... tensors) : tensors_{Tensor(tensors)...} {
    size_ = internal::common_size(tensors_, std::source_location());
  }
  int64_t size() const { return size_; }
  Item get(int64_t index) const {
    Item item = get_batch({&index, 1});
    for (Tensor& t : item) t = t.squeeze(0);
    return item;
  }
  Item get_batch(std::span<const int64_t> indices) const {
    Item items;
    for (size_t i = 0; i < N; ++i) items[i] = internal::rows_of(tensors_[i], indices);
    return items;
  }

 private:
  Item tensors_;
  int64_t size_ = 0;
};
template <class... T>
TensorDataset(const T&...) -> TensorDataset<sizeof...(T)>;

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;  // leave out a last batch that is smaller
  int workers = 0;         // threads that make batches ahead; 0: the caller makes them
  uint64_t seed = 0;       // of the order and of get(index, seed)
  int prefetch = 2;        // batches ahead for each worker
};

/// The epoch and the next batch in it.
struct DataPosition {
  int64_t epoch = 0, batch = 0;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

namespace internal {

/// Index k of an epoch with n items.
int64_t index_at(int64_t k, int64_t n, bool shuffle, uint64_t seed, int64_t epoch);
/// The seed for get(index, seed).
uint64_t seed_of(uint64_t seed, int64_t epoch, int64_t index);
/// The batch of tensors that each list of tensors of an item gives: stacked.
std::vector<Tensor> stacked(const std::vector<std::vector<Tensor>>& items);

/// Makes the tensors of the items with these indices. `at` is set to the index that is being made, or -1 for all of
/// them together; `stop` says that nobody wants the batch any more.
using MakeBatch = std::function<std::vector<Tensor>(std::span<const int64_t> indices, int64_t epoch, int64_t& at,
                                                    const std::function<bool()>& stop)>;

/// The loader without the types of items. One thread uses it at a time.
class BatchSource {
 public:
  BatchSource(std::function<int64_t()> size, MakeBatch make, const DataLoaderOptions& options,
              std::source_location loc);
  ~BatchSource();
  /// Number of batches in an epoch.
  int64_t batches() const;
  DataPosition position() const { return position_; }
  void seek(const DataPosition& position);
  /// Starts an epoch: from the position that was set, or else the first, or the next one.
  void begin();
  /// The next batch, or nothing at the end of the epoch.
  std::optional<std::vector<Tensor>> next();
  /// Number of calls of begin().
  int64_t turn() const { return turn_; }

 private:
  struct Workers;
  std::vector<int64_t> indices(const DataPosition& at) const;
  std::vector<Tensor> made(const DataPosition& at, const std::function<bool()>& stop) const;

  std::function<int64_t()> size_;
  MakeBatch make_;
  DataLoaderOptions options_;
  DataPosition position_;
  int64_t items_ = 0, turn_ = 0;
  bool fresh_ = true;  // position_ was set, or no epoch has begun
  bool running_ = false;
  std::unique_ptr<Workers> workers_;
};

}  // namespace internal

/// for (auto [x, y] : loader) ... runs through one epoch; each loop is the next epoch, with another order if shuffled.
/// A loop that is left early is not continued: the next one begins the next epoch. An exception of the dataset is
/// thrown in the loop when its batch is due, as weft::Error with the item's index.
template <Dataset D>
class DataLoader {
 public:
  explicit DataLoader(D dataset, const DataLoaderOptions& options = {},
                      std::source_location loc = std::source_location::current())
      : dataset_(std::make_shared<const D>(std::move(dataset))),
        seed_(options.seed),
        source_([d = dataset_] { return static_cast<int64_t>(d->size()); }, [this](auto&&... a) { return make(a...); },
                options, loc) {}
  DataLoader(const DataLoader&) = delete;

  /// What get returns, with each tensor stacked along a new dim 0.
  using Item = decltype([](const D& d) {
    if constexpr (requires { d.get(int64_t{}, uint64_t{}); })
      return d.get(int64_t{}, uint64_t{});
    else
      return d.get(int64_t{});
  }(std::declval<const D&>()));

  /// Number of batches in an epoch.
  int64_t size() const { return source_.batches(); }
  const D& dataset() const { return *dataset_; }
  /// What comes next. Saved at the end of a loop's body and given to seek() in another run, that run continues with the
  /// same batches to the bit.
  DataPosition position() const { return source_.position(); }
  /// The next loop begins here.
  void seek(const DataPosition& position) { source_.seek(position); }

  class Iterator {
   public:
    using value_type = Item;
    using difference_type = std::ptrdiff_t;
    const Item& operator*() const { return *item_; }
    Iterator& operator++() {
      WEFT_CHECK_AS(kFailedPrecondition, loader_->source_.turn() == turn_,
                    "DataLoader: another loop over this loader has begun; need one loop at a time");
      load();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return !item_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader) : loader_(loader), turn_(loader->source_.turn()) { load(); }
    void load() {
      item_.reset();
      std::optional<std::vector<Tensor>> tensors = loader_->source_.next();
      if (!tensors) return;
      size_t at = 0;
      const std::shared_ptr<const Item> like = loader_->like();
      item_ = unflatten(*like, *tensors, at);
    }
    DataLoader* loader_;
    int64_t turn_;
    std::optional<Item> item_;
  };
  Iterator begin() {
    source_.begin();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  Item item(int64_t index, int64_t epoch) const {
    if constexpr (requires { dataset_->get(index, uint64_t{}); })
      return dataset_->get(index, internal::seed_of(seed_, epoch, index));
    else
      return dataset_->get(index);
  }
  std::vector<Tensor> make(std::span<const int64_t> indices, int64_t epoch, int64_t& at,
                           const std::function<bool()>& stop) {
    if constexpr (requires { dataset_->get_batch(indices); }) {
      at = -1;
      const auto batch = dataset_->get_batch(indices);
      keep_structure(batch);
      std::vector<Tensor> flat;
      flatten(batch, flat);
      return flat;
    } else {
      std::vector<std::vector<Tensor>> items;
      for (int64_t index : indices) {
        if (stop()) return {};
        at = index;
        const Item one = item(index, epoch);
        keep_structure(one);
        flatten(one, items.emplace_back());
      }
      return internal::stacked(items);
    }
  }
  // The structure of items: unflatten() needs the lengths of vectors.
  void keep_structure(const Item& item) {
    if (!std::atomic_load(&like_)) std::atomic_store(&like_, std::make_shared<const Item>(item));
  }
  std::shared_ptr<const Item> like() const { return std::atomic_load(&like_); }

  std::shared_ptr<const D> dataset_;
  std::shared_ptr<const Item> like_;
  uint64_t seed_ = 0;
  internal::BatchSource source_;  // last: its threads end before the rest goes
};

}  // namespace weft::data
