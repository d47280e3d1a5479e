#include "distributed/comm/shared/group.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "distributed/comm/shared/engine.h"

namespace weft::dist::shared {

using internal::aborted_by;
using internal::GroupNames;
using internal::kSmallBytes;
using internal::LastStarted;
using internal::mix;
using internal::others_read;
using internal::point_to_point;
using internal::Request;

namespace {

void copy_dense(const StridedView& from, void* to) {
  internal::Transfer t;
  t.from = {from};
  t.to = {{to, from.dtype, from.shape, contiguous_strides(from.shape)}};
  std::vector<internal::Box> boxes;
  internal::cut(t, 0, kSmallBytes, boxes);
  for (const internal::Box& box : boxes) internal::run(t, box);
}

}  // namespace

SharedGroup::SharedGroup(std::shared_ptr<ProcessHub> hub, Engine& engine, const std::string& name,
                         const std::vector<int>& members, uint64_t key)
    : ProcessGroup(std::move(hub), name, members, engine.rank(), key), engine_(engine) {
  areas_.resize(members.size());
  for (int r : members) segments_.push_back(engine.places().segments[r]);
  // The area is never freed: a slow peer may still read it after this rank has dropped the communicator.
  const AreaLayout layout{size()};
  char* area = static_cast<char*>(engine.heap().allocate(layout.bytes()));
  new (area) AreaHeader{};
  for (int i = 0; i < layout.streams(); ++i) new (area + layout.counters_offset(i)) StreamCounters{};
  areas_[me_] = Area(area, size());
  engine.segment().publish(key, engine.segment().offset_of(area));
  for (int r : members) shared::ring(engine.places(), r);
  engine.add(this);
}

// The rank starts no more collectives, so no other rank needs to wait for it.
SharedGroup::~SharedGroup() {
  engine_.remove(this);
  retire_locked(true);
}

void SharedGroup::open(Work::Deadline deadline) {
  int missing = -1;
  auto all_found = [&] {
    const Places& places = engine_.places();
    WEFT_CHECK_AS(kAborted, !places.aborted.load(std::memory_order_acquire), "communicator ", names_.name, ": ",
                  places.cause);
    for (int i = 0; i < size(); ++i) {
      if (areas_[i]) continue;
      if (const uint64_t offset = segment(i).find(key_)) {
        areas_[i] = Area(segment(i).at(offset), size());
        continue;
      }
      missing = i;
      // A rank that has left may have added its area before.
      const int r = names_.ranks[i];
      WEFT_CHECK_AS(kAborted, !engine_.places().ended[r].load(std::memory_order_acquire), "communicator ", names_.name,
                    ": ", engine_.places().endings[r]);
      return false;
    }
    return true;
  };
  const bool found = engine_.wait_until(all_found, deadline);
  WEFT_CHECK_AS(kDeadlineExceeded, found, "communicator ", names_.name,
                ": the deadline has passed; missing: ", names_.who(missing), " has not created it");
  Engine::Lock lock(engine_);
  open_ = true;
  if (engine_.places().aborted.load(std::memory_order_acquire))
    fail(Error(Code::kAborted, engine_.places().cause), nullptr);
  for (int i = 0; i < size(); ++i) {
    const int r = names_.ranks[i];
    if (engine_.places().ended[r].load(std::memory_order_acquire) && !areas_[i].header().retired.load())
      fail(Error(Code::kAborted, engine_.places().endings[r]), nullptr);
  }
}

void SharedGroup::ring(int position) const { shared::ring(engine_.places(), names_.ranks[position]); }

// Wakes the other members of a stream: all members, or the members that wait for a slot.
void SharedGroup::ring_others(const Stream& s, bool all) const {
  for (size_t i = 0; i < s.members.size(); ++i)
    if (i != s.mine && (all || counters(s, i).blocked.load())) ring(s.members[i]);
}

Stream& SharedGroup::stream_of(const Request& r) {
  const int index = !point_to_point(r.kind) ? 0 : 1 + 2 * r.peer + (r.kind == Collective::kRecv);
  auto [it, added] = streams_.try_emplace(index);
  Stream& s = it->second;
  if (!added) return s;
  if (index == 0) {
    for (int i = 0; i < size(); ++i) s.members.push_back(i);
    s.indices.assign(size(), 0);
    s.mine = me_;
  } else {
    const int from = r.kind == Collective::kSend ? me_ : r.peer, to = r.kind == Collective::kSend ? r.peer : me_;
    s.id = 1 + static_cast<uint64_t>(from) * size() + to;
    s.members = {from, to};
    s.indices = {1 + 2 * to, 2 + 2 * from};
    s.mine = r.kind == Collective::kSend ? 0 : 1;
  }
  return s;
}

Ref<internal::Op> SharedGroup::start(int, const CommRequest& request, std::optional<Error>* error,
                                     const std::pair<int, int>* color) {
  Request r(request);
  Ref<SharedOp> op;
  {
    Engine::Lock lock(engine_);
    refresh();
    if (!failed_ && (*error = names_.wrong_peer(r, me_))) {
      fail(**error, nullptr);
      return {};
    }
    if ((*error = failed_)) return {};
    Stream& s = stream_of(r);
    op = make_ref<SharedOp>(s.members);
    op->stream = point_to_point(r.kind) ? s.indices[s.mine] : 0;
    op->mine = s.mine;
  }
  op->in = r.in;
  op->out = r.out;
  op->requests[op->mine] = std::move(r);
  if (color) {
    op->splits_here = true;
    op->colors[op->mine] = *color;
  }
  // The caller does not hold the lock, since this copies.
  const auto out_of_memory = [&](const Error& e) {
    fail(e, nullptr);
    *error = e;
    return Ref<internal::Op>();
  };
  try {
    share_input(*op);
  } catch (const Error& e) {
    Engine::Lock lock(engine_);
    return out_of_memory(e);
  }
  Engine::Lock lock(engine_);
  refresh();
  if ((*error = failed_)) {
    free_stage(*op);
    return {};
  }
  Stream& s = streams_.at(op->stream);
  try {
    if (!op->whole && !s.ring) s.ring = engine_.heap().allocate(kPieces * engine_.places().piece_bytes);
  } catch (const Error& e) {
    return out_of_memory(e);
  }
  op->k = s.started++;
  op->here[op->mine] = true;
  op->number = op->k + 1;
  op->id = mix(mix(key_, s.id), op->number) | 1;
  s.ops.push_back(op);
  engine_.activate(this);
  advance(s);
  engine_.ask_for_progress();
  return op;
}

// Copies a small input into shared memory.
void SharedGroup::share_input(SharedOp& op) {
  const Request& r = op.requests[op.mine];
  const int64_t bytes = others_read(r, me_) ? op.in.nbytes() : 0;
  op.whole = bytes <= kSmallBytes;
  op.inlined = bytes > 0 && bytes <= kInline;
  if (!op.whole || bytes <= kInline) return;
  op.stage = engine_.heap().allocate(bytes);
  copy_dense(op.in, op.stage);
}

void SharedGroup::free_stage(SharedOp& op) {
  if (op.stage) engine_.heap().free(op.stage);
  op.stage = nullptr;
}

uint64_t SharedGroup::least_done(const Stream& s) const {
  uint64_t least = ~uint64_t{0};
  for (size_t i = 0; i < s.members.size(); ++i) least = std::min(least, counters(s, i).done.load());
  return least;
}

// Whether the slot of the next op may be written.
bool SharedGroup::room(Stream& s) {
  const uint64_t window = AreaLayout::window(s.indices[s.mine]);
  if (s.published < window || least_done(s) + window > s.published) return true;
  std::atomic<uint32_t>& blocked = counters(s, s.mine).blocked;
  blocked.store(1);
  if (least_done(s) + window <= s.published) return false;
  blocked.store(0, std::memory_order_relaxed);
  return true;
}

void SharedGroup::publish(Stream& s, SharedOp& op) {
  const Area& area = areas_[me_];
  const int index = s.indices[s.mine];
  const Request& r = op.requests[op.mine];
  const void* data = !op.whole ? s.ring : op.stage;
  if (op.inlined) {
    char* const in_slot = area.inline_data(index, op.k);
    copy_dense(op.in, in_slot);
    data = in_slot;
  }
  write_slot(area, index, op.k, r, op.whole, !op.whole && writes_of(op).next(),
             data ? engine_.segment().offset_of(data) : 0, op.splits_here ? &op.colors[op.mine] : nullptr);
  op.state = SharedOp::State::kPublished;
  area.header().last.store(op.number << 8 | static_cast<uint64_t>(r.kind), std::memory_order_relaxed);
  counters(s, s.mine).blocked.store(0, std::memory_order_relaxed);
  // Sequentially consistent: of two ranks that publish at once, at least one sees the other's request.
  counters(s, s.mine).published.store(op.k + 1);
  s.published = op.k + 1;
  read_requests(s, op);
  ring_others(s, true);
  try {
    compare(op);
  } catch (const Error& e) {
    fail(e, &op);
  }
}

// Reads the requests that other ranks have published by now, and finds the first request.
void SharedGroup::read_requests(Stream& s, SharedOp& op) {
  int64_t earliest = 0;
  op.first = -1;
  op.splits = 0;
  for (size_t i = 0; i < s.members.size(); ++i) {
    if (counters(s, i).published.load() <= op.k) continue;
    const Area& area = areas_[s.members[i]];
    const Descriptor& d = descriptor(area, s.indices[i], op.k);
    if (i != s.mine && !op.here[i]) op.requests[i] = read_slot(area, s.indices[i], op.k);
    op.here[i] = true;
    op.colors[i] = {d.color, d.key};
    op.splits += d.splits;
    if (op.first < 0 || d.time < earliest) {
      op.first = static_cast<int>(i);
      earliest = d.time;
    }
  }
  if (op.first < 0) op.first = static_cast<int>(s.mine);  // no rank has published: this rank waits for a slot
}

void SharedGroup::compare(const SharedOp& op) const {
  for (size_t i = 0; i < op.members.size(); ++i)
    if (op.here[i] && static_cast<int>(i) != op.first) names_.agree(op, op.first, i);
}

std::vector<LastStarted> SharedGroup::last_of(const SharedOp& op) const {
  std::vector<LastStarted> last;
  for (int m : op.members) {
    const uint64_t v = areas_[m].header().last.load(std::memory_order_relaxed);
    last.push_back({static_cast<Collective>(v & 0xff), v >> 8});
  }
  return last;
}

std::optional<Error> SharedGroup::wait(internal::Op& started, Work::Deadline deadline) {
  SharedOp& op = static_cast<SharedOp&>(started);
  while (!engine_.wait_until([&] { return op.ended() && op.workers == 0; }, deadline)) {
    Engine::Lock lock(engine_);
    if (!op.ended()) time_out(op);
    if (op.state == SharedOp::State::kFailed) break;  // leave() waits for the threads that still use the operands
    // At the last moment all ranks have agreed that the collective is done: only copies remain.
    deadline = Work::Deadline::max();
  }
  return op.error;
}

void SharedGroup::time_out(SharedOp& op) {
  Stream& s = streams_.at(op.stream);
  read_requests(s, op);
  size_t missing = 0, left = 0;
  for (size_t i = 0; i < s.members.size(); ++i) {
    missing += !op.here[i];
    left += counters(s, i).done.load() <= op.k;
  }
  fail(missing ? names_.missing(op, last_of(op), Code::kDeadlineExceeded, "the deadline has passed")
               : names_.still_copying(op, left, s.members.size()),
       &op);
}

bool SharedGroup::done(internal::Op& started) {
  SharedOp& op = static_cast<SharedOp&>(started);
  Engine::Lock lock(engine_);
  engine_.progress();
  return op.ended() && op.workers == 0;
}

void SharedGroup::leave(internal::Op& started, int) {
  SharedOp& op = static_cast<SharedOp&>(started);
  {
    Engine::Lock lock(engine_);
    engine_.progress();
    if (op.state == SharedOp::State::kDone) return;
    if (!op.ended()) fail(names_.dropped(op.requests[op.mine].kind, op.number, me_), &op);
  }
  // There is no deadline, because threads of this rank use its memory.
  engine_.wait_until([&] { return op.workers == 0 && op.ended(); }, Work::Deadline::max());
}

void SharedGroup::abort(const std::string& cause) {
  Engine::Lock lock(engine_);
  refresh();
  if (!failed_) fail(internal::abort_error(cause), nullptr);
}

void SharedGroup::retire(int, bool on) {
  Engine::Lock lock(engine_);
  retire_locked(on);
}

void SharedGroup::retire_locked(bool on) {
  areas_[me_].header().retired.store(on);
  for (int i = 0; i < size(); ++i)
    if (i != me_ && areas_[i]) ring(i);
}

// The first failure counts. A collective does not fail once all ranks have agreed that it is done.
void SharedGroup::fail(const Error& error, const SharedOp* op) {
  if (failed_ || !open_) return;  // open() checks for ranks that ended before
  AreaHeader& mine = areas_[me_].header();
  const std::string text = error.what();
  mine.failure_code = static_cast<int32_t>(error.code());
  mine.failure_length = static_cast<uint32_t>(std::min(text.size(), sizeof mine.failure_text));
  std::memcpy(mine.failure_text, text.data(), mine.failure_length);
  mine.failure_stream = op ? streams_.at(op->stream).id : 0;
  mine.failure_number = op ? op->number : 0;
  const bool collective = op && op->stream == 0;
  uint64_t v = state().load();
  while (!(v & 0xffff)) {
    if (collective && (v >> 16) >= op->number) return;
    if (!state().compare_exchange_weak(v, v | static_cast<uint64_t>(me_ + 1))) continue;
    v |= static_cast<uint64_t>(me_ + 1);
  }
  take_failure(v);
  for (int i = 0; i < size(); ++i) ring(i);
}

void SharedGroup::refresh() {
  const uint64_t v = state().load();
  if ((v & 0xffff) && !failed_) take_failure(v);
}

void SharedGroup::take_failure(uint64_t v) {
  const AreaHeader& record = areas_[(v & 0xffff) - 1].header();
  const std::string text(record.failure_text, record.failure_length);
  failed_ = aborted_by(text);
  for (auto& [index, s] : streams_)
    for (const Ref<SharedOp>& op : s.ops) {
      if (op->ended()) continue;
      if (index == 0 && (v >> 16) >= op->number) continue;  // it is done on all ranks
      if (index != 0 && op->state == SharedOp::State::kCopied) continue;
      op->state = SharedOp::State::kFailed;
      if (record.failure_number == op->number && record.failure_stream == s.id)
        op->error = Error(static_cast<Code>(record.failure_code), text);
      else
        op->error = failed_;
    }
}

}  // namespace weft::dist::shared
