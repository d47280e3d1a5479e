#include "compiler/exec/executable.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "compiler/exec/trace.h"
#include "compiler/loop_ir/fused.h"
#include "framework/base/switches.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/rank.h"
#include "framework/dispatch/state.h"

namespace weft::internal {
namespace {

void* begin_of(const Tensor& t) { return static_cast<char*>(t.get().storage->data()) + t.get().offset; }

const Attrs kNoAttrs;
constexpr int kTimedReplays = 3;
// What is larger is not copied to a fixed place: a device then takes the new address. (64 MiB take a GPU 40 us.)
constexpr int64_t kMostStand = int64_t{64} << 20;

// True if a handle other than the cell's own shows its memory.
bool has_other_holder(const Tensor& t) {
  const TensorImpl& i = t.get();
  return i.refs.load(std::memory_order_acquire) > 1 || i.storage->use_count() > 1 || !i.storage->owned();
}

double flops_of(const Launch& l, const Graph& g) {
  if (l.fused) return l.fused->lowered().flops;
  if (l.copy) return 0;
  if (l.op == &loop_ir::fused_op) return loop_ir::body_flops(loop_ir::body_of(g.node(l.node)));
  SmallVec<TensorType, 4> in, out;
  for (const Place& p : l.in) in.push_back(p.type);
  for (const Place& p : l.out) out.push_back(p.type);
  return op_cost(*l.op, g.node(l.node).attrs, in, out).flops;
}

std::string name_of(const Cell& c) {
  return c.name.empty() ? str_cat("a cell of ", c.type) : str_cat("cell '", c.name, "'");
}

}  // namespace

Executable::Executable(const Plan& plan, SharedArena& arena, const FusedCheck* check)
    : plan_(plan), arena_(arena), device_(plan.device), cells_(plan.graph->cells), check_(check) {
  build();
}

Executable::Executable(const Plan& plan, SharedArena& arena, LaunchMaker& maker, bool replayed,
                       std::unique_ptr<DeviceCheck> check)
    : plan_(plan),
      arena_(arena),
      device_(plan.device),
      cells_(plan.graph->cells),
      maker_(&maker),
      replayed_(replayed),
      device_check_(std::move(check)) {
  build();
}

Executable::Executable(const Plan& plan, SharedArena& arena, Device device, std::vector<Ref<Cell>> cells)
    : plan_(plan), arena_(arena), device_(device), cells_(std::move(cells)) {
  WEFT_BUG_IF(cells_.size() != plan.cells.size(), "executable: ", cells_.size(), " cells for ", plan.cells.size());
  build();
}

void Executable::build() {
  const Graph& g = *plan_.graph;
  trace_ = !switch_value("WEFT_TRACE").empty();
  debug_ = switch_int("WEFT_DEBUG") >= 1;
  if (plan_.folded_bytes > 0) folded_ = Storage::allocate(plan_.folded_bytes, device_);

  auto add_base = [&] {
    bases_.emplace_back();
    return static_cast<int32_t>(bases_.size()) - 1;
  };
  if (maker_) least_alignment_ = static_cast<uintptr_t>(maker_->least_alignment());
  arena_base_ = add_base();
  for (size_t i = 0; i < g.inputs.size(); ++i) argument_base_.push_back(add_base());
  for (size_t i = 0; i < plan_.output_blocks.size(); ++i) output_base_.push_back(add_base());
  for (size_t c = 0; c < plan_.cells.size(); ++c)
    if (plan_.cells[c].used)
      bound_.push_back({static_cast<int32_t>(c), add_base(), plan_.cells[c].written ? add_base() : -1, {}});
  pool_.resize(plan_.output_blocks.size());
  chosen_.resize(plan_.output_blocks.size());
  argument_stands_.resize(g.inputs.size());
  output_stands_.resize(plan_.output_blocks.size());

  size_t views = 0;
  for (const auto* list : {&plan_.setup, &plan_.launches})
    for (const Launch& l : *list) views += l.in.size() + l.out.size();
  views_.reserve(views);
  build_calls(plan_.setup, setup_);
  build_calls(plan_.launches, calls_);
  launch_us_.resize(plan_.launches.size());
  std::stable_sort(collected_.begin(), collected_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t i = 0; i < collected_.size(); ++i) {
    Base& b = bases_[collected_[i].first];
    if (b.end == 0) b.begin = static_cast<int32_t>(i);
    b.end = static_cast<int32_t>(i) + 1;
    patches_.push_back(collected_[i].second);
  }
  collected_ = {};
  run_setup();
  if (maker_)
    device_calls_ = maker_->calls(device_, device_calls_of(plan_.launches, calls_), replayed_ && !trace_ && !debug_,
                                  written_cells());
  WEFT_BUG_IF(!device_calls_ && device_.type != DeviceType::kCpu, "executable: nothing runs launches on ", device_);
}

bool Executable::misaligned(const Tensor& t) const {
  return least_alignment_ > 1 && reinterpret_cast<uintptr_t>(begin_of(t)) % least_alignment_ != 0;
}

std::vector<Ref<Cell>> Executable::written_cells() const {
  std::vector<Ref<Cell>> all;
  for (const BoundCell& b : bound_)
    if (plan_.cells[b.cell].written) all.push_back(cells_[b.cell]);
  return all;
}

std::vector<DeviceCall> Executable::device_calls_of(const std::vector<Launch>& launches,
                                                    const std::vector<Call>& calls) const {
  std::vector<DeviceCall> all;
  all.reserve(launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    const Launch& l = launches[i];
    void* const* at = calls[i].operands.get();
    const size_t in = l.in.size(), out = l.out.size();
    all.push_back({&l, {at, in}, {at + in, out}, &calls[i].call.workspace, &plan_.graph->node(l.node)});
  }
  return all;
}

int32_t Executable::base_of(const PlanBuffer& b) {
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

void Executable::build_calls(const std::vector<Launch>& launches, std::vector<Call>& calls) {
  const Graph& g = *plan_.graph;
  std::vector<int32_t> base(plan_.buffers.size(), -2);
  calls.reserve(launches.size());
  auto add_patch = [&](const PlanBuffer& b, int32_t id, void** slot, int64_t offset) {
    if (base[id] == -2) base[id] = base_of(b);
    if (b.home == Home::kArena) offset += b.offset;
    collected_.push_back({base[id], {slot, offset}});
  };
  // The slot will hold the address `offset` bytes into what the place shows.
  auto address = [&](const Place& p, void** slot, int64_t offset) {
    const PlanBuffer& b = plan_.buffers[p.buffer];
    if (b.home == Home::kFolded) {
      if (folded_) *slot = static_cast<char*>(folded_->data()) + b.offset + p.offset + offset;  // else all are empty
    } else if (b.home == Home::kCaptured) {
      const Tensor& captured = g.captured[b.index];
      if (misaligned(captured)) copies_.push_back(maker_->aligned(captured));
      *slot = static_cast<char*>(begin_of(misaligned(captured) ? copies_.back() : captured)) + p.offset + offset;
    } else {
      add_patch(b, p.buffer, slot, p.offset + offset);
    }
  };
  for (const Launch& l : launches) {
    auto add = [&](std::span<const Place> places) {
      StridedView* begin = views_.data() + views_.size();
      for (const Place& p : places) {
        views_.push_back({nullptr, p.type.dtype, p.type.shape, p.strides});
        address(p, &views_.back().data, 0);
      }
      return std::span<const StridedView>(begin, places.size());
    };
    auto in = add(l.in);
    auto out = add(l.out);
    calls.push_back({l.op->kernel, {*l.op, l.copy ? kNoAttrs : g.node(l.node).attrs, in, out, nullptr}});
    if (l.fused) {
      Call& c = calls.back();
      const std::vector<Binding>& bindings = l.fused->bindings();
      c.fused = l.fused.get();
      c.operands = std::make_unique<void*[]>(bindings.size());
      for (size_t i = 0; i < bindings.size(); ++i) {
        const Binding& b = bindings[i];
        if (b.index < 0) continue;
        const Place& p = b.output ? l.out[b.index] : l.in[b.index];
        address(p, &c.operands[i], b.offset * itemsize(p.type.dtype));
      }
    }
    if (l.operation) {
      Call& c = calls.back();
      c.operands = std::make_unique<void*[]>(l.in.size() + l.out.size());
      void** slot = c.operands.get();
      for (const Place& p : l.in) address(p, slot++, 0);
      for (const Place& p : l.out) address(p, slot++, 0);
    }
    if (l.workspace >= 0) add_patch(plan_.buffers[l.workspace], l.workspace, &calls.back().call.workspace, 0);
  }
}

void Executable::run_setup() {
  Ref<Storage> scratch;
  if (plan_.setup_workspace > 0) scratch = Storage::allocate(plan_.setup_workspace, device_);
  if (maker_ && !setup_.empty()) {
    for (Call& c : setup_) c.call.workspace = scratch ? scratch->data() : nullptr;
    if (auto calls = maker_->calls(device_, device_calls_of(plan_.setup, setup_), false, {})) return calls->run(true);
  }
  for (size_t i = 0; i < setup_.size(); ++i) {
    setup_[i].call.workspace = scratch ? scratch->data() : nullptr;
    run_timed(setup_[i], plan_.setup[i]);
  }
}

void Executable::bind(int32_t base, void* address) {
  Base& b = bases_[base];
  if (b.address == address) return;
  b.address = address;
  moved_ = true;
  for (int32_t i = b.begin; i < b.end; ++i) *patches_[i].slot = static_cast<char*>(address) + patches_[i].offset;
}

void Executable::bind_arena() {
  if (arena_.bytes() < plan_.arena_bytes || (arena_.storage && !(arena_.storage->device() == device_))) {
    arena_.storage = {};  // the smaller one goes first: never both at once
    arena_.storage = Storage::allocate(plan_.arena_bytes, device_);
  }
  if (arena_.storage) bind(arena_base_, arena_.storage->data());
}

// Fresh storage is taken here, before anything is written.
void Executable::bind_cells() {
  for (BoundCell& b : bound_) {
    const PlanCell& p = plan_.cells[b.cell];
    const Cell& c = *cells_[b.cell];
    const bool have = c.value.defined();
    void* old = nullptr;
    if (have) {
      const TensorImpl& i = c.value.get();
      WEFT_BUG_IF(!weft::is_contiguous(i.type.shape, i.strides), "executable: ", name_of(c), " is not contiguous");
      old = static_cast<char*>(i.storage->data()) + i.offset;
      bind(b.old_base, old);
    }
    if (!p.written) continue;
    if (have && !has_other_holder(c.value)) {
      bind(b.new_base, old);
      ++last_.in_place_writes;
    } else {
      const int64_t bytes = c.type.nbytes();
      b.fresh = Storage::allocate(bytes, device_);
      bind(b.new_base, b.fresh->data());
      ++last_.fresh_writes;
      if (have) last_.predicted_peak_bytes += accounted(bytes);
    }
  }
}

// A value that lies elsewhere in each run makes a captured step dear, so it gets a fixed place when it moves for the first
// time. Most never do: pools give the same blocks again.
bool Executable::should_stand(const Stand& s, void* address, int64_t bytes) const {
  if (!device_calls_ || bytes == 0) return false;
  if (reinterpret_cast<uintptr_t>(address) % device_calls_->alignment() != 0) return true;
  if (!device_calls_->wants_fixed_addresses() || bytes > kMostStand) return false;
  return s.memory || (s.last && s.last != address);
}

void Executable::bind_argument(size_t i, const Tensor& argument) {
  const TensorImpl& t = argument.get();
  Stand& s = argument_stands_[i];
  char* const address = static_cast<char*>(t.storage->data()) + t.offset;
  if (!device_calls_) return bind(argument_base_[i], address);
  // All bytes from the first element to the last.
  int64_t begin = 0, end = itemsize(t.type.dtype);
  if (t.type.shape.numel() == 0) end = 0;
  for (int d = 0; d < t.type.shape.size() && end > 0; ++d) {
    const int64_t reach = (t.type.shape[d] - 1) * t.strides[d] * itemsize(t.type.dtype);
    (reach < 0 ? begin : end) += reach;
  }
  if (!should_stand(s, address, end - begin)) {
    s.last = address;
    return bind(argument_base_[i], address);
  }
  // The first element keeps its alignment, whatever lies before it.
  const int64_t before = (-begin + 255) / 256 * 256;
  if (!s.memory) {
    s.memory = Storage::allocate(before + end, device_);
    stand_bytes_ += accounted(before + end);
  }
  char* const to = static_cast<char*>(s.memory->data()) + before;
  device_calls_->copy(to + begin, address + begin, end - begin);
  bind(argument_base_[i], to);
}

void Executable::bind_output(size_t k) {
  Stand& s = output_stands_[k];
  void* const address = chosen_[k]->data();
  if (!should_stand(s, address, plan_.output_blocks[k])) {
    s.last = address;
    if (s.memory) stand_bytes_ -= accounted(plan_.output_blocks[k]);
    s.memory = {};
    return bind(output_base_[k], address);
  }
  if (!s.memory) {
    s.memory = Storage::allocate(plan_.output_blocks[k], device_);
    stand_bytes_ += accounted(plan_.output_blocks[k]);
  }
  bind(output_base_[k], s.memory->data());
}

void Executable::copy_outputs() {
  for (size_t k = 0; k < chosen_.size(); ++k)
    if (const Stand& s = output_stands_[k]; s.memory)
      device_calls_->copy(chosen_[k]->data(), s.memory->data(), plan_.output_blocks[k]);
}

// The pool of a block: the first that no caller holds; one more is kept, the rest goes back to the allocator.
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
  past_commit_point_ = false;
  for (BoundCell& b : bound_) {
    b.fresh = {};
    const Cell& c = *cells_[b.cell];
    if (c.value.defined() && misaligned(c.value)) cells_[b.cell]->value = maker_->aligned(c.value);
    if (!plan_.cells[b.cell].read) continue;
    WEFT_CHECK_AS(kDataLoss, !c.torn, name_of(c), " was torn by a step that failed half-way; load a checkpoint first");
    if (!c.value.defined()) {
      NoGrad guard;
      static_cast<void>(CellHandle(cells_[b.cell]).value());
    }
  }
  bind_arena();

  // From here on the replay's own memory is measured.
  Allocator& allocator = Allocator::of(device_);
  reused_bytes_ = 0;
  choose_outputs();
  int64_t own = accounted(arena_.bytes()) + plan_.folded_bytes + reused_bytes_ + stand_bytes_;
  for (const BoundCell& b : bound_)
    if (cells_[b.cell]->value.defined()) own += accounted(cells_[b.cell]->type.nbytes());
  allocator.reset_step_peak();
  const int64_t before = allocator.stats().live;
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
  last_.predicted_peak_bytes += stand_bytes_;
  // Launches allocate nothing; checking their results does.
  int64_t peak = check_ ? allocator.stats().step_peak : 0;
  // The first is slow for other reasons.
  const bool timed = replays_ > 0 && replays_ <= kTimedReplays;
  if (replays_ <= kTimedReplays) ++replays_;
  if (device_calls_) {
    launch_on_device();
  } else if (trace_ || debug_ || check_ || timed) {
    launch_traced(timed || trace_ || debug_);
  } else {
    launch_all();
  }
  if (!check_) peak = allocator.stats().step_peak;
  check_ = nullptr;
  last_.measured_peak_bytes = own + peak - before;
  commit();
  return make_outputs(args);
}

void Executable::launch_all() {
  size_t at = 0;
  try {
    for (const size_t n = calls_.size(); at < n; ++at) {
      agree(at);
      calls_[at].run();
    }
  } catch (...) {
    failed(at);
  }
}

void Executable::agree(size_t at) {
  if (at != static_cast<size_t>(plan_.commit_point)) return;
  RankContext::require("step").agree();
  past_commit_point_ = true;
}

// Once: cells rarely move, and then to memory as large.
void Executable::name_memory() {
  named_ = true;
  if (arena_.storage) maker_->set_name(device_, arena_.storage->data(), "a step's own values");
  for (const BoundCell& b : bound_) {
    const Cell& c = *cells_[b.cell];
    if (c.value.defined() && !c.name.empty()) maker_->set_name(device_, c.value.get().storage->data(), c.name);
  }
}

void Executable::launch_on_device() {
  if (!named_) name_memory();
  if (device_check_ && !std::exchange(compared_, true)) {
    launch_compared();
    return copy_outputs();
  }
  try {
    if (!trace_ && !debug_) {
      device_calls_->run(moved_);
      moved_ = false;
      return copy_outputs();
    }
    const double start = now_us();
    std::vector<double> us(calls_.size());
    device_calls_->run_timed(us);
    double at = start;
    for (size_t i = 0; i < us.size(); ++i) {
      launch_us_[i] = launch_us_[i] > 0 ? std::min(launch_us_[i], us[i]) : us[i];
      tell(i, at, us[i]);
      at += us[i];
    }
    copy_outputs();
  } catch (...) {
    failed(device_calls_->at());
  }
}

void Executable::launch_compared() {
  const Graph& g = *plan_.graph;
  std::vector<Tensor> in;
  size_t wrong = 0;
  std::exception_ptr error;
  const auto on_host = [&](std::span<const StridedView> views) {
    std::vector<Tensor> all;
    for (const StridedView& v : views) {
      all.push_back(Tensor::empty({v.dtype, Device::cpu(), v.shape}));
      if (v.numel() > 0) device_memory(device_.type)->copy(v, device_, all.back().view_for_kernel(), Device::cpu());
    }
    return all;
  };
  try {
    device_calls_->run_by_one([&](size_t i) {
      if (error) return;
      try {
        if (i > 0)
          device_check_->compare(plan_.launches[i - 1], g.node(plan_.launches[i - 1].node), in,
                                 on_host(calls_[i - 1].call.out));
        if (i < calls_.size()) in = on_host(calls_[i].call.in);
      } catch (...) {
        wrong = i > 0 ? i - 1 : 0;
        error = std::current_exception();
      }
    });
  } catch (...) {
    failed(device_calls_->at());
  }
  if (!error) return;
  try {
    std::rethrow_exception(error);
  } catch (...) {
    failed(wrong);
  }
}

void Executable::tell(size_t at, double start, double us) const {
  const Graph& g = *plan_.graph;
  const Call& c = calls_[at];
  const char* scope = g.node(plan_.launches[at].node).scope;
  const char* name = c.fused ? c.fused->name() : c.call.op.name;
  if (trace_) record_launch(name, scope, start, us);
  if (!debug_) return;
  double bytes = 0;
  for (const auto& list : {c.call.in, c.call.out})
    for (const StridedView& v : list) bytes += static_cast<double>(v.numel() * itemsize(v.dtype));
  print_launch(name, scope, us, bytes, flops_of(plan_.launches[at], g));
}

double Executable::run_timed(const Call& c, const Launch& l) {
  const bool verify = check_ && c.fused && !c.fused->verified;
  std::vector<Tensor> in;
  if (verify) in = check_->set_aside(c.call.in);
  const double start = now_us();
  c.run();
  const double us = now_us() - start;
  if (!verify) return us;
  check_->compare(*c.fused, loop_ir::body_of(plan_.graph->node(l.node)), in, c.call.out);
  c.fused->verified = true;
  return us;
}

void Executable::launch_traced(bool keep) {
  size_t at = 0;
  try {
    for (; at < calls_.size(); ++at) {
      agree(at);
      const double start = now_us(), us = run_timed(calls_[at], plan_.launches[at]);
      if (keep && !check_) launch_us_[at] = launch_us_[at] > 0 ? std::min(launch_us_[at], us) : us;
      tell(at, start, us);
    }
  } catch (...) {
    failed(at);
  }
}

void Executable::failed(size_t at) {
  const Graph& g = *plan_.graph;
  // Peers may still read and write this step's memory.
  if (RankContext* me = RankContext::current()) me->abandon();
  bool torn = past_commit_point_;
  if (device_calls_) {
    try {
      throw;
    } catch (const Error& e) {
      torn = e.code() == Code::kAborted;  // the device is lost, and what it holds
    } catch (...) {
    }
  }
  for (const BoundCell& b : bound_) {
    const PlanCell& p = plan_.cells[b.cell];
    torn |= plan_.commit_point < 0 && p.written && !b.fresh && p.first_write >= 0 &&
            p.first_write <= static_cast<int32_t>(at);
  }
  for (BoundCell& b : bound_) {
    if (torn && plan_.cells[b.cell].written) cells_[b.cell]->torn = true;
    torn |= cells_[b.cell]->torn;  // by a fault of the device
    b.fresh = {};
  }
  auto fail = [&](const Error& e, const Node& n) {
    std::string where;
    // A fault of a device is found by a later call, unless each is waited for.
    const bool here = !device_calls_ || e.code() != Code::kAborted || switch_on("WEFT_SYNC");
    if (here && n.line.line) where += str_cat("; at ", n.line);
    if (here && *n.scope) where += str_cat("; in ", n.scope);
    if (torn) where += "; cells were already being written: load a checkpoint before the next step";
    throw Error(e.code(), e.what() + where);
  };
  try {
    throw;
  } catch (const FailedNode& e) {
    fail(e, e.node);
  } catch (const Error& e) {
    fail(e, g.node(plan_.launches[at].node));
  }
  throw;
}

void Executable::commit() {
  for (BoundCell& b : bound_) {
    if (!plan_.cells[b.cell].written) continue;
    Cell& c = *cells_[b.cell];
    c.torn = false;
    if (!b.fresh) continue;
    auto* impl = new TensorImpl;
    impl->type = c.type;
    impl->strides = contiguous_strides(c.type.shape);
    impl->storage = std::move(b.fresh);
    c.value = Tensor(impl);
  }
}

std::vector<Tensor> Executable::make_outputs(std::span<const Tensor> args) {
  std::vector<Tensor> out;
  out.reserve(plan_.outputs.size());
  for (const PlanOutput& o : plan_.outputs) {
    if (o.kind == PlanOutput::kArgument) {
      out.push_back(args[o.index]);
      continue;
    }
    if (o.kind == PlanOutput::kCaptured) {
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
