// Parts of a dataset, in a random order that is a function of a seed.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "models/data/data_loader.h"

namespace weft::data {

/// The items of `dataset` with these indices, in this order.
template <Dataset D>
class Subset {
 public:
  Subset(std::shared_ptr<const D> dataset, std::vector<int64_t> indices)
      : dataset_(std::move(dataset)), indices_(std::move(indices)) {}
  int64_t size() const { return static_cast<int64_t>(indices_.size()); }
  const std::vector<int64_t>& indices() const { return indices_; }
  auto get(int64_t i) const requires requires(const D& d) { d.get(int64_t{}); }
  { return dataset_->get(at(i)); }
  auto get(int64_t i, uint64_t seed) const requires requires(const D& d) { d.get(int64_t{}, uint64_t{}); }
  { return dataset_->get(at(i), seed); }
  auto get_batch(std::span<const int64_t> rows) const requires requires(const D& d) { d.get_batch(rows); }
  {
    std::vector<int64_t> there;
    for (int64_t i : rows) there.push_back(at(i));
    return dataset_->get_batch(there);
  }

 private:
  int64_t at(int64_t i) const {
    WEFT_CHECK_AS(kOutOfRange, i >= 0 && i < size(), "Subset: index is ", i, "; need 0 to ", size() - 1);
    return indices_[static_cast<size_t>(i)];
  }

  std::shared_ptr<const D> dataset_;
  std::vector<int64_t> indices_;
};

/// A number of items, or a share of them.
struct SplitLength {
  SplitLength(std::integral auto count) : items(static_cast<int64_t>(count)) {}
  SplitLength(double share) : share(share), is_share(true) {}
  int64_t items = 0;
  double share = 0;
  bool is_share = false;
};

namespace internal {
/// Indices 0 to n - 1 in random order, in parts of these lengths; throws unless the lengths have the sum n, or shares
/// the sum 1.
std::vector<std::vector<int64_t>> split_indices(int64_t n, const std::vector<SplitLength>& lengths, uint64_t seed);
}  // namespace internal

/// Parts of a dataset without common items: random_split(d, {80, 20}) or random_split(d, {0.8, 0.2}). Items that shares
/// leave over go to the first parts, one each.
template <Dataset D>
std::vector<Subset<D>> random_split(D dataset, const std::vector<SplitLength>& lengths, uint64_t seed = 0,
                                    std::source_location loc = std::source_location::current()) {
  weft::internal::LineScope line(loc);
  const auto shared = std::make_shared<const D>(std::move(dataset));
  std::vector<Subset<D>> parts;
  for (auto& indices : internal::split_indices(static_cast<int64_t>(shared->size()), lengths, seed))
    parts.emplace_back(shared, std::move(indices));
  return parts;
}

}  // namespace weft::data
