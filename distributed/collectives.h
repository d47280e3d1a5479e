// Collectives for programs written by hand, eagerly and in capture. They run on the threads of dist::run or World::run.
// `axes` names mesh dimensions: "tp", "dp,cp" (the first is the major one), "world". Gradients are those of the sum of
// all ranks' losses, except through copy_to and reduce_from, which are for a loss that every rank computes alike.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/rank.h"

namespace weft::dist {

/// x of all ranks combined by op: sum, avg, max or min. Backward: the gradients' sum (avg: average; max and min: to the
/// ranks that had it, shared evenly).
Tensor all_reduce(const Arg& x, const std::string& axes, const std::string& op = "sum");
/// x of all ranks, one after another along dim; `sizes` are their extents if uneven. Backward: reduce_scatter.
Tensor all_gather(const Arg& x, const std::string& axes, int64_t dim = 0, const std::vector<int64_t>& sizes = {});
/// This rank's part along dim of x of all ranks combined by op (sum, avg; without gradient max, min); `sizes` are the
/// parts' extents if uneven. Backward: all_gather.
Tensor reduce_scatter(const Arg& x, const std::string& axes, int64_t dim = 0, const std::string& op = "sum",
                      const std::vector<int64_t>& sizes = {});
/// The p-th part of x along dim 0 goes to rank p; the result is what came from rank 0, 1, ... in turn. `send_sizes` and
/// `recv_sizes` are the parts' extents, equal ones if empty. Backward: the same the other way.
Tensor all_to_all_single(const Arg& x, const std::string& axes, const std::vector<int64_t>& send_sizes = {},
                         const std::vector<int64_t>& recv_sizes = {});
/// Parts along split_dim go to the ranks, parts from the ranks are joined along concat_dim. Backward: the same with the
/// dims exchanged.
Tensor all_to_all(const Arg& x, const std::string& axes, int64_t split_dim, int64_t concat_dim);
/// As all_to_all_single for numbers of rows known only when it runs: i64 tensors with one count for each rank. The
/// result has `rows` rows, the last ones zero; more than that is an error. Backward: the same with the counts
/// exchanged.
Tensor all_to_all_rows(const Arg& x, const Arg& send_counts, const Arg& recv_counts, const std::string& axes,
                       int64_t rows);
/// x of rank `root`. Backward: the gradients' sum on root, zero elsewhere.
Tensor broadcast(const Arg& x, const std::string& axes, int64_t root = 0);
/// x of the rank `shift` places before this one in a ring. Backward: the ring the other way.
Tensor shift_ranks(const Arg& x, const std::string& axes, int64_t shift = 1);
/// Gives x to rank `peer`. The result is a receipt, a 0-d zero; add it to the loss and backward receives x's gradient.
Tensor send(const Arg& x, const std::string& axes, int64_t peer);
/// What rank `peer` sends, a tensor like `like`. Backward: sends the gradient to peer, if `like` requires grad.
Tensor recv(const Arg& like, const std::string& axes, int64_t peer);

/// A send or a receive that has started: the rank computes on while it waits for its peer. Nobody may write its tensor
/// before wait(). If it is destroyed before that, it fails on both ranks.
class Transfer {
 public:
  Transfer(Transfer&& o) noexcept
      : value_(std::move(o.value_)), rank_(std::exchange(o.rank_, nullptr)), site_(o.site_) {}
  Transfer& operator=(Transfer&& o) noexcept;
  ~Transfer();
  /// Waits until it is done, and returns its tensor: the one that was sent or received. Throws its error.
  Tensor wait();

 private:
  friend Transfer start_send(const Arg& x, const std::string& axes, int64_t peer);
  friend Transfer start_recv(const Arg& like, const std::string& axes, int64_t peer);
  Transfer(Tensor value, const std::string& axes, CommRequest request);

  Tensor value_;
  RankContext* rank_ = nullptr;  // null: done
  uint64_t site_ = 0;
};
/// Starts to give x to rank `peer`, and to receive from it a tensor like `like`. Eager only, without gradients. Two
/// ranks start the transfers between them in the same order; sends in opposite directions do not wait for each other.
Transfer start_send(const Arg& x, const std::string& axes, int64_t peer);
Transfer start_recv(const Arg& like, const std::string& axes, int64_t peer);

/// x itself, which is equal on all ranks, before each uses it differently. Backward: all_reduce of the gradients
/// (Megatron's f).
Tensor copy_to(const Arg& x, const std::string& axes);
/// The sum of x over the ranks. Backward: the gradient as it is, which is equal on all ranks (Megatron's g).
Tensor reduce_from(const Arg& x, const std::string& axes);

/// x itself. In a function of accumulate() on a mesh with pp, the next pipeline stage begins behind it: a step has such
/// marks for all its stages but the first, or for none. Elsewhere it has no effect.
Tensor stage_boundary(const Arg& x);

/// This rank's coordinate along these axes, and the number of ranks along them, as host numbers.
int64_t coordinate(const std::string& axes);
int64_t group_size(const std::string& axes);
/// The same coordinate as a value of the graph, i64 and 0-d: one graph serves all ranks.
Tensor rank_coordinate(const std::string& axes);

}  // namespace weft::dist
