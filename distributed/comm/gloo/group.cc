#include "distributed/comm/gloo/group.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::wire {

using internal::aborted_by;
using internal::LastStarted;
using internal::mix;
using internal::others_read;
using internal::point_to_point;
using internal::Request;
using Lock = std::unique_lock<std::mutex>;

namespace {

constexpr uint64_t kMaxAhead = 1 << 20;  // collectives by which another rank may be ahead of this rank

StridedView dense(const StridedView& v, const void* data) {
  return {const_cast<void*>(data), v.dtype, v.shape, contiguous_strides(v.shape)};
}

void copy(const StridedView& from, const StridedView& to) {
  if (from.numel() == 0) return;
  internal::Transfer t;
  t.from = {from};
  t.to = {to};
  internal::run(t, {0, Shape::filled(from.shape.size(), 0), from.shape});
}

int64_t system_time() { return std::chrono::system_clock::now().time_since_epoch().count(); }

}  // namespace

GlooGroup::GlooGroup(Hub& hub, std::shared_ptr<ProcessHub> world, const std::string& name,
                     const std::vector<int>& members, int rank, uint64_t key)
    : ProcessGroup(std::move(world), name, members, rank, key),
      hub_(hub),
      open_(members.size()),
      retired_(members.size()),
      last_(members.size()) {
  open_[me_] = true;
}

FrameHeader GlooGroup::header(FrameKind kind, int to_position) const {
  FrameHeader h;
  h.kind = kind;
  h.from = names_.ranks[me_];
  h.to = names_.ranks[to_position];
  h.group = key_;
  return h;
}

void GlooGroup::send_to_others(FrameKind kind, std::vector<char> bytes, uint64_t stream, uint64_t number) {
  for (int i = 0; i < size(); ++i) {
    if (i == me_) continue;
    FrameHeader h = header(kind, i);
    h.stream = stream;
    h.number = number;
    h.bytes = static_cast<uint32_t>(bytes.size());
    hub_.send({h, bytes, {}});
  }
}

void GlooGroup::open(Work::Deadline deadline) {
  Lock lock(hub_.mutex);
  while (true) {
    const auto it = std::find(open_.begin(), open_.end(), false);
    if (it == open_.end()) break;
    // The cause is an aborted world: other ranks may have opened the group and failed in a collective already.
    const std::string cause = hub_.aborted();
    WEFT_CHECK_AS(kAborted, cause.empty(), "communicator ", names_.name, ": ", cause);
    const int i = static_cast<int>(it - open_.begin());
    bool left = false;
    const std::string ending = hub_.ending(names_.ranks[i], &left);
    WEFT_CHECK_AS(kAborted, ending.empty(), "communicator ", names_.name, ": ", ending);
    const bool in_time = changed_.wait_until(lock, deadline) != std::cv_status::timeout;
    WEFT_CHECK_AS(kDeadlineExceeded, in_time || open_[i], "communicator ", names_.name,
                  ": the deadline has passed; missing: ", names_.who(i), " has not created it");
  }
  for (int r : names_.ranks) ended(r);
}

void GlooGroup::announce() { send_to_others(FrameKind::kOpen, {}); }

void GlooGroup::opened(int position) {
  open_[position] = true;
  changed_.notify_all();
}

Stream& GlooGroup::stream_of(uint64_t id) {
  auto [it, added] = streams_.try_emplace(id);
  Stream& s = it->second;
  if (!added) return s;
  s.id = id;
  if (id == 0) {
    for (int i = 0; i < size(); ++i) s.members.push_back(i);
  } else {
    s.members = {static_cast<int>((id - 1) / size()), static_cast<int>((id - 1) % size())};
  }
  s.mine = std::find(s.members.begin(), s.members.end(), me_) - s.members.begin();
  s.started.resize(s.members.size());
  return s;
}

Ref<GlooOp> GlooGroup::op_at(Stream& s, uint64_t k) {
  while (s.base + s.ops.size() <= k) {
    const uint64_t at = s.base + s.ops.size();
    auto op = make_ref<GlooOp>(s.members, at + 1);
    op->k = at;
    op->stream = s.id;
    op->mine = s.mine;
    op->id = mix(mix(key_, s.id), op->number) | 1;
    op->times.resize(s.members.size());
    op->inlined.resize(s.members.size());
    op->inputs.resize(s.members.size());
    s.ops.push_back(std::move(op));
  }
  return s.ops[k - s.base];
}

// Whether the rank at position `to` needs the input of the rank at `from`. Both know it from one of their requests.
bool GlooGroup::needs_input(const Request& r, int from, int to) const {
  if (r.kind == Collective::kPermute) return ((from + r.shift) % size() + size()) % size() == to;
  return others_read(r, from);
}

Ref<internal::Op> GlooGroup::start(int, const CommRequest& request, std::optional<Error>* error,
                                   const std::pair<int, int>* color) {
  Request r(request);
  Lock lock(hub_.mutex);
  if (!failed_ && (*error = names_.wrong_peer(r, me_))) {
    fail(**error, nullptr);
    return {};
  }
  if ((*error = failed_)) return {};
  const int to = r.kind == Collective::kRecv ? me_ : r.peer, from = r.kind == Collective::kRecv ? r.peer : me_;
  Stream& s = stream_of(point_to_point(r.kind) ? 1 + static_cast<uint64_t>(from) * size() + to : 0);
  Ref<GlooOp> op = op_at(s, s.started[s.mine]);
  StartedRequest sent;
  sent.request = r;
  // All ranks find a wrong number of counts; they need not have all counts for that.
  for (auto* counts : {&sent.request.send, &sent.request.recv})
    if (counts->size() > static_cast<size_t>(size()) + 1) counts->resize(size() + 1);
  sent.time = system_time();
  if (color) {
    sent.splits = true;
    std::tie(sent.color, sent.key) = *color;
  }
  const int64_t bytes = others_read(r, me_) ? r.in.nbytes() : 0;
  sent.inlined = bytes > 0 && bytes <= kInlineBytes;
  const std::vector<char> without = encode(sent);
  std::vector<char> with;
  if (sent.inlined) {
    sent.input.resize(bytes);
    copy(r.in, dense(r.in, sent.input.data()));
    with = encode(sent);
    sent.input.clear();
  }
  for (size_t i = 0; i < s.members.size(); ++i) {
    if (i == s.mine) continue;
    FrameHeader h = header(FrameKind::kRequest, s.members[i]);
    h.stream = s.id;
    h.number = op->k;
    const std::vector<char>& text = sent.inlined && needs_input(r, me_, s.members[i]) ? with : without;
    h.bytes = static_cast<uint32_t>(text.size());
    hub_.send({h, text, {}});
  }
  sent.request = std::move(r);
  op->started = true;
  take(s, *op, s.mine, std::move(sent));
  return op;
}

// A rank has started the op: this rank or another one.
void GlooGroup::take(Stream& s, GlooOp& op, size_t i, StartedRequest r) {
  ++s.started[i];
  op.here[i] = true;
  op.times[i] = r.time;
  op.inlined[i] = r.inlined;
  op.inputs[i] = std::move(r.input);
  op.splits += r.splits;
  op.colors[i] = {r.color, r.key};
  op.requests[i] = std::move(r.request);
  last_[s.members[i]] = {op.requests[i].kind, op.number};
  op.first = -1;
  size_t arrived = 0;
  for (size_t j = 0; j < s.members.size(); ++j) {
    if (!op.here[j]) continue;
    ++arrived;
    if (op.first < 0 || op.times[j] < op.times[op.first]) op.first = static_cast<int>(j);
  }
  const bool all = arrived == s.members.size();
  try {
    for (size_t j = 0; j < s.members.size(); ++j)
      if (op.here[j] && static_cast<int>(j) != op.first) names_.agree(op, op.first, j);
    if (all)
      get_ready(op);
    else
      check_retired(op);
  } catch (const Error& e) {
    // A mismatch of two ranks does not show which rank is wrong: other requests may still come.
    const auto now = std::chrono::steady_clock::now();
    if (!mismatch_ || all) mismatch_ = {Ref<GlooOp>(&op), e, all ? now : now + hub_.settles};
    if (mismatch_->op.get() == &op) mismatch_->error = e;
    settle();
    changed_.notify_all();
  }
}

void GlooGroup::settle() {
  if (mismatch_ && std::chrono::steady_clock::now() >= mismatch_->settles) fail(mismatch_->error, mismatch_->op.get());
}

void GlooGroup::get_ready(GlooOp& op) {
  for (size_t i = 0; i < op.inputs.size(); ++i)
    if (!op.inputs[i].empty()) op.requests[i].in.data = op.inputs[i].data();
  names_.build(op);
  plan(op);
  op.ready = true;
  int64_t bytes = 0;
  for (int t : op.runnable)
    bytes += op.tasks[t].box.extent.numel() * itemsize(op.transfers[op.tasks[t].transfer].from[0].dtype);
  if (bytes <= internal::kSmallBytes) {
    for (; !op.runnable.empty(); op.runnable.pop_front()) {
      run_task(op, op.tasks[op.runnable.front()], nullptr);
      --op.to_apply;
    }
  }
  if (!op.runnable.empty() || !op.early.empty()) hub_.work(Ref<GlooGroup>(this), Ref<GlooOp>(&op));
  changed_.notify_all();
  finish(op);
}

void GlooGroup::check_retired(GlooOp& op) {
  for (size_t i = 0; i < op.members.size(); ++i)
    if (!op.here[i] && retired_[op.members[i]] && op.first >= 0) {
      fail(names_.returned(op, last_of(op), i), &op);
      return;
    }
}

std::vector<LastStarted> GlooGroup::last_of(const GlooOp& op) const {
  std::vector<LastStarted> last;
  for (int m : op.members) last.push_back(last_[m]);
  return last;
}

std::optional<Error> GlooGroup::wait(internal::Op& started, Work::Deadline deadline) {
  GlooOp& op = static_cast<GlooOp&>(started);
  Lock lock(hub_.mutex);
  bool poll = true;
  while (!(op.ended() && op.workers == 0)) {
    settle();
    if (op.ended() && op.workers == 0) break;
    if (!op.failed && op.ready && !(op.runnable.empty() && op.early.empty())) {
      lock.unlock();
      work(op);
      lock.lock();
      continue;
    }
    if (poll && std::chrono::steady_clock::now() < deadline) {
      std::vector<int> others;
      for (size_t i = 0; i < op.members.size(); ++i)
        if (i != op.mine && (op.ready || !op.here[i])) others.push_back(names_.ranks[op.members[i]]);
      lock.unlock();
      poll = hub_.poll(others);
      lock.lock();
      continue;
    }
    const auto until = mismatch_ && !failed_ ? std::min(deadline, mismatch_->settles) : deadline;
    if (changed_.wait_until(lock, until) != std::cv_status::timeout || (op.ended() && op.workers == 0)) continue;
    if (until < deadline) continue;
    if (!op.ended()) time_out(op);
    break;  // leave() waits for the threads that still use the operands
  }
  return op.error;
}

void GlooGroup::time_out(GlooOp& op) {
  if (mismatch_) return fail(mismatch_->error, mismatch_->op.get());
  const bool all = std::find(op.here.begin(), op.here.end(), false) == op.here.end();
  fail(all ? names_.still_copying(op, op.to_send + op.to_apply, op.parts)
           : names_.missing(op, last_of(op), Code::kDeadlineExceeded, "the deadline has passed"),
       &op);
}

bool GlooGroup::done(internal::Op& started) {
  const GlooOp& op = static_cast<GlooOp&>(started);
  const std::lock_guard lock(hub_.mutex);
  settle();
  return op.ended() && op.workers == 0;
}

void GlooGroup::leave(internal::Op& started, int) {
  GlooOp& op = static_cast<GlooOp&>(started);
  Lock lock(hub_.mutex);
  if (!op.ended() && mismatch_) fail(mismatch_->error, mismatch_->op.get());
  if (!op.ended()) fail(names_.dropped(op.requests[op.mine].kind, op.number, me_), &op);
  changed_.wait(lock, [&] { return op.workers == 0; });  // no deadline: this rank's memory is in use
}

void GlooGroup::abort(const std::string& cause) {
  const std::lock_guard lock(hub_.mutex);
  if (!failed_) fail(internal::abort_error(cause), nullptr);
}

void GlooGroup::retire(int, bool on) {
  const std::lock_guard lock(hub_.mutex);
  retired_[me_] = on;
  send_to_others(FrameKind::kRetire, {}, 0, on);
}

void GlooGroup::finish(GlooOp& op) {
  if (op.ended() || !op.ready || op.to_send > 0 || op.to_apply > 0 || op.workers > 0) return;
  op.done = true;
  drop_ended(stream_of(op.stream));
  changed_.notify_all();
}

void GlooGroup::drop_ended(Stream& s) {
  for (; !s.ops.empty() && s.ops.front()->ended(); ++s.base) s.ops.pop_front();
}

void GlooGroup::fail(const Error& error, const GlooOp* op) {
  if (failed_) return;
  Failure f{error.code(), op != nullptr, error.what()};
  send_to_others(FrameKind::kFail, encode(f), op ? op->stream : 0, op ? op->k : 0);
  fail_here(error, op);
}

void GlooGroup::fail_here(const Error& error, const GlooOp* op, uint64_t stream, uint64_t number, bool of_collective) {
  if (failed_) return;
  failed_ = aborted_by(error.what());
  for (auto& [id, s] : streams_)
    for (const Ref<GlooOp>& o : s.ops) {
      if (o->ended()) continue;
      o->failed = true;
      const bool this_one = op ? o.get() == op : of_collective && o->stream == stream && o->k == number;
      o->error = this_one ? error : *failed_;
      o->runnable.clear();
      o->early.clear();
    }
  changed_.notify_all();
}

void GlooGroup::ended(int world_rank) {
  const int i = position_of(world_rank);
  bool left = false;
  const std::string ending = hub_.ending(world_rank, &left);
  if (ending.empty()) return;
  if (!left) {
    if (failed_) return;
    // The others may reach that rank.
    send_to_others(FrameKind::kFail,
                   encode(Failure{Code::kAborted, false, str_cat(names_.who(me_), " reports: ", ending)}));
    return fail_here(Error(Code::kAborted, ending), nullptr);
  }
  retired_[i] = true;
  for (auto& [id, s] : streams_)
    for (size_t j = 0; j < s.ops.size() && !failed_; ++j)
      if (!s.ops[j]->ready) check_retired(*s.ops[j]);
  changed_.notify_all();
}

void GlooGroup::receive(const FrameHeader& h, const char* payload, Lock& lock) {
  const int from = position_of(h.from);
  WEFT_CHECK(from >= 0 && from != me_, "gloo: a message of rank ", h.from, ", which is not of ", names_.name);
  if (h.kind == FrameKind::kOpen) return opened(from);
  if (failed_) return;
  const auto n = static_cast<uint64_t>(size());
  WEFT_CHECK(h.stream <= n * n, "gloo: a message of a sequence that does not exist");
  switch (h.kind) {
    case FrameKind::kRequest:
      return receive_request(h, payload);
    case FrameKind::kData: {
      const auto it = streams_.find(h.stream);
      if (it == streams_.end() || h.number < it->second.base) return;  // done or dropped
      const Stream& s = it->second;
      WEFT_CHECK(h.number - s.base < s.ops.size(), "gloo: data of a collective that has not started");
      const Ref<GlooOp> op = s.ops[h.number - s.base];
      if (!op->ended()) receive_data(*op, h, payload, lock);
      return;
    }
    case FrameKind::kFail: {
      const Failure f = decode_failure(payload, h.bytes);
      return fail_here(Error(f.code, f.text), nullptr, h.stream, h.number, f.of_collective);
    }
    case FrameKind::kRetire: {
      retired_[from] = h.number != 0;
      if (!retired_[from]) return;
      for (auto& [id, s] : streams_)
        for (size_t j = 0; j < s.ops.size() && !failed_; ++j)
          if (!s.ops[j]->ready) check_retired(*s.ops[j]);
      return;
    }
    default:
      return;
  }
}

void GlooGroup::receive_request(const FrameHeader& h, const char* payload) {
  StartedRequest r = decode_request(payload, h.bytes, size());
  const int from = position_of(h.from);
  const bool pair = point_to_point(r.request.kind);
  bool right = pair == (h.stream != 0);
  if (pair) {
    const bool sends = r.request.kind == Collective::kSend;
    right &= r.request.peer == me_ &&
             h.stream == 1 + static_cast<uint64_t>(sends ? from : me_) * size() + (sends ? me_ : from);
  }
  WEFT_CHECK(right, "gloo: a request of a wrong sequence");
  Stream& s = stream_of(h.stream);
  const size_t i = std::find(s.members.begin(), s.members.end(), from) - s.members.begin();
  WEFT_CHECK(h.number == s.started[i] && h.number < s.started[s.mine] + kMaxAhead, "gloo: a request out of order");
  take(s, *op_at(s, h.number), i, std::move(r));
}

}  // namespace weft::dist::wire
