#include "distributed/comm/threads.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "distributed/comm/group.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"

namespace weft::dist {
namespace {

using internal::aborted_by;
using internal::Box;
using internal::kBoxBytes;
using internal::kSmallBytes;
using internal::LastStarted;
using internal::Match;
using internal::point_to_point;
using internal::Request;
using internal::Transfer;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// One collective: the requests of its ranks, and the progress of its copies.
struct ThreadOp final : internal::Op {
  using internal::Op::Op;
  int arrived = 0;
  bool ready = false, failed = false;
  std::vector<Box> boxes;
  size_t next = 0, done = 0;
  int active = 0;  // boxes in progress
  std::condition_variable changed;
  std::map<int, Ref<internal::Group>> parts;  // key: colour of a split

  bool finished() const { return failed ? active == 0 : ready && done == boxes.size(); }
};

class ThreadGroup final : public internal::Group {
 public:
  ThreadGroup(int size, std::string name, std::vector<int> ranks)
      : internal::Group({size, std::move(name), std::move(ranks)}),
        size_(size),
        started_(size),
        last_(size),
        retired_(size) {}

  Ref<internal::Op> start(int rank, const CommRequest& request, std::optional<Error>* error,
                          const std::pair<int, int>* color) override {
    Lock lock(mutex_.native());
    if (failed_) {
      *error = failed_;
      return {};
    }
    Request r(request);
    if ((*error = names_.wrong_peer(r, rank))) {
      fail(**error);
      return {};
    }
    Ref<ThreadOp> op = point_to_point(r.kind) ? join_pair(rank, r) : join(rank, r);
    const size_t at = op->position(rank);
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
      names_.agree(*op, op->first, at);
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

  std::optional<Error> wait(internal::Op& joined, Work::Deadline deadline) override {
    ThreadOp& op = static_cast<ThreadOp&>(joined);
    Lock lock(mutex_.native());
    while (!op.finished()) {
      if (op.ready && !op.failed && op.next < op.boxes.size()) {
        const size_t left = op.boxes.size() - op.next;
        lock.unlock();
        parallel_for(std::min<int64_t>(num_threads(), static_cast<int64_t>(left)), [&](int64_t) { work_on(op); });
        lock.lock();
      } else if (op.changed.wait_until(lock, deadline) == std::cv_status::timeout && !op.finished()) {
        // Other threads may still copy boxes in this rank's memory: leave() waits for them.
        if (op.failed) break;
        fail_op(op, op.ready ? names_.still_copying(op, op.boxes.size() - op.done, op.boxes.size())
                             : names_.missing(op, last_of(op), Code::kDeadlineExceeded, "the deadline has passed"));
        break;
      }
    }
    return op.error;
  }

  bool done(internal::Op& joined) override {
    Lock lock(mutex_.native());
    return static_cast<ThreadOp&>(joined).finished();
  }

  // The memory of the rank is about to be freed.
  void leave(internal::Op& joined, int rank) override {
    ThreadOp& op = static_cast<ThreadOp&>(joined);
    Lock lock(mutex_.native());
    if (op.finished()) return;
    if (!op.failed) fail_op(op, names_.dropped(op.requests[op.position(rank)].kind, op.number, rank));
    while (!op.finished()) op.changed.wait(lock);  // no deadline: others still use this rank's memory
  }

  void retire(int rank, bool retired) override {
    Lock lock(mutex_.native());
    retired_[rank] = retired;
    const std::vector<Ref<ThreadOp>> all = live_;
    for (const Ref<ThreadOp>& op : all)
      if (!op->ready && !op->failed) fail_if_retired(*op);
  }

  void abort(const std::string& cause) override {
    Lock lock(mutex_.native());
    if (!failed_) fail(internal::abort_error(cause));
  }

  // The first rank of a colour makes its group.
  Ref<internal::Group> part(internal::Op& split, int color, const std::string& name,
                            const std::vector<int>& ranks) override {
    Lock lock(mutex_.native());
    Ref<internal::Group>& made = static_cast<ThreadOp&>(split).parts[color];
    if (!made) made = make_ref<ThreadGroup>(static_cast<int>(ranks.size()), name, ranks);
    return made;
  }

 private:
  struct Pair {
    uint64_t sent = 0, received = 0;
    std::map<uint64_t, Ref<ThreadOp>> open;
  };

  Ref<ThreadOp> make_op(std::vector<int> members, uint64_t number) {
    auto op = make_ref<ThreadOp>(std::move(members), number);
    op->id = group_number_ << 32 | ++ops_made_;
    live_.push_back(op);
    return op;
  }

  // The k-th collective that a rank starts joins the k-th of all other ranks.
  Ref<ThreadOp> join(int rank, const Request&) {
    const uint64_t k = started_[rank]++;
    if (k - base_ == open_.size()) {
      std::vector<int> all(size_);
      for (int r = 0; r < size_; ++r) all[r] = r;
      open_.push_back(make_op(std::move(all), k + 1));
    }
    Ref<ThreadOp> op = open_[k - base_];
    if (op->arrived + 1 == size_) {  // so all earlier collectives are complete too
      open_.pop_front();
      ++base_;
    }
    return op;
  }

  // The k-th send from a to b joins b's k-th receive from a.
  Ref<ThreadOp> join_pair(int rank, const Request& r) {
    const bool sends = r.kind == Collective::kSend;
    const std::pair<int, int> key = sends ? std::pair(rank, r.peer) : std::pair(r.peer, rank);
    Pair& p = pairs_[key];
    const uint64_t k = sends ? p.sent++ : p.received++;
    if (auto it = p.open.find(k); it != p.open.end()) {
      Ref<ThreadOp> op = it->second;
      p.open.erase(it);
      return op;
    }
    return p.open[k] = make_op({key.first, key.second}, k + 1);
  }

  // Lists the copies of a collective that all ranks have started.
  void build(ThreadOp& op) const {
    names_.build(op);
    for (size_t i = 0; i < op.transfers.size(); ++i)
      internal::cut(op.transfers[i], static_cast<int32_t>(i), kBoxBytes, op.boxes);
  }

  // Works on boxes until none is left to start.
  void work_on(ThreadOp& op) {
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

  void finish(ThreadOp& op) {
    std::erase_if(live_, [&](const Ref<ThreadOp>& o) { return o.get() == &op; });
  }

  // Fails an op that a retired rank has not started, and never will.
  void fail_if_retired(ThreadOp& op) {
    for (size_t i = 0; i < op.members.size(); ++i)
      if (!op.here[i] && retired_[op.members[i]]) return fail_op(op, names_.returned(op, last_of(op), i));
  }

  // The last started collective of each rank, by position.
  std::vector<LastStarted> last_of(const ThreadOp& op) const {
    std::vector<LastStarted> last;
    for (int m : op.members) last.push_back(last_[m]);
    return last;
  }

  // This op fails with the error itself; all other and later ops fail as aborted by it.
  void fail_op(ThreadOp& op, const Error& error) {
    op.failed = true;
    op.error = error;
    op.changed.notify_all();
    fail(Error(Code::kAborted, error.what()));
  }
  void fail(const Error& error) {
    failed_ = aborted_by(error.what());
    for (const Ref<ThreadOp>& op : live_) {
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
  const uint64_t group_number_ = next_group();
  Mutex mutex_;
  uint64_t ops_made_ = 0;
  std::vector<uint64_t> started_;  // index: rank
  std::vector<LastStarted> last_;
  std::vector<bool> retired_;
  std::deque<Ref<ThreadOp>> open_;  // ops that some rank has not started; the first has number base_ + 1
  uint64_t base_ = 0;
  std::map<std::pair<int, int>, Pair> pairs_;
  std::vector<Ref<ThreadOp>> live_;  // ops that have not finished
  std::optional<Error> failed_;
};

}  // namespace

std::vector<Ref<Communicator>> make_thread_communicators(int size, std::string name, std::vector<int> ranks) {
  WEFT_CHECK(size >= 1, "communicator: got ", size, " ranks; need 1 or more");
  auto group = make_ref<ThreadGroup>(size, std::move(name), std::move(ranks));
  std::vector<Ref<Communicator>> all;
  for (int r = 0; r < size; ++r) all.push_back(internal::make_communicator(group, r));
  return all;
}

}  // namespace weft::dist
