#include "ops/attention/sequence_layout.h"

#include "ops/core/core.h"

namespace weft {

Tensor head_tail_layout(int64_t length, int64_t ranks) {
  WEFT_CHECK(ranks >= 1 && length % (2 * ranks) == 0, "head_tail_layout: length ", length, " on ", ranks,
             " ranks; need a multiple of ", 2 * ranks);
  std::vector<int64_t> chunks;
  for (int64_t i = 0; i < ranks; ++i) chunks.push_back(i), chunks.push_back(2 * ranks - 1 - i);
  const Tensor order = Tensor::from_vector<int64_t>(chunks, {2 * ranks});
  const Tensor all = reshape(arange(length, {.dtype = kInt64}), {2 * ranks, length / (2 * ranks)});
  return reshape(index_select(all, 0, order), {length});
}

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

std::vector<int64_t> causal_pairs(int64_t length, int64_t ranks, const Tensor& layout, const Tensor& document_ids) {
  WEFT_CHECK(ranks >= 1 && length % ranks == 0, "causal_pairs: length ", length, " on ", ranks,
             " ranks; need a multiple of ", ranks);
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

}  // namespace weft
