#include "distributed/comm/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "distributed/comm/transfer.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"

namespace weft::dist {
namespace {

using internal::Box;
using internal::Transfer;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

constexpr int64_t kBoxBytes = 256 << 10;   // a thread checks for failure after each box
constexpr int64_t kSmallBytes = 64 << 10;  // up to this size the rank that starts last does all the work itself

// One rank's request, with its own copy of the counts.
struct Request : CommRequest {
  std::vector<int64_t> send, recv;
  Request() = default;
  explicit Request(const CommRequest& r)
      : CommRequest(r),
        send(r.send_counts.begin(), r.send_counts.end()),
        recv(r.recv_counts.begin(), r.recv_counts.end()) {}
};

bool point_to_point(Collective c) { return c == Collective::kSend || c == Collective::kRecv; }
bool combines(Collective c) { return c == Collective::kAllReduce || c == Collective::kReduceScatter; }
DType dtype_of(const Request& r) { return r.kind == Collective::kRecv ? r.out.dtype : r.in.dtype; }

std::string text_of(const Request& r) {
  std::string s = str_cat(r.kind);
  if (r.kind != Collective::kBarrier) {
    if (combines(r.kind)) s += str_cat(" ", r.op);
    const StridedView& v = r.kind == Collective::kRecv ? r.out : r.in;
    s += str_cat(" of ", v.dtype, v.shape);
  }
  if (r.kind == Collective::kBroadcast) s += str_cat(" from rank ", r.peer);
  if (r.kind == Collective::kPermute) s += str_cat(" by ", r.shift);
  if (r.site && r.site < kOwnSites) s += str_cat(" (site ", r.site, ")");
  return s;
}

// One collective: the requests of its ranks, then the copies that implement it.
struct Op : RefCounted {
  std::vector<int> members;  // ranks, by position in `requests`
  std::vector<Request> requests;
  std::vector<bool> here;
  int arrived = 0, first = -1;
  uint64_t number = 0;  // among those of its ranks, for messages
  uint64_t id = 0;      // Work::number()
  bool ready = false, failed = false;
  std::optional<Error> error;
  std::vector<Transfer> transfers;
  std::vector<Box> boxes;
  size_t next = 0, done = 0;
  int active = 0;  // boxes in progress
  std::condition_variable changed;
  int splits = 0;  // ranks that called split(), with the colour and key of each, and their new communicators
  std::vector<std::pair<int, int>> colors;
  std::vector<Ref<Communicator>> parts;

  bool finished() const { return failed ? active == 0 : ready && done == boxes.size(); }
};

class Group final : public RefCounted {
 public:
  Group(int size, std::string name, std::vector<int> ranks)
      : size_(size), name_(std::move(name)), ranks_(std::move(ranks)), started_(size), last_(size), retired_(size) {
    for (int r = static_cast<int>(ranks_.size()); r < size; ++r) ranks_.push_back(r);
  }
  int size() const { return size_; }

  /// The op that this request joins; null with `*error` set if the group has failed.
  Ref<Op> start(int rank, const CommRequest& request, std::optional<Error>* error,
                std::pair<int, int>* color = nullptr) {
    Lock lock(mutex_.native());
    if (failed_) {
      *error = failed_;
      return {};
    }
    Request r(request);
    if (point_to_point(r.kind) && (r.peer < 0 || r.peer >= size_ || r.peer == rank)) {
      const Error wrong(Code::kInvalidArgument, str_cat(where(r.kind, 0), who(rank), " names peer ", r.peer,
                                                        "; need another rank from 0 to ", size_ - 1));
      fail(wrong);
      *error = wrong;
      return {};
    }
    Ref<Op> op = point_to_point(r.kind) ? join_pair(rank, r) : join(rank, r);
    const size_t at = position(*op, rank);
    op->here[at] = true;
    op->requests[at] = std::move(r);
    if (op->first < 0) op->first = static_cast<int>(at);
    if (color) {
      op->colors[at] = *color;
      ++op->splits;
    }
    ++op->arrived;
    last_[rank] = {op->requests[at].kind, op->number};
    try {
      agree(*op, op->first, at);
      if (op->arrived == static_cast<int>(op->members.size())) {
        build(*op);
        op->ready = true;
        if (op->boxes.empty()) finish(*op);
        op->changed.notify_all();
      } else {
        fail_if_retired(*op);
      }
    } catch (const Error& e) {
      fail_op(*op, e);
    }
    int64_t bytes = 0;
    for (const Transfer& t : op->transfers)
      bytes += t.shape().numel() * itemsize(t.from[0].dtype) * static_cast<int64_t>(t.from.size() + t.to.size());
    const bool small = op->ready && bytes <= kSmallBytes;
    lock.unlock();
    if (small) work_on(*op);
    return op;
  }

  std::optional<Error> wait(Op& op, Work::Deadline deadline) {
    Lock lock(mutex_.native());
    while (!op.finished()) {
      if (op.ready && !op.failed && op.next < op.boxes.size()) {
        const size_t left = op.boxes.size() - op.next;
        lock.unlock();
        parallel_for(std::min<int64_t>(num_threads(), static_cast<int64_t>(left)), [&](int64_t) { work_on(op); });
        lock.lock();
      } else if (op.changed.wait_until(lock, deadline) == std::cv_status::timeout && !op.finished()) {
        // Boxes that others still copy keep this rank's memory in use: leave() waits for them.
        if (op.failed) break;
        fail_op(op, op.ready ? still_copying(op) : missing(op, Code::kDeadlineExceeded, "the deadline has passed"));
        break;
      }
    }
    return op.error;
  }

  bool done(Op& op) {
    Lock lock(mutex_.native());
    return op.finished();
  }

  /// A rank drops the op without waiting for it: its memory is about to be freed.
  void leave(Op& op, int rank) {
    Lock lock(mutex_.native());
    if (op.finished()) return;
    if (!op.failed)
      fail_op(op, Error(Code::kAborted, str_cat(where(op.requests[position(op, rank)].kind, op.number), who(rank),
                                                " dropped it without waiting")));
    while (!op.finished()) op.changed.wait(lock);  // no deadline: others still use this rank's memory
  }

  void retire(int rank, bool retired) {
    Lock lock(mutex_.native());
    retired_[rank] = retired;
    const std::vector<Ref<Op>> all = live_;
    for (const Ref<Op>& op : all)
      if (!op->ready && !op->failed) fail_if_retired(*op);
  }

  void abort(const std::string& cause) {
    Lock lock(mutex_.native());
    if (!failed_) fail(Error(Code::kAborted, cause.empty() ? "no cause given" : cause));
  }

 private:
  struct Pair {
    uint64_t sent = 0, received = 0;
    std::map<uint64_t, Ref<Op>> open;
  };

  std::string who(int rank) const { return str_cat("rank ", ranks_[rank]); }
  std::string where(Collective kind, uint64_t number) const {
    std::string s = str_cat(kind);
    if (number) s += str_cat(" #", number);
    return name_.empty() ? s + ": " : str_cat(s, " over ", name_, ": ");
  }
  static size_t position(const Op& op, int rank) {
    return std::find(op.members.begin(), op.members.end(), rank) - op.members.begin();
  }

  Ref<Op> make_op(std::vector<int> members, uint64_t number) {
    auto op = make_ref<Op>();
    op->requests.resize(members.size());
    op->here.resize(members.size());
    op->colors.resize(members.size());
    op->members = std::move(members);
    op->number = number;
    op->id = group_number_ << 32 | ++ops_made_;
    live_.push_back(op);
    return op;
  }

  // The k-th collective that a rank starts joins the k-th of all other ranks.
  Ref<Op> join(int rank, const Request&) {
    const uint64_t k = started_[rank]++;
    if (k - base_ == open_.size()) {
      std::vector<int> all(size_);
      for (int r = 0; r < size_; ++r) all[r] = r;
      open_.push_back(make_op(std::move(all), k + 1));
    }
    Ref<Op> op = open_[k - base_];
    if (op->arrived + 1 == size_) {  // so all earlier ones are complete too
      open_.pop_front();
      ++base_;
    }
    return op;
  }

  // The k-th send from a to b joins b's k-th receive from a.
  Ref<Op> join_pair(int rank, const Request& r) {
    const bool sends = r.kind == Collective::kSend;
    const std::pair<int, int> key = sends ? std::pair(rank, r.peer) : std::pair(r.peer, rank);
    Pair& p = pairs_[key];
    const uint64_t k = sends ? p.sent++ : p.received++;
    if (auto it = p.open.find(k); it != p.open.end()) {
      Ref<Op> op = it->second;
      p.open.erase(it);
      return op;
    }
    return p.open[k] = make_op({key.first, key.second}, k + 1);
  }

  // Throws if two ranks started different collectives.
  void agree(const Op& op, int first, size_t second) const {
    const Request &a = op.requests[first], &b = op.requests[second];
    const bool pair = point_to_point(a.kind);
    bool same = (pair || a.kind == b.kind) && dtype_of(a) == dtype_of(b);
    if (combines(a.kind)) same &= a.op == b.op;
    if (a.kind == Collective::kBroadcast) same &= a.peer == b.peer;
    if (a.kind == Collective::kPermute) same &= (a.shift - b.shift) % size_ == 0;
    if (!pair) same &= a.in_dim == b.in_dim && a.out_dim == b.out_dim;
    WEFT_CHECK(same, where(a.kind, op.number), who(op.members[second]), " started ", text_of(b), ", but ",
               who(op.members[first]), " started ", text_of(a),
               "; all ranks must start the same collectives in the same order");
  }

  // The part of `view` along `dim` that goes to or comes from rank `peer`.
  StridedView part(const Op& op, int rank, const StridedView& view, int dim, const std::vector<int64_t>& counts,
                   int peer) const {
    const Collective kind = op.requests[rank].kind;
    WEFT_CHECK(dim >= 0 && dim < view.shape.size(), where(kind, op.number), who(rank), " splits dim ", dim, " of ",
               view.shape, "; need a dim below ", view.shape.size());
    if (counts.empty()) {
      WEFT_CHECK(view.shape[dim] % size_ == 0, where(kind, op.number), "dim ", dim, " of ", view.shape, " on ",
                 who(rank), " does not divide by ", size_, "; give the sizes of uneven parts");
      const int64_t n = view.shape[dim] / size_;
      return internal::slice(view, dim, peer * n, n);
    }
    int64_t begin = 0, total = 0;
    bool positive = static_cast<int>(counts.size()) == size_;
    for (size_t p = 0; p < counts.size(); ++p) {
      if (static_cast<int>(p) < peer) begin += counts[p];
      total += counts[p];
      positive &= counts[p] >= 0 && total <= view.shape[dim];
    }
    WEFT_CHECK(positive, where(kind, op.number), who(rank), " has parts ", counts, " of dim ", dim, " of ", view.shape,
               "; need ", size_, " sizes of 0 or more that sum to at most ", view.shape[dim]);
    return internal::slice(view, dim, begin, counts[peer]);
  }

  void add(Op& op, Transfer t, int from_rank, const std::vector<int>& to_ranks) const {
    const Collective kind = op.requests[0].kind;
    for (const StridedView& f : t.from)
      WEFT_CHECK(f.shape == t.shape() && f.dtype == t.from[0].dtype, where(kind, op.number), "the input of ",
                 who(op.members[0]), " is ", t.from[0].dtype, t.shape(), " and that of ",
                 who(op.members[&f - t.from.data()]), " is ", f.dtype, f.shape, "; need the same type on all ranks");
    for (size_t k = 0; k < t.to.size(); ++k)
      WEFT_CHECK(t.to[k].shape == t.shape() && t.to[k].dtype == t.from[0].dtype, where(kind, op.number),
                 who(op.members[from_rank]), " sends ", t.from[0].dtype, t.shape(), ", but ",
                 who(op.members[to_ranks[k]]), " expects ", t.to[k].dtype, t.to[k].shape);
    internal::cut(t, static_cast<int32_t>(op.transfers.size()), kBoxBytes, op.boxes);
    op.transfers.push_back(std::move(t));
  }

  // Lists the copies of a collective that all ranks have started.
  void build(Op& op) const {
    std::vector<Request>& r = op.requests;
    const int n = static_cast<int>(r.size());
    std::vector<int> everyone(n);
    for (int i = 0; i < n; ++i) everyone[i] = i;
    Transfer t;
    switch (r[0].kind) {
      case Collective::kBarrier:
        WEFT_CHECK(op.splits == 0 || op.splits == n, where(r[0].kind, op.number),
                   "some ranks call split() and others do not");
        if (op.splits) make_parts(op);
        return;
      case Collective::kAllReduce:
        t.op = r[0].op;
        check_reducible(op);
        for (const Request& x : r) {
          t.from.push_back(x.in);
          t.to.push_back(x.out);
        }
        return add(op, std::move(t), 0, everyone);
      case Collective::kBroadcast:
        WEFT_CHECK(r[0].peer >= 0 && r[0].peer < n, where(r[0].kind, op.number), "the root is ", r[0].peer,
                   "; need a rank from 0 to ", n - 1);
        t.from = {r[r[0].peer].in};
        for (const Request& x : r) t.to.push_back(x.out);
        return add(op, std::move(t), r[0].peer, everyone);
      case Collective::kAllGather:
        for (int p = 0; p < n; ++p) {
          t.from = {r[p].in};
          t.to.clear();
          for (int q = 0; q < n; ++q) t.to.push_back(part(op, q, r[q].out, r[q].out_dim, r[q].recv, p));
          add(op, t, p, everyone);
        }
        return;
      case Collective::kReduceScatter:
        t.op = r[0].op;
        check_reducible(op);
        for (int q = 0; q < n; ++q) {
          t.from.clear();
          for (int p = 0; p < n; ++p) t.from.push_back(part(op, p, r[p].in, r[p].in_dim, r[p].send, q));
          t.to = {r[q].out};
          add(op, t, q, {q});
        }
        return;
      case Collective::kAllToAll:
        for (int p = 0; p < n; ++p)
          for (int q = 0; q < n; ++q) {
            t.from = {part(op, p, r[p].in, r[p].in_dim, r[p].send, q)};
            t.to = {part(op, q, r[q].out, r[q].out_dim, r[q].recv, p)};
            add(op, t, p, {q});
          }
        return;
      case Collective::kPermute:
        for (int p = 0; p < n; ++p) {
          const int q = ((p + r[p].shift) % n + n) % n;
          t.from = {r[p].in};
          t.to = {r[q].out};
          add(op, t, p, {q});
        }
        return;
      case Collective::kSend:
      case Collective::kRecv:
        t.from = {r[0].in};
        t.to = {r[1].out};
        return add(op, std::move(t), 0, {1});
    }
  }
  void check_reducible(const Op& op) const {
    const Request& r = op.requests[0];
    WEFT_CHECK(internal::reduces(r.op, r.in.dtype), where(r.kind, op.number), "cannot take the ", r.op, " of ",
               r.in.dtype);
  }
  void make_parts(Op& op) const;

  // Works on boxes until none is left to start.
  void work_on(Op& op) {
    Lock lock(mutex_.native());
    while (!op.failed && op.next < op.boxes.size()) {
      const Box& box = op.boxes[op.next++];
      ++op.active;
      lock.unlock();
      internal::run(op.transfers[box.transfer], box);
      lock.lock();
      --op.active;
      ++op.done;
    }
    if (op.finished()) {
      finish(op);
      op.changed.notify_all();
    }
  }

  void finish(Op& op) {
    std::erase_if(live_, [&](const Ref<Op>& o) { return o.get() == &op; });
  }

  // Fails an op that a retired rank has not started: it never will.
  void fail_if_retired(Op& op) {
    for (size_t i = 0; i < op.members.size(); ++i)
      if (!op.here[i] && retired_[op.members[i]])
        return fail_op(
            op, missing(op, Code::kFailedPrecondition, str_cat(who(op.members[i]), " returned without starting it")));
  }

  Error missing(const Op& op, Code code, const std::string& what) const {
    std::string missing, present;
    const Request& r = op.requests[op.first];
    for (size_t i = 0; i < op.members.size(); ++i) {
      std::string& s = op.here[i] ? present : missing;
      s += str_cat(s.empty() ? "" : ", ", who(op.members[i]));
      if (op.here[i]) continue;
      const auto& [kind, number] = last_[op.members[i]];
      s += number ? str_cat(" (last started ", kind, " #", number, ")") : std::string(" (started nothing yet)");
    }
    return Error(code, str_cat(where(r.kind, op.number), what, "; missing: ", missing, "; waiting in ", text_of(r),
                               ": ", present));
  }

  Error still_copying(const Op& op) const {
    std::string members;
    for (int m : op.members) members += str_cat(members.empty() ? "" : ", ", who(m));
    return Error(Code::kDeadlineExceeded,
                 str_cat(where(op.requests[op.first].kind, op.number), "the deadline has passed; all ranks (", members,
                         ") have started it, and ", op.boxes.size() - op.done, " of ", op.boxes.size(),
                         " parts are not copied yet"));
  }

  // This op fails with the error itself; all other and later ones fail as aborted because of it.
  void fail_op(Op& op, const Error& error) {
    op.failed = true;
    op.error = error;
    op.changed.notify_all();
    fail(Error(Code::kAborted, error.what()));
  }
  void fail(const Error& error) {
    failed_ = Error(Code::kAborted, str_cat("collective aborted: ", error.what()));
    for (const Ref<Op>& op : live_) {
      if (op->failed || op->finished()) continue;
      op->failed = true;
      op->error = failed_;
      op->changed.notify_all();
    }
    live_.clear();
  }

  static uint64_t next_group() {
    static std::atomic<uint64_t> groups{0};
    return ++groups;
  }

  const int size_;
  const std::string name_;
  std::vector<int> ranks_;
  const uint64_t group_number_ = next_group();
  Mutex mutex_;
  uint64_t ops_made_ = 0;
  std::vector<uint64_t> started_;  // by rank
  std::vector<std::pair<Collective, uint64_t>> last_;
  std::vector<bool> retired_;
  std::deque<Ref<Op>> open_;  // not started by all ranks yet; the first has number base_ + 1
  uint64_t base_ = 0;
  std::map<std::pair<int, int>, Pair> pairs_;
  std::vector<Ref<Op>> live_;  // not finished
  std::optional<Error> failed_;
};

class ThreadWork final : public Work {
 public:
  ThreadWork(Ref<Group> group, Ref<Op> op, int rank) : group_(std::move(group)), op_(std::move(op)), rank_(rank) {}
  ~ThreadWork() override { group_->leave(*op_, rank_); }
  std::optional<Error> wait(Deadline deadline) override { return group_->wait(*op_, deadline); }
  bool done() override { return group_->done(*op_); }
  uint64_t number() const override { return op_->id; }
  Op& op() { return *op_; }

 private:
  Ref<Group> group_;
  Ref<Op> op_;
  int rank_;
};

class FailedWork final : public Work {
 public:
  explicit FailedWork(Error error) : error_(std::move(error)) {}
  std::optional<Error> wait(Deadline) override { return error_; }
  bool done() override { return true; }

 private:
  Error error_;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(Ref<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  Ref<Work> start(const CommRequest& request) override {
    std::optional<Error> error;
    Ref<Op> op = group_->start(rank_, request, &error);
    if (!op) return make_ref<FailedWork>(*error);
    return make_ref<ThreadWork>(group_, std::move(op), rank_);
  }

  Ref<Communicator> split(int color, int key, Work::Deadline deadline) override {
    std::optional<Error> error;
    std::pair<int, int> asked{color, key};
    Ref<Op> op = group_->start(rank_, {}, &error, &asked);
    if (!error) error = group_->wait(*op, deadline);
    if (error) throw *error;
    return op->parts[rank_];
  }

  void abort(const std::string& cause) override { group_->abort(cause); }
  void retire(bool on) { group_->retire(rank_, on); }

 private:
  Ref<Group> group_;
  int rank_;
};

void Group::make_parts(Op& op) const {
  std::map<int, std::vector<std::pair<int, int>>> members;  // colour -> (key, rank)
  for (int r = 0; r < size_; ++r)
    if (op.colors[r].first >= 0) members[op.colors[r].first].push_back({op.colors[r].second, r});
  op.parts.resize(size_);
  for (auto& [color, list] : members) {
    std::stable_sort(list.begin(), list.end());
    std::vector<int> ranks;
    for (auto [key, r] : list) ranks.push_back(ranks_[r]);
    auto part = make_thread_communicators(static_cast<int>(list.size()),
                                          str_cat(name_, name_.empty() ? "" : "/", color), ranks);
    for (size_t i = 0; i < list.size(); ++i) op.parts[list[i].second] = part[i];
  }
}

}  // namespace

std::vector<Ref<Communicator>> make_thread_communicators(int size, std::string name, std::vector<int> ranks) {
  WEFT_CHECK(size >= 1, "communicator: got ", size, " ranks; need 1 or more");
  auto group = make_ref<Group>(size, std::move(name), std::move(ranks));
  std::vector<Ref<Communicator>> all;
  for (int r = 0; r < size; ++r) all.push_back(make_ref<ThreadCommunicator>(group, r));
  return all;
}

void set_retired(Communicator& communicator, bool retired) {
  auto* c = dynamic_cast<ThreadCommunicator*>(&communicator);
  WEFT_BUG_IF(!c, "set_retired: the communicator is not one of threads");
  c->retire(retired);
}

}  // namespace weft::dist
