// Progress of a group's collectives: when a collective is ready, which boxes this rank copies, and when it is done.
#include <algorithm>
#include <chrono>

#include "distributed/comm/shared/engine.h"
#include "distributed/comm/shared/group.h"

namespace weft::dist::shared {

using internal::Box;
using internal::kBoxBytes;
using internal::kSmallBytes;
using internal::Transfer;
using State = SharedOp::State;

namespace {

// Smaller boxes would cost more than their division saves.
constexpr int64_t kLeastBox = 4096;
constexpr int64_t kThreadBox = 64 << 10;

// The bytes that a rank copies now.
int64_t bytes_of(const SharedOp& op) {
  int64_t bytes = 0;
  for (const Box& b : op.boxes) {
    const Transfer& t = op.copies[b.transfer];
    bytes += b.extent.numel() * itemsize(t.from[0].dtype) * static_cast<int64_t>(t.from.size() + t.to.size());
  }
  return bytes;
}

// Whether several transfers read the input of a rank, each a part of it.
bool divides(const SharedOp& op) {
  const Collective kind = op.requests[op.mine].kind;
  return kind == Collective::kReduceScatter || kind == Collective::kAllToAll;
}

void copy_box(SharedOp& op, const Box& box) {
  const auto begin = std::chrono::steady_clock::now();
  internal::run(op.copies[box.transfer], box);
  op.copy_ns.fetch_add((std::chrono::steady_clock::now() - begin).count(), std::memory_order_relaxed);
}

// The parts of a box that one rank of `n` reduces.
std::vector<Box> slices_of(const Transfer& t, const Box& box, int rank, int n) {
  const int64_t size = itemsize(t.from[0].dtype), elements = std::max(box.extent.numel() / n, kLeastBox / size);
  std::vector<Box> all;
  internal::split(box.extent, 0, elements, all);
  const auto count = static_cast<int64_t>(all.size());
  std::vector<Box> some(all.begin() + count * rank / n, all.begin() + count * (rank + 1) / n);
  for (Box& b : some)
    for (int d = 0; d < b.begin.size(); ++d) b.begin[d] += box.begin[d];
  return some;
}

// Adds copies of some boxes, cut into boxes for several threads.
void add_copies(SharedOp& op, Transfer t, const std::vector<Box>& boxes) {
  const auto index = static_cast<int32_t>(op.copies.size());
  for (const Box& box : boxes) {
    const size_t first = op.boxes.size();
    internal::split(box.extent, index, kThreadBox / itemsize(t.from[0].dtype), op.boxes);
    for (size_t i = first; i < op.boxes.size(); ++i)
      for (int d = 0; d < box.begin.size(); ++d) op.boxes[i].begin[d] += box.begin[d];
  }
  op.copies.push_back(std::move(t));
}

}  // namespace

void SharedGroup::progress() {
  refresh();
  for (auto& [index, s] : streams_)
    if (!s.ops.empty()) advance(s);
}

void SharedGroup::advance(Stream& s) {
  while (!failed_ && s.published < s.started && room(s)) publish(s, s.at(s.published));
  while (s.copied < s.published) {
    SharedOp& op = s.at(s.copied);
    if (op.state == State::kPublished && !ready(s, op)) break;
    if (op.state != State::kCopying || op.planned || !plan(s, op)) break;
  }
  while (s.finished < s.copied) {
    SharedOp& op = s.at(s.finished);
    if (op.state == State::kCopied) {
      if (!decide(s, op.k)) break;
      op.state = State::kDone;
    }
    if (op.state != State::kDone) break;
    ++s.finished;
  }
  // Other ranks may still read the copies of this rank's operands.
  while (!s.ops.empty() && s.base < s.finished && least_done(s) > s.base) {
    free_stage(*s.ops.front());
    s.ops.pop_front();
    ++s.base;
  }
  if (s.ops.empty() && s.ring) {
    engine_.heap().free(s.ring);
    s.ring = nullptr;
  }
}

// Whether all ranks have published the op; then lists its copies.
bool SharedGroup::ready(Stream& s, SharedOp& op) {
  for (size_t i = 0; i < s.members.size(); ++i)
    if (counters(s, i).published.load() <= op.k) {
      check_retired(s, op);
      return false;
    }
  read_requests(s, op);
  try {
    compare(op);
    list_copies(s, op);
  } catch (const Error& e) {
    fail(e, &op);
    return false;
  }
  op.state = State::kCopying;
  return true;
}

// Fails an op that a retired rank has not started, and never will.
void SharedGroup::check_retired(Stream& s, SharedOp& op) {
  for (size_t i = 0; i < s.members.size(); ++i) {
    if (!areas_[s.members[i]].header().retired.load() || counters(s, i).published.load() > op.k) continue;
    read_requests(s, op);
    return fail(names_.returned(op, last_of(op), i), &op);
  }
}

// True if the collective has succeeded on all ranks, false if the group has failed before.
bool SharedGroup::decide(const Stream& s, uint64_t k) {
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

// Lists this rank's copies, once all ranks have published the op.
void SharedGroup::list_copies(Stream& s, SharedOp& op) {
  const size_t n = s.members.size();
  bool pieces = false;
  for (size_t i = 0; i < n; ++i) {
    const Descriptor& d = descriptor(areas_[s.members[i]], s.indices[i], op.k);
    pieces |= !d.whole;
    if (i != s.mine) op.requests[i].in.data = segment(s.members[i]).at(d.offset);
  }
  names_.build(op);
  op.sliced = pieces && n > 1 && op.requests[op.mine].kind == Collective::kAllReduce;
  op.around = descriptor(areas_[s.members[0]], s.indices[0], op.k).around;
  if (pieces) return cut_rounds(op);
  for (size_t i = 0; i < op.transfers.size(); ++i)
    if (std::optional<Transfer> t = mine(op, i)) op.copies.push_back(std::move(*t));
  for (size_t i = 0; i < op.copies.size(); ++i)
    internal::cut(op.copies[i], static_cast<int32_t>(i), kBoxBytes, op.boxes);
}

// Cuts boxes that depend on the shapes alone, so that all ranks have the same boxes. In a round, each transfer moves
// one box, and a rank has room for a piece of its input, divided among the transfers that read it.
void SharedGroup::cut_rounds(SharedOp& op) {
  size_t most = 0;
  for (size_t i = 0; i < op.transfers.size(); ++i) {
    const Transfer& t = op.transfers[i];
    internal::split(t.shape(), static_cast<int32_t>(i), share_bytes(op) / itemsize(t.from[0].dtype),
                    op.rounds.emplace_back());
    most = std::max(most, op.rounds.back().size());
  }
  op.ticks = static_cast<int64_t>(most) + (op.sliced ? 2 : 1);
}

// The bytes of one transfer in a piece.
int64_t SharedGroup::share_bytes(const SharedOp& op) const {
  return std::max<int64_t>(engine_.places().piece_bytes / (divides(op) ? size() : 1) / 64 * 64, 64);
}

// A transfer with only this rank's result as destination; nothing if this rank has no result there.
std::optional<Transfer> SharedGroup::mine(const SharedOp& op, size_t transfer) {
  const std::vector<int>& to = op.receivers[transfer];
  const auto at = std::find(to.begin(), to.end(), static_cast<int>(op.mine));
  if (at == to.end()) return {};
  Transfer t = op.transfers[transfer];
  t.to = {t.to[static_cast<size_t>(at - to.begin())]};
  return t;
}

// The input of a rank to a transfer, as a view of the rank's ring: the ring holds only the box of the current round.
StridedView SharedGroup::in_ring(const Stream& s, const SharedOp& op, int member, size_t transfer,
                                 int64_t round) const {
  const Box& box = op.rounds[transfer][static_cast<size_t>(round)];
  const auto i = static_cast<size_t>(member);
  const int64_t share = divides(op) ? static_cast<int64_t>(transfer % s.members.size()) : 0;
  StridedView v = op.transfers[transfer].from[0];
  v.strides = contiguous_strides(box.extent);
  const uint64_t ring =
      i == s.mine ? engine_.segment().offset_of(s.ring) : descriptor(areas_[s.members[i]], s.indices[i], op.k).offset;
  int64_t offset = round % kPieces * engine_.places().piece_bytes + share * share_bytes(op);
  for (int d = 0; d < v.strides.size(); ++d) offset -= box.begin[d] * v.strides[d] * itemsize(v.dtype);
  v.data = segment(s.members[i]).at(ring) + offset;
  return v;
}

// Plans the copies of one tick. In tick t, a rank writes the pieces of round t to its ring, and reads the pieces of
// round t - 1 from the rings of others into its result. In an all-reduce, the ranks first reduce a round together, each
// a slice in its own ring; a tick later they read the slices. A rank begins a tick when all ranks have ended the
// previous tick: so in a ring of kPieces, no piece is read before it is written or overwritten before it is read.
void SharedGroup::plan_tick(Stream& s, SharedOp& op) {
  const int me = static_cast<int>(s.mine), n = static_cast<int>(s.members.size());
  op.copies.clear();
  op.boxes.clear();
  const auto box_of = [&](size_t transfer, int64_t round) -> const Box* {
    const std::vector<Box>& all = op.rounds[transfer];
    return round >= 0 && round < static_cast<int64_t>(all.size()) ? &all[static_cast<size_t>(round)] : nullptr;
  };
  for (size_t i = 0; i < op.transfers.size(); ++i) {
    const Transfer& t = op.transfers[i];
    const std::vector<int>& sources = op.sources[i];
    const auto at = std::find(sources.begin(), sources.end(), me);
    const bool others = op.receivers[i].size() > 1 || op.receivers[i][0] != me;
    if (const Box* b = box_of(i, op.tick); b && at != sources.end() && others && !op.whole) {
      const Transfer put{.from = {t.from[static_cast<size_t>(at - sources.begin())]},
                         .to = {in_ring(s, op, me, i, op.tick)},
                         .around_caches = op.around};
      if (!op.sliced) {
        add_copies(op, put, {*b});
      } else {
        for (int r = 0; r < n; ++r)
          if (r != me) add_copies(op, put, slices_of(t, *b, r, n));
      }
    }
    if (const Box* b = box_of(i, op.tick - 1)) {
      std::optional<Transfer> take = mine(op, i);
      if (!take) continue;
      for (size_t k = 0; k < sources.size(); ++k)
        if (sources[k] != me && !descriptor(areas_[s.members[sources[k]]], s.indices[sources[k]], op.k).whole)
          take->from[k] = in_ring(s, op, sources[k], i, op.tick - 1);
      if (!op.sliced) {
        add_copies(op, std::move(*take), {*b});
      } else {
        take->to = {in_ring(s, op, me, i, op.tick - 1)};
        take->around_caches = op.around;
        add_copies(op, std::move(*take), slices_of(t, *b, me, n));
      }
    }
    if (const Box* b = op.sliced ? box_of(i, op.tick - 2) : nullptr)
      for (int r = 0; r < n; ++r)
        add_copies(op, {.from = {in_ring(s, op, r, i, op.tick - 2)}, .to = {t.to[s.mine]}}, slices_of(t, *b, r, n));
  }
}

// Plans the next copies of this rank. False if it has to wait for other ranks.
bool SharedGroup::plan(Stream& s, SharedOp& op) {
  if (op.ticks > 0) {
    for (size_t i = 0; i < s.members.size(); ++i)
      if (counters(s, i).ticks.load() < s.ticks) return false;
    plan_tick(s, op);
  }
  op.next = 0;
  op.copied = 0;
  op.planned = true;
  if (bytes_of(op) > kSmallBytes) return true;
  ++op.workers;
  for (const Box& box : op.boxes) copy_box(op, box);
  op.copied = op.boxes.size();
  leave_copy(op);
  return true;
}

Ref<SharedOp> SharedGroup::to_copy() {
  for (auto& [index, s] : streams_) {
    if (s.copied >= s.published) continue;
    const Ref<SharedOp>& op = s.ops[s.copied - s.base];
    const bool copying = op->state == State::kCopying && op->planned;
    if (copying && op->next.load(std::memory_order_relaxed) < op->boxes.size()) return op;
  }
  return {};
}

// A thread has no more boxes to copy. The last such thread ends the planned copies.
void SharedGroup::leave_copy(SharedOp& op) {
  if (--op.workers > 0 || op.copied.load() < op.boxes.size() || op.state != State::kCopying) return;
  Stream& s = streams_.at(op.stream);
  op.planned = false;
  if (op.ticks > 0) counters(s, s.mine).ticks.store(++s.ticks);
  if (op.ticks == 0 || ++op.tick == op.ticks) {
    op.state = State::kCopied;
    if (op.ticks > 0)
      writes_of(op).took(op.around,
                         static_cast<double>(op.copy_ns) / static_cast<double>(op.in.nbytes() + op.out.nbytes()));
    s.copied = op.k + 1;
    counters(s, s.mine).done.store(op.k + 1);
  }
  ring_others(s, op.ticks > 0);
}

void SharedGroup::copy(SharedOp& op) {
  {
    Engine::Lock lock(engine_);
    if (op.state != State::kCopying || !op.planned) return;
    ++op.workers;
  }
  for (size_t i; (i = op.next.fetch_add(1, std::memory_order_relaxed)) < op.boxes.size();) {
    copy_box(op, op.boxes[i]);
    op.copied.fetch_add(1);
  }
  Engine::Lock lock(engine_);
  refresh();
  leave_copy(op);
  if (op.workers == 0) ring(me_);
}

bool SharedGroup::idle() const {
  for (const auto& [index, s] : streams_) {
    for (const Ref<SharedOp>& op : s.ops)
      if (op->state != State::kFailed && !(failed_ && op->state == State::kDone)) return false;
  }
  return true;
}

bool SharedGroup::busy() const {
  for (const auto& [index, s] : streams_)
    for (const Ref<SharedOp>& op : s.ops)
      if (!op->ended() && op->in.nbytes() + op->out.nbytes() > 2 * kBoxBytes) return true;
  return false;
}

}  // namespace weft::dist::shared
