#include "compiler/exec/entry.h"

#include <chrono>

#include "compiler/exec/plan/failing.h"
#include "compiler/exec/plan/order.h"
#include "compiler/exec/untrained.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/passes/fusion/fuse_report.h"
#include "compiler/passes/lower.h"
#include "compiler/passes/pass_options.h"
#include "compiler/passes/pipeline.h"
#include "compiler/verify/launch_check.h"
#include "framework/base/switches.h"
#include "framework/io/file.h"
#include "framework/ir/rewrite.h"
#include "ops/core/creation.h"

namespace weft::internal {

static double ms_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count();
}

void check_budget(const PreparedGraph& p, const Rematerialisation& remat, const CompileOptions& options) {
  const MemoryLayout& plan = p.plan;
  if (options.memory_budget <= 0 || plan.peak_bytes() <= options.memory_budget) return;
  const char* who = options.partitioner ? "a rank" : "the step";
  int64_t cells = 0, outputs = 0;
  for (size_t c = 0; c < plan.cells.size(); ++c)
    if (plan.cells[c].used) cells += accounted(plan.graph->cells[c]->type.nbytes());
  for (int64_t b : plan.output_blocks) outputs += accounted(b);
  OverBudget::fail(
      str_cat("compile: ", who, " needs ", plan.peak_bytes(), " bytes at its peak (arena ", plan.arena_bytes,
              ", cells ", cells, ", outputs ", outputs, ", constants ", plan.folded_bytes, ")",
              remat.tried ? str_cat(", ", remat.least_peak, " at the least, with recomputation") : std::string(),
              "; memory_budget is ", options.memory_budget));
}

namespace {

/// The better of two orders of execution.
void draft(PreparedGraph& p, std::span<const ArgumentLayout> layouts, PassSteps& steps) {
  const Graph& g = *p.fused;
  Ref<Graph> as_written, frugal;
  steps.run("order", [&] {
    std::vector<int32_t> first = insertion_order(g), other = frugal_order(g);
    if (p.operations->target().limits().synchronous) first = writes_last(g, first), other = writes_last(g, other);
    as_written = reorder(g, first);
    if (other != first) frugal = reorder(g, other);
  });
  steps.run("plan", [&] {
    p.plan = draft_plan(as_written, layouts, *p.operations);
    p.order = "as written";
    if (p.plan.arena_bytes == 0 || !frugal) return;
    MemoryLayout other = draft_plan(frugal, layouts, *p.operations);
    if (other.peak_bytes() >= p.plan.peak_bytes()) return;
    p.plan = std::move(other);
    p.order = "rearranged to need less memory";
  });
}

/// From the captured graph to the joint one.
void make_joint(Entry& e, const CompileOptions& options, bool low_memory) {
  e.passes.clear();
  PassOptions how = pass_options(options, &e.passes);
  how.facts.low_memory = low_memory;
  how.facts.loops = !options.partitioner && target_of(device_of(*e.captured).type, "compile").limits().loops;
  const dist::Mesh::Dim* const pp = options.mesh.find("pp");
  how.facts.stages = options.partitioner && pp && pp->size > 1;
  e.joint = run_passes(e.captured, passes_of(PassStage::kJoint), how);
}

/// Takes `p`, another plan of the same function, if it needs less memory.
bool take_if_less(Entry& e, PreparedGraph p) {
  if (p.plan.peak_bytes() >= e.plan.peak_bytes()) return false;
  static_cast<PreparedGraph&>(e) = std::move(p);
  return true;
}

/// Saves memory if the plan exceeds the budget: first products recompute expensive operands instead of keeping them,
/// then passes may choose ops that need less memory. The saving does not depend on the budget.
void save_memory(Entry& e, const CompileOptions& options) {
  e.saved_memory = true;
  take_if_less(e, plan_joint(e.joint, e.key.layouts, options, !e.low_memory));
  if (e.plan.peak_bytes() <= options.memory_budget || !e.captured) return;
  Entry other;
  other.captured = e.captured;
  make_joint(other, options, true);
  if (structurally_equal(*other.joint, *e.joint)) return;
  bool taken = false;
  for (bool low : {e.low_memory, !e.low_memory})
    taken |= take_if_less(e, plan_joint(other.joint, e.key.layouts, options, low));
  if (!taken) return;
  e.joint = other.joint;
  e.passes = std::move(other.passes);
}

void make_entry_plan(Entry& e, const CompileOptions& options) {
  auto start = std::chrono::steady_clock::now();
  try {
    if (options.partitioner) {
      e.partitioned = options.partitioner(e.joint, options);
    } else {
      plan_within_budget(e, options);
    }
  } catch (const OverBudget& error) {
    e.over_budget = error;  // kept, so that later calls do not plan again
  }
  e.plan_ms = ms_since(start);
  if (options.partitioner || e.over_budget) return;
  if (e.plan.device.type != DeviceType::kMeta) load_kernels(e, options);
}

}  // namespace

void plan_within_budget(Entry& e, const CompileOptions& options) {
  static_cast<PreparedGraph&>(e) = plan_joint(e.joint, e.key.layouts, options, e.low_memory);
  if (options.memory_budget > 0 && e.plan.peak_bytes() > options.memory_budget && !e.saved_memory)
    save_memory(e, options);
  if (options.memory_budget > 0 && e.plan.peak_bytes() > options.memory_budget)
    rematerialise(e, options.memory_budget, options);
  check_scheduled(e);
  check_budget(e, e.remat, options);
}

PrepareOptions prepare_options(const CompileOptions& options) {
  return {.round_like_eager = options.numerics == "eager", .tf32 = options.tf32};
}

void check_scheduled(const PreparedGraph& p) {
  if (const std::string path = dump_graph(*p.plan.graph, "order"); !path.empty())
    io::write_file_atomic(path + ".record", record_of(p, nullptr).to_proto());
  if (switch_int("WEFT_VERIFY_IR") >= 2) verify(*p.plan.graph);
}

void load_kernels(PreparedGraph& p, const CompileOptions& options) {
  const std::vector<std::shared_ptr<Operation>> all = operations_of(p.plan);
  if (const std::string folder = switch_value("WEFT_DUMP"); !folder.empty())
    for (const auto& operation : all) p.operations->target().dump(*operation, folder);
  p.load = p.operations->target().compile(p.plan.device, all,
                                          {.cache = options.kernel_cache, .faults_are_errors = verifies_kernels()});
}

std::unique_ptr<LaunchCheck> launch_check(const PreparedGraph& p, bool asked) {
  Target& target = p.operations->target();
  if (!asked && !(target.limits().synchronous && verifies_kernels())) return {};
  return make_launch_check(target, p.operations->options());
}

PreparedGraph plan_joint(const Ref<Graph>& joint, std::span<const ArgumentLayout> layouts,
                         const CompileOptions& options, bool low_memory, int64_t enough) {
  PreparedGraph p;
  p.low_memory = low_memory;
  p.report = std::make_shared<FusionReport>();
  const Device device = device_of(*joint);
  Target& target = target_of(device.type, "compile");
  PassOptions how = pass_options(options, &p.passes_to_plan);
  how.facts.low_memory = low_memory;
  how.facts.prologues = target.limits().prologues;
  how.fusion = p.report.get();
  p.fused = run_passes(joint, passes_of(PassStage::kFused), how);
  p.operations = std::make_shared<Operations>(target, device, prepare_options(options));
  std::vector<std::string> notes;
  PassSteps steps(how);
  const size_t fused = p.passes_to_plan.size();
  for (;;) {
    try {
      draft(p, layouts, steps);
      break;
    } catch (const CannotLower& c) {
      // Rare: fusion looks at types only, a kernel at the layouts of its operands too.
      p.passes_to_plan.resize(fused);
      p.fused = expand(*p.fused, [&](const Node& n) { return loop_ir::group_of(n) == c.body.get(); });
      notes.push_back(str_cat("not one kernel: ", loop_ir::ops_text(*c.body, 8), ": ", c.why));
    }
  }
  p.plan.notes.insert(p.plan.notes.end(), notes.begin(), notes.end());
  if (p.plan.peak_bytes() < enough) steps.run("arena", [&] { lay_out(p.plan); });
  return p;
}

bool Entry::matches_types(const CallKey& k) const {
  return key.grad == k.grad && key.autocast == k.autocast && key.recorded == k.recorded && key.types == k.types &&
         key.structure == k.structure;
}

bool Entry::matches_layouts(const CallKey& k) const {
  for (size_t i = 0; i < key.layouts.size(); ++i)
    if (!(key.layouts[i].strides == k.layouts[i].strides)) return false;
  return true;
}

bool Entry::still_holds() const {
  for (const auto& [flag, value] : flags)
    if (flag.peek() != value) return false;
  for (const CellState& c : cells)
    if (!(c.cell->type == c.type) || c.cell->requires_grad != c.requires_grad) return false;
  return true;
}

Traced trace(const CallKey& key, CompiledCall::TraceFunction fn) {
  Traced t;
  const NoOrigin of_the_call;  // later calls come from other places
  const Autocast autocast(key.autocast);
  Capture capture(Capture::kStep);
  std::vector<Tensor> in, out;
  for (size_t i = 0; i < key.types.size(); ++i) in.push_back(capture.add_input(key.types[i], key.recorded[i]));
  t.like = fn(in, out);
  for (size_t i = 0; i < out.size(); ++i) {
    LineScope here(key.line);
    WEFT_CHECK_AS(kFailedPrecondition, out[i].defined(), "compile: result ", i,
                  " of the function is an undefined tensor; need one with a value");
  }
  if (thread_state.step->used()) advance_random_step();
  t.graph = capture.finish(out);
  t.flags = std::move(capture.flags);
  return t;
}

std::unique_ptr<Entry> make_entry(CallKey key, CompiledCall::TraceFunction fn, const CompileOptions& options) {
  auto e = std::make_unique<Entry>();
  e->key = std::move(key);
  auto start = std::chrono::steady_clock::now();
  e->registered_changes = registered_changes.load(std::memory_order_relaxed);
  Traced traced = trace(e->key, fn);
  e->captured = traced.graph;
  e->flags = std::move(traced.flags);
  e->like = std::move(traced.like);
  for (const Ref<Cell>& c : e->captured->cells) e->cells.push_back({c, c->type, c->requires_grad});
  if (const std::string note = untrained_parameters(*e->captured); !note.empty()) warn(note);
  e->capture_ms = ms_since(start);

  start = std::chrono::steady_clock::now();
  make_joint(*e, options, false);
  e->passes_ms = ms_since(start);
  make_entry_plan(*e, options);
  return e;
}

std::unique_ptr<Entry> replan(const Entry& e, CallKey key, const CompileOptions& options) {
  auto n = std::make_unique<Entry>();
  n->key = std::move(key);
  n->flags = e.flags;
  n->cells = e.cells;
  n->registered_changes = e.registered_changes;
  n->captured = e.captured;
  n->joint = e.joint;
  n->before_recompute = e.before_recompute;
  n->remat = e.remat;
  n->saved_memory = e.saved_memory;
  n->low_memory = e.low_memory;
  n->like = e.like;
  n->passes = e.passes;
  make_entry_plan(*n, options);
  return n;
}

}  // namespace weft::internal
