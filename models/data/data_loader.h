// Batches of a dataset's items, in an order that is a pure function of seed and epoch. Worker threads make batches
// ahead; neither their number nor their speed changes the batches. The position can be saved and set.
//
// A dataset has size() and get(index), both const and safe to call from several threads; get returns a Tensor, or a
// tuple, array, vector or struct of tensors. It may have get(index, seed) instead, for random changes of items: the
// seed is a function of the loader's seed, the epoch and the index. It may have get_batch(indices), which is faster.
// The lengths of vectors in items may differ between batches, but not within a batch.
#pragma once
#include <array>
#include <concepts>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/tree.h"
#include "ops/core/indexing/view.h"

namespace weft::data {

template <class D>
concept Dataset = requires(const D& d, int64_t i) {
  { d.size() } -> std::convertible_to<int64_t>;
  requires requires { d.get(i); } || requires {
    d.get(i, uint64_t{});
  };
};

namespace internal {
/// An argument of a pack of N: it knows the line of the call, as each single Arg does.
template <size_t>
using ArgOfPack = Arg;
/// Checks that the arguments are tensors with equal first extents, and returns this extent.
int64_t common_size(std::initializer_list<const Arg*> args);
/// The slices of `x` along dim 0.
Tensor rows_of(const Tensor& x, std::span<const int64_t> indices);
}  // namespace internal

/// Items are the slices of the tensors along dim 0: `TensorDataset(x, y)` gives {x[i], y[i]}. Write `TensorDataset{x}`
/// for one tensor, because C++ reads `DataLoader loader(TensorDataset(x));` as the declaration of a function.
template <size_t N, class = std::make_index_sequence<N>>
class TensorDataset;
template <size_t N, size_t... I>
class TensorDataset<N, std::index_sequence<I...>> {
 public:
  static_assert(N > 0, "TensorDataset: need one tensor or more");
  using Item = std::array<Tensor, N>;
  explicit TensorDataset(const internal::ArgOfPack<I>&... tensors)
      : size_(internal::common_size({&tensors...})), tensors_{tensors.tensor()...} {}
  int64_t size() const { return size_; }
  Item get(int64_t index, std::source_location loc = std::source_location::current()) const {
    weft::internal::LineScope line(loc);
    Item item = get_batch({&index, 1});
    for (Tensor& t : item) t = t.squeeze(0);
    return item;
  }
  Item get_batch(std::span<const int64_t> indices, std::source_location loc = std::source_location::current()) const {
    weft::internal::LineScope line(loc);
    return {internal::rows_of(tensors_[I], indices)...};
  }

 private:
  int64_t size_;
  Item tensors_;
};
template <class... T>
TensorDataset(const T&...) -> TensorDataset<sizeof...(T)>;

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;  // leave out a last batch that is smaller
  int workers = 0;         // threads that make batches ahead; 0: the caller makes them
  uint64_t seed = 0;       // determines the order and the seeds of get(index, seed)
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
/// Appends the lengths of the vectors inside `v`, in order. The type and these lengths are the structure of `v`.
template <class T>
void lengths_of(const T& v, std::vector<size_t>& out) {
  if constexpr (std::is_convertible_v<const T&, Tensor>) {
    return;
  } else if constexpr (weft::internal::is_vector<T> || weft::internal::is_array<T>) {
    if constexpr (weft::internal::is_vector<T>) out.push_back(v.size());
    for (const auto& x : v) lengths_of(x, out);
  } else if constexpr (weft::internal::is_tuple<T>) {
    std::apply([&](const auto&... x) { (lengths_of(x, out), ...); }, v);
  } else {
    weft::internal::with_fields(v, [&](const auto&... x) { (lengths_of(x, out), ...); });
  }
}

/// The items of a batch that is being made.
class BatchStack {
 public:
  /// Adds an item; throws if it has another structure or other types than the first one.
  void add(std::vector<Tensor> tensors, std::vector<size_t> lengths);
  /// Each tensor of the items, stacked.
  std::vector<Tensor> stacked() const;

 private:
  std::vector<size_t> lengths_;  // lengths of the first item
  std::vector<std::vector<Tensor>> items_;
};
/// The same for items of type T.
template <class T>
class ItemStack {
 public:
  void add(T item) {
    std::vector<Tensor> tensors;
    std::vector<size_t> lengths;
    flatten(item, tensors);
    lengths_of(item, lengths);
    stack_.add(std::move(tensors), std::move(lengths));
    if (!like_) like_.emplace(std::move(item));
  }
  T stacked() const {
    size_t next = 0;
    return unflatten(*like_, stack_.stacked(), next);
  }

 private:
  BatchStack stack_;
  std::optional<T> like_;  // the structure of the batch's items
};
/// Checks that `n` is the first extent of these tensors, the result of get_batch.
void check_batch(std::span<const Tensor> tensors, size_t n);

/// Makes the batch of the items with these indices: a DataLoader<D>::Item. `at` is set to the index that is being made,
/// or -1 for all of them together; `stop` returns true if the batch is no longer needed.
using AnyBatch = std::shared_ptr<const void>;
using MakeBatch = std::function<AnyBatch(std::span<const int64_t> indices, int64_t epoch, int64_t& at,
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
  /// Starts an epoch at the position that was set; without one, starts the first or the next epoch.
  void begin();
  /// The next batch, or null at the end of the epoch.
  AnyBatch next();
  /// Number of calls of begin().
  int64_t turn() const { return turn_; }

 private:
  struct Workers;
  std::vector<int64_t> indices(const DataPosition& at) const;
  AnyBatch made(const DataPosition& at, const std::function<bool()>& stop) const;

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

/// Makes a batch of items by stacking each of their tensors.
struct StackItems {};
namespace internal {
template <class One, class Collate>
struct BatchOf : std::invoke_result<const Collate&, const std::vector<One>&> {};
template <class One>
struct BatchOf<One, StackItems> {
  using type = One;
};
}  // namespace internal

/// for (auto [x, y] : loader) ... runs through one epoch; each loop is the next epoch, with another order if shuffled.
/// A loop that is left early is not continued: the next one begins the next epoch. An exception of the dataset is
/// thrown in the loop in place of its batch, as weft::Error with the item's index. A function `collate` from a
/// std::vector of items to a batch replaces the stacking, as for items of different lengths; workers call it together.
template <Dataset D, class Collate = StackItems>
class DataLoader {
  static constexpr bool kStacks = std::is_same_v<Collate, StackItems>;

 public:
  explicit DataLoader(D dataset, const DataLoaderOptions& options = {},
                      std::source_location loc = std::source_location::current())
      : DataLoader(std::move(dataset), options, Collate(), loc) {}
  DataLoader(D dataset, const DataLoaderOptions& options, Collate collate,
             std::source_location loc = std::source_location::current())
      : dataset_(std::make_shared<const D>(std::move(dataset))),
        collate_(std::move(collate)),
        seed_(options.seed),
        source_([d = dataset_] { return static_cast<int64_t>(d->size()); }, [this](auto&&... a) { return make(a...); },
                options, loc) {}
  DataLoader(const DataLoader&) = delete;

  /// The result of get.
  using One = decltype([](const D& d) {
    if constexpr (requires { d.get(int64_t{}, uint64_t{}); })
      return d.get(int64_t{}, uint64_t{});
    else
      return d.get(int64_t{});
  }(std::declval<const D&>()));
  /// A batch: the result of get, with each tensor stacked along a new dim 0, or the result of collate.
  using Item = typename internal::BatchOf<One, Collate>::type;

  /// Number of batches in an epoch.
  int64_t size() const { return source_.batches(); }
  const D& dataset() const { return *dataset_; }
  /// The position of the next batch. Save it at the end of a loop's body; after seek() in another run, that run
  /// continues with the same batches to the bit.
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
      item_ = std::static_pointer_cast<const Item>(loader_->source_.next());
    }
    DataLoader* loader_;
    int64_t turn_;
    std::shared_ptr<const Item> item_;
  };
  Iterator begin() {
    source_.begin();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  One item(int64_t index, int64_t epoch) const {
    if constexpr (requires { dataset_->get(index, uint64_t{}); })
      return dataset_->get(index, internal::seed_of(seed_, epoch, index));
    else
      return dataset_->get(index);
  }
  internal::AnyBatch make(std::span<const int64_t> indices, int64_t epoch, int64_t& at,
                          const std::function<bool()>& stop) const {
    if constexpr (!kStacks) {
      std::vector<One> items;
      for (int64_t index : indices) {
        if (stop()) return nullptr;
        at = index;
        items.push_back(item(index, epoch));
      }
      at = -1;
      return std::make_shared<const Item>(collate_(items));
    } else if constexpr (requires { dataset_->get_batch(indices); }) {
      at = -1;
      auto batch = std::make_shared<const Item>(dataset_->get_batch(indices));
      std::vector<Tensor> flat;
      flatten(*batch, flat);
      internal::check_batch(flat, indices.size());
      return batch;
    } else {
      internal::ItemStack<Item> stack;
      for (int64_t index : indices) {
        if (stop()) return nullptr;
        at = index;
        stack.add(item(index, epoch));
      }
      return std::make_shared<const Item>(stack.stacked());
    }
  }

  std::shared_ptr<const D> dataset_;
  const Collate collate_;
  uint64_t seed_ = 0;
  internal::BatchSource source_;  // last member: its threads end before the other members are destroyed
};

/// Does not exist.
template <class... A>
void make_data_loader(const A&...) {
  static_assert(sizeof...(A) > 99,
                "make_data_loader: write data::DataLoader loader(dataset, {.batch_size = 64}), and for (auto [x, y] : "
                "loader)");
}

}  // namespace weft::data
