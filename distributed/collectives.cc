#include "distributed/collectives.h"

#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/rank/rank.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/creation.h"

namespace weft::dist {
namespace {

using weft::internal::tensor_of;

Communicator& communicator(const char* op, const std::string& axes) {
  return RankContext::require(op).communicator(axes);
}

int64_t dim_of(const Tensor& x, int64_t dim, const char* op) { return normalize_dim(dim, x.dim(), op); }

}  // namespace

Tensor all_reduce(const Arg& x, const std::string& axes, const std::string& op) {
  return dispatch(all_reduce_op, {&tensor_of(x, "all_reduce")}, {{"axes", axes}, {"op", op}}, x.line());
}

Tensor all_gather(const Arg& x, const std::string& axes, int64_t dim, const std::vector<int64_t>& sizes) {
  const Tensor& t = tensor_of(x, "all_gather");
  Attrs attrs{{"axes", axes},
              {"dim", dim_of(t, dim, "all_gather")},
              {"parts", int64_t{communicator("all_gather", axes).size()}}};
  if (!sizes.empty()) attrs = attrs.with("sizes", sizes_text(sizes));
  return dispatch(all_gather_op, {&t}, attrs, x.line());
}

Tensor reduce_scatter(const Arg& x, const std::string& axes, int64_t dim, const std::string& op,
                      const std::vector<int64_t>& sizes) {
  const Tensor& t = tensor_of(x, "reduce_scatter");
  const Communicator& c = communicator("reduce_scatter", axes);
  Attrs attrs{{"axes", axes}, {"op", op}, {"dim", dim_of(t, dim, "reduce_scatter")}, {"parts", int64_t{c.size()}}};
  if (!sizes.empty()) {
    WEFT_CHECK(static_cast<int>(sizes.size()) == c.size(), "reduce_scatter: ", sizes.size(), " sizes; ", axes, " has ",
               c.size(), " ranks");
    attrs = attrs.with("sizes", sizes_text(sizes)).with("extent", sizes[c.rank()]);
  }
  return dispatch(reduce_scatter_op, {&t}, attrs, x.line());
}

Tensor all_to_all_single(const Arg& x, const std::string& axes, const std::vector<int64_t>& send_sizes,
                         const std::vector<int64_t>& recv_sizes) {
  WEFT_CHECK(send_sizes.empty() == recv_sizes.empty(), "all_to_all_single: got ", send_sizes.size(), " send sizes and ",
             recv_sizes.size(), " receive sizes; need both or none");
  Attrs attrs{{"axes", axes},
              {"split_dim", int64_t{0}},
              {"concat_dim", int64_t{0}},
              {"parts", int64_t{communicator("all_to_all_single", axes).size()}}};
  if (!send_sizes.empty())
    attrs = attrs.with("split_sizes", sizes_text(send_sizes)).with("concat_sizes", sizes_text(recv_sizes));
  return dispatch(all_to_all_op, {&tensor_of(x, "all_to_all_single")}, attrs, x.line());
}

Tensor all_to_all(const Arg& x, const std::string& axes, int64_t split_dim, int64_t concat_dim) {
  const Tensor& t = tensor_of(x, "all_to_all");
  return dispatch(all_to_all_op, {&t},
                  {{"axes", axes},
                   {"split_dim", dim_of(t, split_dim, "all_to_all")},
                   {"concat_dim", dim_of(t, concat_dim, "all_to_all")},
                   {"parts", int64_t{communicator("all_to_all", axes).size()}}},
                  x.line());
}

Tensor all_to_all_rows(const Arg& x, const Arg& send_counts, const Arg& recv_counts, const std::string& axes,
                       int64_t rows) {
  const char* op = "all_to_all_rows";
  return dispatch(all_to_all_rows_op, {&tensor_of(x, op), &tensor_of(send_counts, op), &tensor_of(recv_counts, op)},
                  {{"axes", axes}, {"rows", rows}}, x.line());
}

Tensor broadcast(const Arg& x, const std::string& axes, int64_t root) {
  return dispatch(broadcast_ranks_op, {&tensor_of(x, "broadcast")}, {{"axes", axes}, {"root", root}}, x.line());
}

Tensor shift_ranks(const Arg& x, const std::string& axes, int64_t shift) {
  return dispatch(permute_ranks_op, {&tensor_of(x, "shift_ranks")}, {{"axes", axes}, {"shift", shift}}, x.line());
}

Tensor send(const Arg& x, const std::string& axes, int64_t peer) {
  return dispatch(send_op, {&tensor_of(x, "send")}, {{"axes", axes}, {"peer", peer}}, x.line());
}

Tensor recv(const Arg& like, const std::string& axes, int64_t peer) {
  return dispatch(recv_op, {&tensor_of(like, "recv")}, {{"axes", axes}, {"peer", peer}}, like.line());
}

Transfer::Transfer(Tensor value, const std::string& axes, CommRequest request)
    : value_(std::move(value)), rank_(&RankContext::require(to_string_view(request.kind).data())) {
  site_ = request.site = rank_->new_site();
  (request.kind == Collective::kSend ? request.in : request.out) = value_.view_for_kernel();
  rank_->start(axes, request);
}

Transfer::~Transfer() {
  if (rank_) rank_->drop(site_);
}

Transfer& Transfer::operator=(Transfer&& o) noexcept {
  if (rank_) rank_->drop(site_);
  value_ = std::move(o.value_);
  rank_ = std::exchange(o.rank_, nullptr);
  site_ = o.site_;
  return *this;
}

Tensor Transfer::wait() {
  if (RankContext* const rank = std::exchange(rank_, nullptr)) rank->finish(site_);
  return value_;
}

Transfer start_send(const Arg& x, const std::string& axes, int64_t peer) {
  const Tensor& t = tensor_of(x, "start_send");
  WEFT_CHECK_AS(kFailedPrecondition, !t.is_traced(),
                "start_send: called in a compiled function; need send, which the compiler may start early");
  return {t.detach(), axes, {.kind = Collective::kSend, .peer = static_cast<int>(peer)}};
}

Transfer start_recv(const Arg& like, const std::string& axes, int64_t peer) {
  const Tensor& t = tensor_of(like, "start_recv");
  WEFT_CHECK_AS(kFailedPrecondition, !t.is_traced(),
                "start_recv: called in a compiled function; need recv, which the compiler may start early");
  return {Tensor::empty(t.type()), axes, {.kind = Collective::kRecv, .peer = static_cast<int>(peer)}};
}

Tensor stage_boundary(const Arg& x) {
  const Tensor& t = tensor_of(x, "stage_boundary");
  return t.is_traced() ? dispatch(stage_boundary_op, {&t}, {}, x.line()) : t;
}

Tensor copy_to(const Arg& x, const std::string& axes) {
  return dispatch(copy_to_op, {&tensor_of(x, "copy_to")}, {{"axes", axes}}, x.line());
}

Tensor reduce_from(const Arg& x, const std::string& axes) {
  return dispatch(all_reduce_op, {&tensor_of(x, "reduce_from")},
                  {{"axes", axes}, {"op", std::string("sum")}, {"identity_grad", true}}, x.line());
}

int64_t coordinate(const std::string& axes) { return communicator("coordinate", axes).rank(); }
int64_t group_size(const std::string& axes) { return communicator("group_size", axes).size(); }
Tensor rank_coordinate(const std::string& axes) { return dispatch(rank_coordinate_op, {}, {{"axes", axes}}); }

}  // namespace weft::dist
