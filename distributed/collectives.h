// Collectives for programs written by hand, eagerly and in capture. They run on the threads of dist::run or World::run.
// `axes` names mesh dimensions: "tp", "dp,cp" (the first is the major one), "world". Gradients are taken of the sum of
// all ranks' losses, except through copy_to and reduce_from, which are for one loss that every rank computes.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/rank/rank.h"

namespace weft::dist {

/// x of all ranks combined by op: sum, avg, max or min. Backward: the sum of the gradients (avg: their average; max and
/// min: divided evenly among the ranks that had the value).
Tensor all_reduce(const Arg& x, const std::string& axes, const std::string& op = "sum");
/// x of all ranks, one after another along dim; `sizes` are their extents if uneven. Backward: reduce_scatter.
Tensor all_gather(const Arg& x, const std::string& axes, int64_t dim = 0, const std::vector<int64_t>& sizes = {});
/// This rank's part along dim of x of all ranks combined by op (sum, avg; without gradient max, min); `sizes` are the
/// parts' extents if uneven. Backward: all_gather.
Tensor reduce_scatter(const Arg& x, const std::string& axes, int64_t dim = 0, const std::string& op = "sum",
                      const std::vector<int64_t>& sizes = {});
/// The p-th part of x along dim 0 goes to rank p; the result concatenates the parts received from rank 0, 1, ....
/// `send_sizes` and `recv_sizes` are the extents of the parts; empty: equal extents. Backward: the reverse exchange.
Tensor all_to_all_single(const Arg& x, const std::string& axes, const std::vector<int64_t>& send_sizes = {},
                         const std::vector<int64_t>& recv_sizes = {});
/// Splits x along split_dim over the ranks, and joins the received parts along concat_dim. Backward: all_to_all with
/// the dims exchanged.
Tensor all_to_all(const Arg& x, const std::string& axes, int64_t split_dim, int64_t concat_dim);
/// all_to_all_single for row counts that are known only at run time: i64 tensors with one count for each rank. The
/// result has `rows` rows, padded with zeros; to receive more rows is an error. Backward: all_to_all_rows with the
/// counts exchanged.
Tensor all_to_all_rows(const Arg& x, const Arg& send_counts, const Arg& recv_counts, const std::string& axes,
                       int64_t rows);
/// x of rank `root`. Backward: the sum of the gradients on root, zero elsewhere.
Tensor broadcast(const Arg& x, const std::string& axes, int64_t root = 0);
/// x of the rank `shift` places before this one in a ring. Backward: shift_ranks by -shift.
Tensor shift_ranks(const Arg& x, const std::string& axes, int64_t shift = 1);
/// Sends x to rank `peer`. Returns a receipt, a 0-d zero: if you add it to the loss, backward receives x's gradient.
Tensor send(const Arg& x, const std::string& axes, int64_t peer);
/// Receives a tensor like `like` from rank `peer`. Backward: sends the gradient to peer, if `like` requires grad.
Tensor recv(const Arg& like, const std::string& axes, int64_t peer);

/// A started send or receive: the rank computes while the transfer waits for its peer. The tensor must not be written
/// before wait(). A transfer that is destroyed before wait() fails on both ranks.
class Transfer {
 public:
  Transfer(Transfer&& o) noexcept
      : value_(std::move(o.value_)), rank_(std::exchange(o.rank_, nullptr)), site_(o.site_) {}
  Transfer& operator=(Transfer&& o) noexcept;
  ~Transfer();
  /// Waits until the transfer is done, and returns the tensor that was sent or received. Throws the transfer's error.
  Tensor wait();

 private:
  friend Transfer start_send(const Arg& x, const std::string& axes, int64_t peer);
  friend Transfer start_recv(const Arg& like, const std::string& axes, int64_t peer);
  Transfer(Tensor value, const std::string& axes, CommRequest request);

  Tensor value_;
  RankContext* rank_ = nullptr;  // null: done
  uint64_t site_ = 0;
};
/// Start to send x to rank `peer`, or to receive a tensor like `like` from it. Eager only, without gradients. Two ranks
/// must start the transfers between them in the same order; sends in opposite directions do not wait for each other.
Transfer start_send(const Arg& x, const std::string& axes, int64_t peer);
Transfer start_recv(const Arg& like, const std::string& axes, int64_t peer);

/// Returns x, which is equal on all ranks and which each rank then uses differently. Backward: all_reduce of the
/// gradients (Megatron's f).
Tensor copy_to(const Arg& x, const std::string& axes);
/// The sum of x over the ranks. Backward: the unchanged gradient, which is equal on all ranks (Megatron's g).
Tensor reduce_from(const Arg& x, const std::string& axes);

/// Returns x. In a function of accumulate() on a mesh with pp, the next pipeline stage begins after it: a step marks
/// all its stages but the first, or none. Elsewhere it has no effect.
Tensor stage_boundary(const Arg& x);

/// This rank's coordinate along these axes, and the number of ranks along them, as host numbers.
int64_t coordinate(const std::string& axes);
int64_t group_size(const std::string& axes);
/// The same coordinate as a value of the graph, i64 and 0-d: one graph serves all ranks.
Tensor rank_coordinate(const std::string& axes);

}  // namespace weft::dist
