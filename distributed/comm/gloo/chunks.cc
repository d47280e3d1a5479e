// Divides, sends, receives and combines the operands of a collective.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "distributed/comm/gloo/group.h"

namespace weft::dist::wire {
namespace {

using internal::Box;
using internal::combines;
using internal::Transfer;
using Lock = std::unique_lock<std::mutex>;

StridedView part_of(StridedView v, const Box& box) {
  for (int d = 0; d < box.extent.size(); ++d) v = internal::slice(v, d, box.begin[d], box.extent[d]);
  return v;
}
StridedView chunk_view(const Transfer& t, const Box& box, const void* data) {
  return {const_cast<void*>(data), t.from[0].dtype, box.extent, contiguous_strides(box.extent)};
}
int64_t bytes_of(const Transfer& t, const Box& box) { return box.extent.numel() * itemsize(t.from[0].dtype); }

template <class List>
int64_t index_in(const List& list, int x) {
  const auto it = std::find(list.begin(), list.end(), x);
  return it == list.end() ? -1 : it - list.begin();
}

}  // namespace

// The positions whose inputs a transfer reads, in the order of its sources.
std::vector<int> GlooGroup::sources_of(const GlooOp& op, int transfer) const {
  const internal::Request& r = op.requests[op.mine];
  const int n = static_cast<int>(op.members.size());
  switch (r.kind) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter: {
      std::vector<int> all(n);
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    case Collective::kBroadcast:
      return {r.peer};
    case Collective::kAllToAll:
      return {transfer / n};
    case Collective::kSend:
    case Collective::kRecv:
      return {0};
    default:
      return {transfer};
  }
}

// Lists this rank's tasks and sends its chunks. Ignores parts that this rank neither sends nor receives: only other
// ranks know their sizes.
void GlooGroup::plan(GlooOp& op) {
  const Collective kind = op.requests[op.mine].kind;
  const auto n = static_cast<int64_t>(op.members.size());
  const int mine = static_cast<int>(op.mine);
  op.task_of.resize(op.transfers.size());
  const auto inlined = std::count(op.inlined.begin(), op.inlined.end(), true);
  const bool shares = kind == Collective::kAllReduce && n > 1 && inlined == 0;
  WEFT_CHECK(!combines(kind) || inlined == 0 || inlined == n,
             "gloo: ranks disagree on whether they send inputs with requests");
  for (int ti = 0; ti < static_cast<int>(op.transfers.size()); ++ti) {
    const Transfer& t = op.transfers[ti];
    const std::vector<int>& receivers = op.receivers[ti];
    const std::vector<int> sources = sources_of(op, ti);
    const bool reads = index_in(sources, mine) >= 0, writes = index_in(receivers, mine) >= 0;
    if (!reads && !writes) continue;
    for (int s : sources)
      WEFT_CHECK(!writes || s == mine || !op.inlined[s] || t.shape().numel() == 0 || !op.inputs[s].empty(),
                 "gloo: a request has come without its input");
    int64_t elements = kChunkBytes / itemsize(t.from[0].dtype);
    if (shares) elements = std::min(elements, (t.shape().numel() + n - 1) / n);
    std::vector<Box> boxes;
    internal::split(t.shape(), ti, elements, boxes);
    for (size_t c = 0; c < boxes.size(); ++c) {
      Task task;
      task.transfer = ti;
      task.box = boxes[c];
      task.sources = sources;
      if (shares) {
        const int owner = static_cast<int>(c * n / boxes.size());
        if (owner == mine) {
          task.forward = true;
          op.to_send += n - 1;
        } else {
          task.sources = {owner};
          task.from_owner = true;
          ++op.to_send;
          send_chunk(op, ti, c, owner, part_of(t.from[mine], boxes[c]));
        }
      } else if (reads && !op.inlined[mine]) {
        for (int to : receivers) {
          if (to == mine) continue;
          ++op.to_send;
          send_chunk(op, ti, c, to, part_of(t.from[combines(kind) ? mine : 0], boxes[c]));
        }
      }
      if (writes) add_task(op, std::move(task));
    }
  }
  op.to_apply = op.tasks.size();
  op.parts = op.to_apply + op.to_send;
}

void GlooGroup::add_task(GlooOp& op, Task task) {
  const int index = static_cast<int>(op.tasks.size());
  task.arrived.resize(task.sources.size());
  task.staged.resize(task.sources.size());
  for (size_t i = 0; i < task.sources.size(); ++i) {
    const int s = task.sources[i];
    task.arrived[i] = s == static_cast<int>(op.mine) || (op.inlined[s] && !task.from_owner);
    task.missing += !task.arrived[i];
  }
  if (task.missing == 0) op.runnable.push_back(index);
  op.task_of[task.transfer].push_back(index);
  op.tasks.push_back(std::move(task));
}

void GlooGroup::send_chunk(GlooOp& op, int transfer, size_t chunk, size_t to, const StridedView& view) {
  FrameHeader h = header(FrameKind::kData, op.members[to]);
  h.stream = op.stream;
  h.number = op.k;
  h.transfer = static_cast<uint32_t>(transfer);
  h.chunk = static_cast<uint32_t>(chunk);
  h.bytes = static_cast<uint32_t>(view.nbytes());
  hub_.send({h, {}, [group = Ref<GlooGroup>(this), op = Ref<GlooOp>(&op), view](char* buffer) {
               Lock lock(group->hub_.mutex);
               if (op->ended()) return false;
               ++op->workers;
               lock.unlock();
               Transfer t;
               t.from = {view};
               t.to = {StridedView{buffer, view.dtype, view.shape, contiguous_strides(view.shape)}};
               internal::run(t, {0, Shape::filled(view.shape.size(), 0), view.shape});
               lock.lock();
               --op->workers;
               --op->to_send;
               if (op->failed) group->changed_.notify_all();
               group->finish(*op);
               return true;
             }});
}

void GlooGroup::receive_data(GlooOp& op, const FrameHeader& h, const char* payload, Lock& lock) {
  const char* const wrong = "gloo: data that no collective of this rank needs";
  if (!op.ready) {
    const internal::Request& r = op.requests[op.mine];
    const int64_t in = r.in.nbytes(), out = r.out.nbytes();
    op.early_bytes += h.bytes;
    WEFT_CHECK(op.started && op.early_bytes <= size() * (in + out), wrong);
    op.early.push_back({h, {payload, payload + h.bytes}});
    return;
  }
  WEFT_CHECK(h.transfer < op.task_of.size() && h.chunk < op.task_of[h.transfer].size(), wrong);
  const int index = op.task_of[h.transfer][h.chunk];
  Task& t = op.tasks[index];
  const int64_t from = index_in(op.members, position_of(h.from));
  const int64_t source = from < 0 ? -1 : index_in(t.sources, static_cast<int>(from));
  WEFT_CHECK(source >= 0 && !t.arrived[source] && h.bytes == bytes_of(op.transfers[t.transfer], t.box), wrong);
  t.arrived[source] = true;
  if (t.missing == 1) {
    t.missing = 0;
    return apply(op, index, payload, lock);
  }
  const Ref<GlooOp> keep(&op);
  lock.unlock();
  std::vector<char> copy(payload, payload + h.bytes);
  lock.lock();
  t.staged[source] = std::move(copy);
  if (--t.missing == 0 && !op.ended()) apply(op, index, nullptr, lock);
}

// Does a task whose last chunk has come; `last` is this chunk, which is not staged.
void GlooGroup::apply(GlooOp& op, int index, const char* last, Lock& lock) {
  const Ref<GlooOp> keep(&op);
  ++op.workers;
  lock.unlock();
  run_task(op, op.tasks[index], last);
  lock.lock();
  --op.workers;
  --op.to_apply;
  Task& t = op.tasks[index];
  t.staged.clear();
  if (op.failed) changed_.notify_all();
  if (t.forward && !op.failed) {
    const Transfer& x = op.transfers[t.transfer];
    const StridedView out = part_of(x.to[index_in(op.receivers[t.transfer], static_cast<int>(op.mine))], t.box);
    const auto& chunks = op.task_of[t.transfer];
    const size_t chunk = index_in(chunks, index);
    for (size_t i = 0; i < op.members.size(); ++i)
      if (i != op.mine) send_chunk(op, t.transfer, chunk, i, out);
  }
  finish(op);
}

// The caller does not hold the lock.
void GlooGroup::run_task(const GlooOp& op, const Task& t, const char* last) const {
  const Transfer& all = op.transfers[t.transfer];
  const bool sums = combines(op.requests[op.mine].kind);
  Transfer x;
  x.op = all.op;
  for (size_t i = 0; i < t.sources.size(); ++i) {
    const int s = t.sources[i];
    if (!t.from_owner && (s == static_cast<int>(op.mine) || op.inlined[s]))
      x.from.push_back(part_of(all.from[sums ? s : 0], t.box));
    else
      x.from.push_back(chunk_view(all, t.box, t.staged[i].empty() ? last : t.staged[i].data()));
  }
  x.to = {part_of(all.to[index_in(op.receivers[t.transfer], static_cast<int>(op.mine))], t.box)};
  internal::run(x, {0, Shape::filled(t.box.extent.size(), 0), t.box.extent});
}

void GlooGroup::work(GlooOp& op) {
  Lock lock(hub_.mutex);
  while (op.ready && !op.ended()) {
    if (!op.early.empty()) {
      const GlooOp::Early e = std::move(op.early.front());
      op.early.erase(op.early.begin());
      try {
        receive_data(op, e.header, e.payload.data(), lock);
      } catch (const Error& error) {
        fail(error, &op);
      }
    } else if (!op.runnable.empty()) {
      const int index = op.runnable.front();
      op.runnable.pop_front();
      apply(op, index, nullptr, lock);
    } else {
      return;
    }
  }
}

}  // namespace weft::dist::wire
