#include "compiler/exec/run/executable.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compiler/exec/run/count.h"
#include "compiler/exec/run/trace.h"
#include "framework/base/clock.h"
#include "framework/base/switches.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/rank/rank.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/stored_value.h"
#include "framework/dispatch/state/torn.h"

namespace weft::internal {
namespace {

void* begin_of(const Tensor& t) { return static_cast<char*>(t.get().storage->data()) + t.get().offset; }

constexpr int kTimedReplays = 3;
// Larger values are not staged: the replay takes their new address.
constexpr int64_t kMostStaged = int64_t{64} << 20;

// Whether a handle other than the cell's own refers to its memory.
bool has_other_holder(const Tensor& t) {
  const TensorImpl& i = t.get();
  return i.refs.load(std::memory_order_acquire) > 1 || i.storage->use_count() > 1 || !i.storage->owned();
}

// The bytes of strided memory, from the address of its first element.
struct Extent {
  int64_t begin = 0, end = 0;  // address of the lowest element, and the end of the highest
  // The bytes of a copy ahead of the first element, which keep its alignment.
  int64_t room_before() const { return (-begin + 255) / 256 * 256; }
};
Extent extent_of(const Tensor& t) {
  const TensorImpl& i = t.get();
  if (i.type.shape.numel() == 0) return {};
  Extent e{0, itemsize(i.type.dtype)};
  for (int d = 0; d < i.type.shape.size(); ++d) {
    const int64_t reach = (i.type.shape[d] - 1) * i.strides[d] * itemsize(i.type.dtype);
    (reach < 0 ? e.begin : e.end) += reach;
  }
  return e;
}

}  // namespace

Executable::Executable(const MemoryLayout& plan, SharedArena& arena, ExecutableOptions options)
    : plan_(plan),
      arena_(arena),
      device_(options.rank ? options.rank->device : plan.device),
      cells_(options.rank ? std::move(options.rank->cells) : plan.graph->cells),
      rank_(options.rank.has_value()),
      target_(options.target ? *options.target : target_of(device_.type, "executable")),
      limits_(target_.limits()),
      captured_(options.captured),
      holds_(std::move(options.holds)),
      check_(std::move(options.check)) {
  WEFT_BUG_IF(cells_.size() != plan.cells.size(), "executable: ", cells_.size(), " cells for ", plan.cells.size());
  build();
}

void Executable::build() {
  const Graph& g = *plan_.graph;
  const bool to_file = follow_trace_switch();
  debug_ = switch_int("WEFT_DEBUG") >= 1;
  if (plan_.folded_bytes > 0) folded_ = Storage::allocate(plan_.folded_bytes, device_);

  auto add_base = [&] {
    bases_.emplace_back();
    return static_cast<int32_t>(bases_.size()) - 1;
  };
  arena_base_ = add_base();
  for (size_t i = 0; i < g.inputs.size(); ++i) argument_base_.push_back(add_base());
  for (size_t i = 0; i < plan_.output_blocks.size(); ++i) output_base_.push_back(add_base());
  for (size_t c = 0; c < plan_.cells.size(); ++c)
    if (plan_.cells[c].used)
      bound_.push_back({static_cast<int32_t>(c), add_base(), plan_.cells[c].written ? add_base() : -1, {}});
  for (size_t i = 0; i < bound_.size(); ++i) gate_order_.push_back(i);
  std::sort(gate_order_.begin(), gate_order_.end(), [&](size_t a, size_t b) {
    return cells_[bound_[a].cell].get() < cells_[bound_[b].cell].get();  // as in_gate_order
  });
  pool_.resize(plan_.output_blocks.size());
  chosen_.resize(plan_.output_blocks.size());
  argument_staging_.resize(g.inputs.size());
  output_staging_.resize(plan_.output_blocks.size());

  size_t views = 0;
  for (const auto* list : {&plan_.setup, &plan_.launches})
    for (const Launch& l : *list) views += l.in.size() + l.out.size();
  views_.reserve(views);
  const std::vector<StepCall> setup = build_calls(plan_.setup, setup_workspaces_);
  calls_ = build_calls(plan_.launches, workspaces_);
  launch_us_.resize(plan_.launches.size());
  std::stable_sort(collected_.begin(), collected_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < collected_.size(); ++i) {
    MovableBase& b = bases_[collected_[i].first];
    if (b.end == 0) b.begin = static_cast<int32_t>(i);
    b.end = static_cast<int32_t>(i) + 1;
    patches_.push_back(collected_[i].second);
  }
  collected_ = {};
  run_setup(setup);
  ReplayOptions how{captured_ && !to_file && !debug_, written_cells()};
  how.commit_point = plan_.commit_point;
  how.agree = [this] {
    RankContext::require("step").agree();
    past_commit_point_ = true;
    begin_ns_ = now_ns();  // start of the launch that it comes before
  };
  how.holds = holds_;
  for (const Launch& l : plan_.launches) how.collectives.push_back(!l.copy && g.node(l.node).op->is(kCollective));
  replay_ = target_.replay(device_, calls_, std::move(how));
}

bool Executable::misaligned(const Tensor& t) const {
  return reinterpret_cast<uintptr_t>(begin_of(t)) % static_cast<uintptr_t>(limits_.address_alignment) != 0;
}

// The same value with the same strides in a new block.
Tensor Executable::aligned(const Tensor& t) const {
  const Extent e = extent_of(t);
  auto* impl = new TensorImpl;
  const Tensor made(impl);
  impl->type = t.type();
  impl->strides = t.get().strides;
  impl->offset = e.room_before();
  impl->storage = Storage::allocate(e.room_before() + e.end, device_);
  copy_extent(t, begin_of(made));
  return made;
}

// Copies all bytes of a strided value; `to` gets its first element.
void Executable::copy_extent(const Tensor& from, void* to) const {
  const Extent e = extent_of(from);
  copy(static_cast<char*>(to) + e.begin, static_cast<char*>(begin_of(from)) + e.begin, e.end - e.begin);
}

void Executable::copy(void* to, const void* from, int64_t bytes) const {
  target_.copy({const_cast<void*>(from), kUInt8, {bytes}, {1}}, device_, {to, kUInt8, {bytes}, {1}}, device_);
}

std::vector<Ref<Cell>> Executable::written_cells() const {
  std::vector<Ref<Cell>> all;
  for (const BoundCell& b : bound_)
    if (plan_.cells[b.cell].written) all.push_back(cells_[b.cell]);
  return all;
}

int32_t Executable::base_of(const MemoryBlock& b) {
  auto cell = [&](int32_t c) -> BoundCell& {
    for (BoundCell& x : bound_)
      if (x.cell == c) return x;
    WEFT_BUG_IF(true, "executable: cell ", c, " is not bound");
  };
  switch (b.home) {
    case Home::kArena:
      return arena_base_;
    case Home::kArgument:
      return argument_base_[b.index];
    case Home::kOutput:
      return output_base_[b.index];
    case Home::kCell:
      return cell(b.index).old_base;
    case Home::kCellNew:
      return cell(b.index).new_base;
    default:
      return -1;
  }
}

std::vector<StepCall> Executable::build_calls(const std::vector<Launch>& launches, std::vector<void*>& workspaces) {
  const Graph& g = *plan_.graph;
  std::vector<int32_t> base(plan_.buffers.size(), -2);
  auto add_patch = [&](int32_t id, void** slot, int64_t offset) {
    const MemoryBlock& b = plan_.buffers[id];
    if (base[id] == -2) base[id] = base_of(b);
    if (b.home == Home::kArena) offset += b.offset;
    collected_.push_back({base[id], {slot, offset}});
  };
  // The slot will hold the address of the place.
  auto address = [&](const BufferPlace& p, void** slot) {
    const MemoryBlock& b = plan_.buffers[p.buffer];
    if (b.home == Home::kFolded) {
      if (folded_) *slot = static_cast<char*>(folded_->data()) + b.offset + p.offset;  // else all are empty
    } else if (b.home == Home::kCaptured) {
      const Tensor* captured = &g.captured[b.index];
      if (misaligned(*captured)) captured = &copies_.emplace_back(aligned(*captured));
      *slot = static_cast<char*>(begin_of(*captured)) + p.offset;
    } else {
      add_patch(p.buffer, slot, p.offset);
    }
  };
  std::vector<StepCall> calls;
  calls.reserve(launches.size());
  workspaces.assign(launches.size(), nullptr);
  for (const Launch& l : launches) {
    auto add = [&](std::span<const BufferPlace> places) {
      StridedView* begin = views_.data() + views_.size();
      for (const BufferPlace& p : places) {
        views_.push_back({nullptr, p.type.dtype, p.type.shape, p.strides});
        address(p, &views_.back().data);
      }
      return std::span<const StridedView>(begin, places.size());
    };
    const auto in = add(l.in), out = add(l.out);
    void** workspace = &workspaces[calls.size()];
    if (l.workspace >= 0) add_patch(l.workspace, workspace, 0);
    calls.push_back({l.operation.get(), in, out, workspace, &g.node(l.node)});
  }
  return calls;
}

void Executable::run_setup(std::span<const StepCall> calls) {
  if (calls.empty()) return;
  Ref<Storage> scratch;
  if (plan_.setup_workspace > 0) scratch = Storage::allocate(plan_.setup_workspace, device_);
  for (void*& workspace : setup_workspaces_) workspace = scratch ? scratch->data() : nullptr;
  const std::unique_ptr<Replay> replay = target_.replay(device_, calls, {.captured = false});
  try {
    if (check_) return run_checked(*replay, plan_.setup, calls);
    replay->run(true);
  } catch (const FailedNode& e) {
    throw Error(e.code(), e.what() + origin_text(e.node.line, e.node.scope));
  } catch (const Error& e) {
    const Node& n = plan_.graph->node(plan_.setup[std::min(replay->at(), plan_.setup.size() - 1)].node);
    throw Error(e.code(), e.what() + origin_text(n.line, n.scope));
  }
}

void Executable::bind(int32_t base, void* address) {
  MovableBase& b = bases_[base];
  if (b.address == address) return;
  b.address = address;
  moved_ = true;
  for (int32_t i = b.begin; i < b.end; ++i) *patches_[i].slot = static_cast<char*>(address) + patches_[i].offset;
}

void Executable::bind_arena() {
  if (arena_.bytes() < plan_.arena_bytes || (arena_.storage && !(arena_.storage->device() == device_))) {
    arena_.storage = {};  // free the smaller one first, so that both never exist at once
    arena_.storage = Storage::allocate(plan_.arena_bytes, device_);
  }
  if (arena_.storage) bind(arena_base_, arena_.storage->data());
}

void Executable::take_cells() {
  std::optional<size_t> unready;
  do {
    if (unready) free_cells(), make_ready(*cells_[bound_[*unready].cell]);
    for (size_t i : gate_order_) take(bound_[i]);
  } while ((unready = unready_cell()));
}

void Executable::take(BoundCell& b) {
  const Cell& c = *cells_[b.cell];
  const CellUse& use = plan_.cells[b.cell];
  b.fresh = {};
  if (!rank_ && !use.written) {
    const CellReader read(c, "compile");
    check_not_torn(c);
    b.held = c.value;
    return;
  }
  if (!rank_ && !c.gate.own()) fail_inside(c, "compile");
  b.owned = !rank_;
  if (b.owned) check_replacement(c, "compile");
  if (use.read) check_not_torn(c);
}

void Executable::free_cells() {
  for (BoundCell& b : bound_) {
    if (std::exchange(b.owned, false)) cells_[b.cell]->gate.release();
    b.held = {};
  }
}

std::optional<size_t> Executable::unready_cell() const {
  for (size_t i = 0; i < bound_.size(); ++i) {
    const Tensor& value = value_of(bound_[i]);
    if (value.defined() ? misaligned(value) : plan_.cells[bound_[i].cell].read) return i;
  }
  return std::nullopt;
}

void Executable::make_ready(Cell& c) const {
  const NoGrad guard;
  static_cast<void>(CellHandle(Ref<Cell>(&c)).value());
  const CellOwner own(c, "compile");
  if (c.value.defined() && misaligned(c.value)) c.value = aligned(c.value);
}

// Allocates new storage here, before anything is written.
void Executable::bind_cells() {
  for (BoundCell& b : bound_) {
    const CellUse& p = plan_.cells[b.cell];
    const Cell& c = *cells_[b.cell];
    const Tensor& value = value_of(b);
    const bool have = value.defined();
    void* old = nullptr;
    if (have) {
      const TensorImpl& i = value.get();
      WEFT_BUG_IF(!weft::is_contiguous(i.type.shape, i.strides), "executable: cell '", c.name, "' is not contiguous");
      old = static_cast<char*>(i.storage->data()) + i.offset;
      bind(b.old_base, old);
    }
    if (!p.written) continue;
    if (have && !has_other_holder(c.value)) {
      bind(b.new_base, old);
      ++last_.in_place_writes;
    } else {
      b.fresh = Tensor::empty(c.type);
      bind(b.new_base, begin_of(b.fresh));
      ++last_.fresh_writes;
      if (have) last_.predicted_peak_bytes += accounted(c.type.nbytes());
    }
  }
}

// A value whose address keeps changing makes a captured step slow, so it gets a fixed buffer when it first moves. Most
// values never move, because pools return the same blocks.
bool Executable::needs_staging(const StagingBuffer& s, void* address, int64_t bytes) const {
  if (bytes == 0) return false;
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(limits_.address_alignment) != 0) return true;
  if (!replay_->wants_fixed_addresses() || bytes > kMostStaged) return false;
  return s.memory || (s.last && s.last != address);
}

void Executable::bind_argument(size_t i, const Tensor& argument) {
  StagingBuffer& s = argument_staging_[i];
  char* const address = static_cast<char*>(begin_of(argument));
  if (limits_.address_alignment == 1 && !replay_->wants_fixed_addresses()) return bind(argument_base_[i], address);
  const Extent e = extent_of(argument);
  if (!needs_staging(s, address, e.end - e.begin)) {
    s.last = address;
    return bind(argument_base_[i], address);
  }
  if (!s.memory) {
    s.memory = Storage::allocate(e.room_before() + e.end, device_);
    staging_bytes_ += accounted(e.room_before() + e.end);
  }
  char* const to = static_cast<char*>(s.memory->data()) + e.room_before();
  copy_extent(argument, to);
  bind(argument_base_[i], to);
}

void Executable::bind_output(size_t k) {
  StagingBuffer& s = output_staging_[k];
  void* const address = chosen_[k]->data();
  if (!needs_staging(s, address, plan_.output_blocks[k])) {
    s.last = address;
    if (s.memory) staging_bytes_ -= accounted(plan_.output_blocks[k]);
    s.memory = {};
    return bind(output_base_[k], address);
  }
  if (!s.memory) {
    s.memory = Storage::allocate(plan_.output_blocks[k], device_);
    staging_bytes_ += accounted(plan_.output_blocks[k]);
  }
  bind(output_base_[k], s.memory->data());
}

void Executable::copy_outputs() {
  for (size_t k = 0; k < chosen_.size(); ++k)
    if (const StagingBuffer& s = output_staging_[k]; s.memory)
      copy(chosen_[k]->data(), s.memory->data(), plan_.output_blocks[k]);
}

// Takes the first block of each pool that no caller holds. One more is kept; the others go back to the allocator.
void Executable::choose_outputs() {
  for (size_t k = 0; k < pool_.size(); ++k) {
    auto& blocks = pool_[k];
    chosen_[k] = nullptr;
    int spare = 0;
    for (size_t i = 0; i < blocks.size();) {
      if (blocks[i]->use_count() > 1) {
        ++i;
      } else if (!chosen_[k]) {
        chosen_[k] = blocks[i++].get();
      } else if (spare++ < 1) {
        ++i;
      } else {
        blocks[i].swap(blocks.back());
        blocks.pop_back();
      }
    }
    if (chosen_[k]) reused_bytes_ += accounted(plan_.output_blocks[k]);
  }
}

std::vector<Tensor> Executable::run(std::span<const Tensor> args) {
  std::optional<TraceScope> phase(std::in_place, TraceEvent::kHost, "bind");
  past_commit_point_ = plan_.commit_point < 0;
  ended_ = false;
  const struct FreeCells {
    Executable& step;
    ~FreeCells() { step.free_cells(); }
  } at_end{*this};
  take_cells();
  bind_arena();

  // The replay's own memory is measured from here on.
  Allocator& allocator = Allocator::of(device_);
  reused_bytes_ = 0;
  choose_outputs();
  int64_t own = accounted(arena_.bytes()) + plan_.folded_bytes + reused_bytes_ + staging_bytes_;
  for (const BoundCell& b : bound_)
    if (value_of(b).defined()) own += accounted(cells_[b.cell]->type.nbytes());
  const int64_t before = allocator.reset_step_peak();
  last_ = {.predicted_peak_bytes = plan_.fixed_bytes + accounted(arena_.bytes())};

  for (size_t i = 0; i < args.size(); ++i) bind_argument(i, args[i]);
  bind_cells();
  for (size_t k = 0; k < pool_.size(); ++k) {
    if (!chosen_[k]) {
      pool_[k].push_back(Storage::allocate(plan_.output_blocks[k], device_));
      chosen_[k] = pool_[k].back().get();
    }
    bind_output(k);
  }
  last_.predicted_peak_bytes += staging_bytes_;
  // Launches allocate nothing; checking their results and counting their work does.
  const bool checking = counting_ || (check_ && !checked_);
  int64_t peak = checking ? allocator.stats().step_peak : 0;
  phase.reset();
  launch();
  phase.emplace(TraceEvent::kHost, "commit");
  if (!checking) peak = allocator.stats().step_peak;
  last_.measured_peak_bytes = own + peak - before;
  try {
    std::vector<Tensor> out = make_outputs(args);
    ended_ = rank_;
    if (!rank_) commit();
    return out;
  } catch (...) {  // no memory for a handle
    failed(plan_.launches.size());
  }
}

void Executable::launch() {
  if (!named_) name_memory();
  const NoOrigin of_the_call;  // failed() adds the place of the op
  // The first replay is slow for other reasons.
  const bool sampled = limits_.synchronous && replays_ > 0 && replays_ <= kTimedReplays;
  if (replays_ <= kTimedReplays) ++replays_;
  if (counting_) {
    run_counted();
    return copy_outputs();
  }
  traced_ = traced(TraceEvent::kLaunch);
  if (traced_ && descriptions_.empty()) describe_launches();
  const TraceName of_launches;
  if (check_ && !checked_) {
    run_checked(*replay_, plan_.launches, calls_);
    checked_ = true;  // not before: a replay that failed is compared again
    return copy_outputs();
  }
  try {
    if (traced_ || debug_ || sampled) {
      run_timed();
    } else {
      replay_->run(moved_);
    }
    moved_ = false;
    copy_outputs();
  } catch (...) {
    failed(replay_->at());
  }
}

// Addresses that moved stay so (moved_): a replay that was captured as one unit still has the old ones.
void Executable::run_counted() {
  counting_ = false;
  done_.resize(plan_.launches.size());
  try {
    replay_->run_by_one([&](size_t i) {
      if (i < calls_.size()) done_[i] = count_work(plan_.launches[i], *plan_.graph, calls_[i].in, target_, device_);
    });
  } catch (...) {
    failed(replay_->at());
  }
}

// Runs once: cells rarely move, and then to memory of the same size.
void Executable::name_memory() {
  named_ = true;
  if (arena_.storage) target_.set_name(device_, arena_.storage->data(), "a step's own values");
  for (const BoundCell& b : bound_) {
    const Cell& c = *cells_[b.cell];
    if (const Tensor& value = value_of(b); value.defined() && !c.name.empty())
      target_.set_name(device_, value.get().storage->data(), c.name);
  }
}

void Executable::failed(size_t at) {
  const Graph& g = *plan_.graph;
  // Peers may still read and write this step's memory.
  if (RankContext* me = RankContext::current()) me->abandon();
  if (at < calls_.size()) report_failure(at);  // else a copy of results failed
  bool lost = false;
  if (!limits_.synchronous) {
    try {
      throw;
    } catch (const Error& e) {
      lost = e.code() == Code::kAborted;  // the device, and all values on it
    } catch (...) {
    }
  }
  tear(at, lost);
  const Node* launched =
      at < plan_.launches.size() ? &g.node(plan_.launches[at].node) : nullptr;  // null: after the last
  auto fail = [&](const Error& e, const Node* n) {
    // A fault of a device is found by a later call, unless each is waited for.
    const bool here = n && (limits_.synchronous || e.code() != Code::kAborted || switch_on("WEFT_SYNC"));
    const std::string where = here ? origin_text(n->line, n->scope) : "";
    // Which cells of a mesh are torn depends on all ranks.
    throw Error(e.code(), str_cat(e.what(), where, rank_ ? "" : torn_text(cells_)));
  };
  try {
    throw;
  } catch (const FailedNode& e) {
    fail(e, &e.node);
  } catch (const Error& e) {
    fail(e, launched);
  }
  throw;
}

// Cells that were not overwritten keep the value that they had before the step.
void Executable::tear(size_t at, bool all) {
  for (BoundCell& b : bound_) {
    const CellUse& p = plan_.cells[b.cell];
    const bool overwritten =
        past_commit_point_ && !b.fresh.defined() && p.first_write >= 0 && p.first_write <= static_cast<int32_t>(at);
    if (p.written && (all || overwritten)) cells_[b.cell]->torn = true;
    b.fresh = {};
  }
}

void Executable::discard() {
  if (std::exchange(ended_, false)) tear(plan_.launches.size(), false);
}

void Executable::commit() {
  ended_ = false;
  for (BoundCell& b : bound_) {
    if (!plan_.cells[b.cell].written) continue;
    Cell& c = *cells_[b.cell];
    c.torn = false;
    if (b.fresh.defined()) c.value = std::exchange(b.fresh, {});
  }
}

std::vector<Tensor> Executable::make_outputs(std::span<const Tensor> args) {
  std::vector<Tensor> out;
  out.reserve(plan_.outputs.size());
  for (const OutputPlace& o : plan_.outputs) {
    if (o.kind == OutputPlace::kArgument) {
      out.push_back(args[o.index]);
      continue;
    }
    if (o.kind == OutputPlace::kCaptured) {
      out.push_back(plan_.graph->captured[o.index]);
      continue;
    }
    auto* impl = new TensorImpl;
    impl->type = o.place.type;
    impl->strides = o.place.strides;
    impl->storage = Ref<Storage>(chosen_[plan_.buffers[o.place.buffer].index]);
    impl->offset = o.place.offset;
    out.push_back(Tensor(impl));
  }
  return out;
}

}  // namespace weft::internal
