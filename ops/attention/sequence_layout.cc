#include "ops/attention/sequence_layout.h"

#include "ops/core/core.h"

namespace weft {

Tensor document_layout(const Tensor& document_ids, int64_t ranks) {
  WEFT_CHECK(is_integral(document_ids.dtype()) && (document_ids.dim() == 1 || document_ids.dim() == 2),
             "document_layout: ids are ", document_ids.type(), "; need integers [length] or [rows, length]");
  const int64_t n = document_ids.size(-1);
  WEFT_CHECK(ranks >= 1 && n % ranks == 0, "document_layout: length ", n, " on ", ranks, " ranks; need a multiple of ",
             ranks);
  if (n == 0) return arange(0, {.dtype = kInt64});
  const TensorOptions i64{.dtype = kInt64};
  const Tensor id = reshape(cast(document_ids, kInt64), {-1, n});
  const Tensor begins = amax(cast(ne(slice(id, 1, 1, n), slice(id, 1, 0, n - 1)), kInt64), 0);
  const Tensor document = cat({zeros({1}, i64), cumsum(begins, 0)}, 0);
  const Tensor lengths = histogram(document, n), starts = cumsum(lengths, 0) - lengths;
  const Tensor at = arange(n, i64) - index_select(starts, 0, document);
  const int64_t cut = 2 * ranks;
  const Tensor chunk = floor_divide(index_select(lengths, 0, document), cut);
  const Tensor rest = index_select(lengths, 0, document) - chunk * cut;
  // The owner of chunk or turn t: forward for the first c, backward for the others.
  auto owner = [&](const Tensor& t) { return minimum(t, cut - 1 - t); };
  const Tensor over = lt(at, rest), turn = cumsum(cast(over, kInt64), 0) - 1;
  return argsort(
      where(over, owner(remainder(maximum(turn, 0), cut)), owner(floor_divide(at - rest, maximum(chunk, 1)))), 0);
}

}  // namespace weft
