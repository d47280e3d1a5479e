#include "ops/attention/cost.h"

#include "ops/attention/masks/call_mask.h"
#include "ops/core/record_parts.h"

namespace weft::internal {
namespace {

CallSizes sizes_of(const AttentionOperands& at, std::span<const TensorType> in) {
  return {in[0].shape[0], in[0].shape[1], in[0].shape[2], keys_of(at, in)};
}

double scores_of(const CallSizes& s) {
  return static_cast<double>(s.batch * s.heads * s.q_len) * static_cast<double>(s.kv_len);
}

// The cost of this number of scores, with all bytes of operands and results.
Cost cost_of_scores(double scores, const AttentionOperands& at, std::span<const TensorType> in,
                    std::span<const TensorType> out) {
  const double d = static_cast<double>(in[0].shape[3]), dv = static_cast<double>(in[2].shape[3]);
  const bool backward = static_cast<int>(in.size()) > at.count;
  Cost c;
  c.products = scores * (backward ? 6 * d + 4 * dv : 2 * (d + dv));
  c.flops = c.products + scores * (backward ? 30 : 20);
  c.bytes = bytes_of(in) + bytes_of(out);
  return c;
}

MaskCount count_call(const AttentionOperands& at, const WorkCall& c, const CallSizes& sizes) {
  const int64_t kv_batch = at.pages >= 0 ? sizes.batch : c.in[1].shape[0], kv_heads = c.in[1].shape[1];
  const auto whole = [&] {
    return MaskCount{scores_of(sizes), static_cast<double>(kv_batch * kv_heads * sizes.kv_len)};
  };
  if (scores_of(sizes) == 0) return {};
  std::vector<Tensor> kept;  // while their views are read
  const auto views = [&](int first, int count) {
    std::vector<StridedView> all;
    for (int i = 0; i < count; ++i)
      all.push_back(kept.emplace_back(c.value(static_cast<size_t>(first + i))).view_for_kernel());
    return all;
  };
  const bool masked = c.attrs.has("mask");
  if (!masked && at.blocks < 0) return whole();
  std::shared_ptr<const CallMask> mask;
  if (masked)
    mask = mask_of_call(c.attrs.get<Ref<Graph>>("mask"), views(at.mask_first, at.mask_tables), sizes, at.blocks < 0);
  const kernels::BlockMaskView blocks =
      at.blocks < 0 ? mask->view : block_mask_of(c.attrs, sizes.q_len, sizes.kv_len, views(at.blocks, 3).data());
  return count_mask(blocks, mask ? &mask->fill : nullptr, sizes.batch, sizes.heads, kv_batch, kv_heads);
}

}  // namespace

kernels::BlockMaskView block_mask_of(const Attrs& attrs, int64_t q_len, int64_t kv_len, const StridedView* arrays) {
  return {.batch = attrs.i("block_batch"),
          .heads = attrs.i("block_heads"),
          .q_len = q_len,
          .kv_len = kv_len,
          .block_q = attrs.i("block_q"),
          .block_kv = attrs.i("block_kv"),
          .offsets = arrays[0].as<int64_t>(),
          .ranges = arrays[1].as<kernels::BlockRange>(),
          .tiles = arrays[2].as<uint8_t>()};
}

Cost attention_cost(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  const AttentionOperands at(attrs);
  const CallSizes sizes = sizes_of(at, in);
  double scores = scores_of(sizes);
  bool at_most = at.mask_tables > 0 || (at.blocks >= 0 && !attrs.has("mask"));
  if (attrs.has("mask") && !at_most && scores > 0) {
    const VisibleScores counted = mask_of_call(attrs.get<Ref<Graph>>("mask"), {}, sizes, true)->scores(sizes);
    scores = counted.count;
    at_most = counted.at_most;
  }
  Cost c = cost_of_scores(scores, at, in, out);
  c.at_most = at_most;
  return c;
}

Cost attention_done(const WorkCall& call) {
  const AttentionOperands at(call.attrs);
  const MaskCount counted = count_call(at, call, sizes_of(at, call.in));
  Cost c = cost_of_scores(counted.scores, at, call.in, call.out);
  for (size_t i = 1; i < 3; ++i) {
    const TensorType& t = call.in[i];
    c.bytes += counted.keys * static_cast<double>(t.shape[3] * itemsize(t.dtype)) - static_cast<double>(t.nbytes());
  }
  return c;
}

}  // namespace weft::internal
