#include "models/data/split.h"

#include <cmath>

namespace weft::data::internal {

std::vector<std::vector<int64_t>> split_indices(int64_t n, const std::vector<SplitLength>& lengths, uint64_t seed) {
  WEFT_CHECK(!lengths.empty(), "random_split: got no lengths; need one or more");
  std::vector<int64_t> counts;
  double shares = 0;
  int64_t sum = 0;
  for (const SplitLength& l : lengths) {
    WEFT_CHECK(l.is_share == lengths[0].is_share, "random_split: got numbers of items and shares; need one kind");
    WEFT_CHECK(l.is_share ? l.share >= 0 && l.share <= 1 : l.items >= 0, "random_split: a length is ",
               l.is_share ? str_cat(l.share) : str_cat(l.items), "; need ",
               l.is_share ? "shares from 0 to 1" : "0 items or more");
    shares += l.share;
    counts.push_back(l.is_share ? static_cast<int64_t>(std::floor(l.share * static_cast<double>(n))) : l.items);
    sum += counts.back();
  }
  if (lengths[0].is_share) {
    WEFT_CHECK(std::fabs(shares - 1) < 1e-9, "random_split: the sum of the shares is ", shares, "; need 1");
    for (size_t i = 0; sum < n; ++sum) ++counts[i++ % counts.size()];
  }
  WEFT_CHECK(sum == n, "random_split: the sum of the lengths is ", sum, " and the dataset has ", n,
             " items; need equal numbers");
  std::vector<std::vector<int64_t>> parts;
  int64_t next = 0;
  for (int64_t count : counts) {
    std::vector<int64_t>& part = parts.emplace_back();
    for (int64_t i = 0; i < count; ++i) part.push_back(index_at(next++, n, /*shuffle=*/true, seed, 0));
  }
  return parts;
}

}  // namespace weft::data::internal
