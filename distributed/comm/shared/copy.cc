// How collectives of a group advance: when a collective is ready, which boxes this rank copies, and when it is done.
#include <algorithm>

#include "distributed/comm/shared/engine.h"
#include "distributed/comm/shared/group.h"

namespace weft::dist::shared {

using internal::Box;
using internal::kBoxBytes;
using internal::kSmallBytes;
using internal::Transfer;
using State = Op::State;

namespace {

// Boxes of one page and less would cost more than they divide.
constexpr int64_t kLeastBox = 4096;

int64_t bytes_of(const StridedView& v) { return v.numel() * itemsize(v.dtype); }

int64_t bytes_of(const std::vector<Transfer>& transfers) {
  int64_t bytes = 0;
  for (const Transfer& t : transfers) bytes += bytes_of(t.from[0]) * static_cast<int64_t>(t.from.size() + t.to.size());
  return bytes;
}

}  // namespace

void Group::progress() {
  refresh();
  for (auto& [index, s] : streams_)
    if (!s.ops.empty()) advance(s);
}

void Group::advance(Stream& s) {
  while (!failed_ && s.published < s.started && room(s)) publish(s, s.at(s.published));
  while (s.copied < s.published) {
    Op& op = s.at(s.copied);
    if (op.state == State::kPublished && !ready(s, op)) break;
    if (op.state == State::kCopying && bytes_of(op.transfers) <= kSmallBytes) {
      if (!enter(op)) break;
      for (const Box& box : op.boxes) internal::run(op.transfers[box.transfer], box);
      op.copied = op.boxes.size();
      leave_copy(op);
    }
    if (op.state != State::kCopied && op.state != State::kDone) break;
    s.copied = std::max(s.copied, op.k + 1);
  }
  while (s.finished < s.copied) {
    Op& op = s.at(s.finished);
    if (op.state == State::kCopied) {
      if (!op.early && least_done(s) <= op.k) break;
      if (!decide(s, op.k)) break;
      if (op.sliced && op.stage_out) {
        begin_copy_out(op);
      } else {
        op.state = State::kDone;
      }
    }
    if (op.state != State::kDone) break;
    ++s.finished;
  }
  // Other ranks may still read the copies of this rank's operands.
  while (!s.ops.empty() && s.base < s.finished && least_done(s) > s.base) {
    if (s.ops.front()->stage) engine_.heap().free(s.ops.front()->stage);
    s.ops.pop_front();
    ++s.base;
  }
}

// Whether all ranks have published the op; then lists its copies.
bool Group::ready(Stream& s, Op& op) {
  for (size_t i = 0; i < s.members.size(); ++i)
    if (counters(s, i).published.load() <= op.k) {
      check_retired(s, op);
      return false;
    }
  read_requests(s, op);
  try {
    compare(op);
    plan_copies(s, op);
  } catch (const Error& e) {
    fail(e, &op);
    return false;
  }
  op.state = State::kCopying;
  return true;
}

// Fails an op that a retired rank has not started: it never will.
void Group::check_retired(Stream& s, Op& op) {
  for (size_t i = 0; i < s.members.size(); ++i) {
    if (!areas_[s.members[i]].header().retired.load() || counters(s, i).published.load() > op.k) continue;
    read_requests(s, op);
    return fail(names_.returned(op, last_of(op), i), &op);
  }
}

// True if the collective has succeeded on all ranks, false if the group has failed before.
bool Group::decide(const Stream& s, uint64_t k) {
  if (s.id != 0) return true;
  uint64_t v = state().load();
  while ((v >> 16) <= k) {
    if (v & 0xffff) {
      if (!failed_) take_failure(v);
      return false;
    }
    if (state().compare_exchange_weak(v, (k + 1) << 16)) return true;
  }
  return true;
}

StridedView Group::mapped(const StridedView& v, const SharedView& s) const {
  StridedView m = v;
  // Private memory of other processes is never read: any address of this process will do.
  const Places& places = engine_.places();
  WEFT_BUG_IF(s.segment >= static_cast<int>(places.segments.size()), "shared memory: an operand in segment ",
              s.segment);
  m.data = s.segment < 0 ? engine_.segment().at(0) : places.segments[s.segment]->at(s.offset);
  return m;
}

void Group::plan_copies(Stream& s, Op& op) {
  const size_t n = s.members.size();
  const internal::Request& first = op.requests[0];
  op.sliced = first.kind == Collective::kAllReduce && bytes_of(first.in) > kSmallBytes;
  op.early = !op.sliced;
  for (size_t i = 0; i < n; ++i) {
    const Descriptor& d = descriptor(areas_[s.members[i]], s.indices[i], op.k);
    op.early &= d.staged != 0;
    internal::Request& r = op.requests[i];
    // The boxes of all ranks must be the same if they are divided: so the views are.
    if (i != s.mine || op.sliced) {
      const internal::Request seen = i == s.mine ? read_slot(areas_[me_], s.indices[i], op.k) : r;
      r.in = mapped(seen.in, d.in);
      r.out = mapped(seen.out, d.out);
    }
  }
  names_.build(op);
  if (op.sliced) {
    const int64_t share = bytes_of(first.in) / static_cast<int64_t>(n);
    std::vector<Box> all;
    for (size_t i = 0; i < op.transfers.size(); ++i)
      internal::cut(op.transfers[i], static_cast<int32_t>(i), std::clamp(share, kLeastBox, kBoxBytes), all);
    const auto begin = all.begin() + all.size() * op.mine / n, end = all.begin() + all.size() * (op.mine + 1) / n;
    op.boxes.assign(begin, end);
    if (!op.stage_out) return;
    // This rank writes its own boxes to its result at once; those of others come through shared memory.
    StridedView& to = op.transfers[0].to[op.mine];
    if (op.out.contiguous()) {
      op.rest.from = {to};
      to.data = op.out.data;
      op.rest.to = {to};
      op.rest_boxes.assign(all.begin(), begin);
      op.rest_boxes.insert(op.rest_boxes.end(), end, all.end());
    } else {
      op.rest.from = {StridedView{op.stage_out, op.out.dtype, op.out.shape, contiguous_strides(op.out.shape)}};
      op.rest.to = {op.out};
      internal::cut(op.rest, 0, kBoxBytes, op.rest_boxes);
    }
    return;
  }
  std::vector<Transfer> kept;
  for (size_t i = 0; i < op.transfers.size(); ++i) {
    Transfer& t = op.transfers[i];
    std::vector<StridedView> to;
    for (size_t j = 0; j < t.to.size(); ++j)
      if (op.receivers[i][j] == static_cast<int>(op.mine)) to.push_back(t.to[j]);
    if (to.empty()) continue;
    t.to = std::move(to);
    kept.push_back(std::move(t));
  }
  op.transfers = std::move(kept);
  for (size_t i = 0; i < op.transfers.size(); ++i)
    internal::cut(op.transfers[i], static_cast<int32_t>(i), kBoxBytes, op.boxes);
}

// The result is complete in shared memory, and belongs to private memory.
void Group::begin_copy_out(Op& op) {
  op.transfers = {op.rest};
  op.boxes = std::move(op.rest_boxes);
  op.next = 0;
  op.copied = 0;
  op.state = op.boxes.empty() ? State::kDone : State::kCopyingOut;
}

Ref<Op> Group::to_copy() {
  for (auto& [index, s] : streams_)
    for (uint64_t k : {s.finished, s.copied}) {
      if (k < s.base || k >= s.published) continue;
      const Ref<Op>& op = s.ops[k - s.base];
      const bool copying = op->state == State::kCopying || op->state == State::kCopyingOut;
      if (copying && op->next.load(std::memory_order_relaxed) < op->boxes.size()) return op;
    }
  return {};
}

// A thread begins to copy boxes; false if it must not.
bool Group::enter(Op& op) {
  if (op.state != State::kCopying && op.state != State::kCopyingOut) return false;
  if (op.workers++ > 0 || op.early || op.state == State::kCopyingOut) return true;
  Stream& s = streams_.at(op.stream);
  // Sequentially consistent: either this rank sees that the group has failed, or the one that made it fail sees that
  // its operands are in use.
  counters(s, s.mine).active.store(1);
  refresh();
  if (op.state == State::kCopying) return true;
  --op.workers;
  counters(s, s.mine).active.store(0);
  return false;
}

void Group::leave_copy(Op& op) {
  if (--op.workers > 0) return;
  Stream& s = streams_.at(op.stream);
  if (op.state != State::kCopyingOut && !op.early) counters(s, s.mine).active.store(0);
  if (op.state == State::kFailed) return ring_others(s, true);
  if (op.copied.load() < op.boxes.size()) return;
  if (op.state == State::kCopyingOut) {
    op.state = State::kDone;
    return;
  }
  op.state = State::kCopied;
  s.copied = op.k + 1;
  counters(s, s.mine).done.store(op.k + 1);
  ring_others(s, !op.early);
}

void Group::copy(Op& op) {
  bool safe;
  {
    Engine::Lock lock(engine_);
    if (!enter(op)) return;
    safe = op.early || op.state == State::kCopyingOut;
  }
  while (safe || !failed_now()) {
    const size_t i = op.next.fetch_add(1, std::memory_order_relaxed);
    if (i >= op.boxes.size()) break;
    internal::run(op.transfers[op.boxes[i].transfer], op.boxes[i]);
    op.copied.fetch_add(1);
  }
  Engine::Lock lock(engine_);
  refresh();
  leave_copy(op);
  if (op.workers == 0) ring(me_);
}

bool Group::idle() const {
  for (const auto& [index, s] : streams_) {
    for (const Ref<Op>& op : s.ops)
      if (op->state != State::kFailed && !(failed_ && op->state == State::kDone)) return false;
  }
  return true;
}

bool Group::busy() const {
  for (const auto& [index, s] : streams_)
    for (const Ref<Op>& op : s.ops)
      if (!op->ended() && bytes_of(op->in) + bytes_of(op->out) > 2 * kBoxBytes) return true;
  return false;
}

}  // namespace weft::dist::shared
