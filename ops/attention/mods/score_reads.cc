#include "ops/attention/mods/score_reads.h"

#include <algorithm>
#include <cmath>

#include "framework/dispatch/state/state.h"
#include "ops/core/core.h"

namespace weft::internal {

void check_reads(const char* what, const Graph& mod, const std::vector<IndexRead>& reads, const Shape& scores,
                 const Tensor& seen, const std::array<int64_t, 4>& origin) {
  NoGrad guard;
  std::vector<uint8_t> passes;
  for (const IndexRead& r : reads) {
    auto outside = [&](int64_t i) { return i < 0 || i >= r.extent; };
    // Usually they depend on few of the scores' dims, and are few.
    const std::vector<int64_t> own = r.at.contiguous().to_vector<int64_t>();
    if (std::none_of(own.begin(), own.end(), outside)) continue;
    const std::vector<int64_t> at = broadcast_to(r.at, scores).contiguous().to_vector<int64_t>();
    if (passes.empty() && seen.defined()) passes = broadcast_to(seen, scores).contiguous().to_vector<uint8_t>();
    for (int64_t i = 0; i < static_cast<int64_t>(at.size()); ++i) {
      if (!outside(at[i]) || (seen.defined() && !passes[i])) continue;
      const int64_t kv = i % scores[3], row = i / scores[3];
      fail(Code::kOutOfRange,
           str_cat(what, ": index ", at[i], " is out of range for a captured ", mod.type(mod.inputs[r.input]),
                   " at (b ", origin[0] + row / scores[2] / scores[1], ", h ", origin[1] + row / scores[2] % scores[1],
                   ", q ", origin[2] + row % scores[2], ", kv ", origin[3] + kv, ")",
                   r.line.line ? str_cat(", read at ", r.line.to_string()) : std::string(), "; need 0 <= index < ",
                   r.extent, ": make the table as long as the lengths, or clamp the index"));
    }
  }
}

void check_score_reads(const Graph& score, std::span<const StridedView> tables, const kernels::Attention& a,
                       const float* log_sum) {
  const int64_t heads = a.q.shape[1], sq = a.q.shape[2], rows = a.q.shape[0] * heads * sq;
  const int64_t skv = a.k.shape[2] * (a.pages ? a.page_count : 1);
  bool reads_tables = false;
  for (int32_t id = 0; id < score.size() && !reads_tables; ++id) reads_tables = score.node(id).op == &index_select_op;
  if (!reads_tables) return;
  std::vector<int64_t> bad;
  for (int64_t row = 0; row < rows; ++row)
    if (std::isnan(log_sum[row])) bad.push_back(row);
  if (bad.empty()) return;
  NoGrad guard;
  const TensorOptions i64{.dtype = kInt64};
  const Shape line{1, 1, 1, skv};
  const size_t step = (bad.size() + 63) / 64;
  for (size_t n = 0; n < bad.size(); n += step) {
    const int64_t q = bad[n] % sq, h = bad[n] / sq % heads, b = bad[n] / sq / heads;
    std::vector<Tensor> in{zeros(line)};
    for (int64_t i : {b, h, q}) in.push_back(full({1, 1, 1, 1}, i, i64));
    in.push_back(reshape(arange(skv, i64), line));
    for (const StridedView& t : tables) in.push_back(Tensor::from_blob(t.data, t.shape, t.dtype));
    std::vector<IndexRead> reads;
    map_mod(score, 5, in, nullptr, &reads);
    Tensor seen;
    if (a.mask) {
      std::vector<uint8_t> bits((skv + 511) / 512 * 64), passes(skv);
      a.mask->run(a.mask->context, b, h, q, 0, 1, skv, bits.data(), static_cast<int64_t>(bits.size()));
      for (int64_t j = 0; j < skv; ++j) passes[j] = bits[j / 8] >> (j % 8) & 1;
      seen = Tensor::from_vector<uint8_t>(passes, line);
    }
    check_reads("score_mod", score, reads, line, seen, {b, h, q, 0});
  }
}

}  // namespace weft::internal
