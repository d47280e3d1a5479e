#pragma once
#include <vector>

#include "ops/core/indexing/view.h"

namespace weft::internal {

/// Consecutive pieces of x along dim 0, of these lengths, as rows [number of lengths, most]; places behind a piece are
/// 0.
inline Tensor padded_rows(const Tensor& x, const std::vector<int64_t>& lengths, int64_t most) {
  std::vector<Tensor> rows;
  int64_t at = 0;
  for (int64_t n : lengths) {
    rows.push_back(pad(slice(x, 0, at, at + n), {0, most - n}));
    at += n;
  }
  return stack(rows);
}

}  // namespace weft::internal
