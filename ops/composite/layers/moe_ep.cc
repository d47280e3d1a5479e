#include "ops/composite/layers/moe_ep.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/state/state.h"
#include "ops/composite/layers/padded_rows.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using internal::FirstOperand;
using internal::LineScope;

std::vector<int64_t> owned_experts(const ExpertParallel& o) {
  WEFT_CHECK(o.ranks >= 1 && o.num_experts >= 1 && o.factor >= 0, "exchange_experts: ", o.num_experts, " experts on ",
             o.ranks, " ranks with factor ", o.factor, "; need one or more of each and a factor of 0 or more");
  std::vector<int64_t> owned = o.owned;
  if (owned.empty())
    for (int64_t p = 0; p < o.ranks; ++p) owned.push_back(o.num_experts / o.ranks + (p < o.num_experts % o.ranks));
  WEFT_CHECK(static_cast<int64_t>(owned.size()) == o.ranks &&
                 std::accumulate(owned.begin(), owned.end(), int64_t{0}) == o.num_experts &&
                 *std::min_element(owned.begin(), owned.end()) >= 0,
             "exchange_experts: experts of the ranks are ", owned, "; need ", o.ranks, " numbers that add up to ",
             o.num_experts);
  const int64_t most = *std::max_element(owned.begin(), owned.end());
  const bool even = *std::min_element(owned.begin(), owned.end()) == most;
  WEFT_CHECK(o.own >= 0 ? std::find(owned.begin(), owned.end(), o.own) != owned.end() : even,
             "exchange_experts: this rank owns ", o.own, " experts of ", owned, "; need one of these numbers");
  return owned;
}

/// Counts [E] as [n, m], one row per rank, zero where a rank has fewer than m experts.
Tensor by_owner(const Tensor& counts, const std::vector<int64_t>& owned, int64_t most) {
  const int64_t n = static_cast<int64_t>(owned.size()), num = counts.size(0);
  return n * most == num ? reshape(counts, {n, most}) : internal::padded_rows(counts, owned, most);
}

Tensor rows_between(const Tensor& x, const Tensor& send, const Tensor& recv, const ExpertExchange& e, int64_t rows) {
  Attrs attrs{{"axes", e.axes}, {"rows", rows}};
  if (e.factor > 0) attrs = attrs.with("factor", e.factor);
  return dispatch(all_to_all_rows_op, {&x, &send, &recv}, attrs);
}

}  // namespace

ExpertExchange exchange_experts(const Arg& experts, const ExpertParallel& options) {
  const FirstOperand t(experts, "exchange_experts");
  return exchange_order(expert_order(t, options.num_experts), options);
}

ExpertExchange exchange_order(const ExpertOrder& order, const ExpertParallel& o) {
  const std::vector<int64_t> owned = owned_experts(o);
  const int64_t most = *std::max_element(owned.begin(), owned.end()), own = o.own >= 0 ? o.own : most;
  WEFT_CHECK(order.counts.numel() == o.num_experts, "exchange_order: the order is of ", order.counts.numel(),
             " experts; need ", o.num_experts);
  ExpertExchange e;
  e.axes = o.axes;
  e.factor = o.factor;
  e.sent = order;
  const int64_t all = o.group_tokens ? o.group_tokens * order.top_k : o.ranks * order.slots.numel();
  const double room = std::ceil(o.factor * static_cast<double>(all) / static_cast<double>(o.ranks));
  e.rows = o.factor == 0 || room > static_cast<double>(all) ? all : static_cast<int64_t>(room);

  // Both [n, m]: how many rows go to each of rank p's experts, and how many come from rank p for each own expert.
  const Tensor going = by_owner(e.sent.counts, owned, most);
  const Tensor coming =
      dispatch(all_to_all_op, {&going},
               {{"axes", o.axes}, {"parts", o.ranks}, {"split_dim", int64_t{0}}, {"concat_dim", int64_t{0}}});
  e.send_counts = sum(going, 1);
  e.recv_counts = sum(coming, 1);

  // The expert of each received row. The number of runs (one rank's rows for one expert) that end at or before the row
  // is the index of its run; rows after the last run get expert number m, which no rank owns.
  const Tensor ends = minimum(cumsum(reshape(coming, {-1}), 0), e.rows);
  const Tensor run = slice(cumsum(histogram(ends, e.rows + 1), 0), 0, 0, e.rows);
  const Tensor expert_of_run =
      pad(reshape(expand(arange(most), {o.ranks, most}), {-1}), {0, 1}, static_cast<double>(most));
  e.received = expert_order(unsqueeze(index_select(expert_of_run, 0, run), 1), most + 1);
  e.offsets = slice(e.received.offsets, 0, 0, own + 1);
  return e;
}

Tensor rows_to_experts(const Arg& rows, const ExpertExchange& e) {
  const FirstOperand x(rows, "rows_to_experts");
  return dispatch_rows(rows_between(x, e.send_counts, e.recv_counts, e, e.rows), e.received);
}

Tensor rows_from_experts(const Arg& rows, const ExpertExchange& e) {
  const FirstOperand y(rows, "rows_from_experts");
  return rows_between(combine_rows(y, e.received), e.recv_counts, e.send_counts, e, e.sent.slots.numel());
}

Tensor dispatch_to_experts(const Arg& x, const ExpertExchange& e) {
  LineScope line(x.line());
  return rows_to_experts(dispatch_rows(x, e.sent), e);
}

Tensor combine_from_experts(const Arg& y, const ExpertExchange& e, const Arg& weights) {
  LineScope line(y.line());
  return combine_rows(rows_from_experts(y, e), e.sent, weights);
}

}  // namespace weft
