#include "compiler/exec/compile.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "compiler/cost/machine/machine_file.h"
#include "compiler/exec/entry.h"
#include "compiler/passes/fusion/fuse_report.h"
#include "compiler/passes/pass_options.h"
#include "compiler/verify/launch_check.h"
#include "compiler/verify/reference.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/base/tracer.h"
#include "framework/dispatch/interpreter.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/generator.h"
#include "ops/core/creation.h"

namespace weft::internal {

namespace {
enum class Exec { kCompiled, kInterp, kEager };

Exec exec_mode(const CompileOptions& options) {
  const std::string v = switch_value("WEFT_EXEC");
  return !options.enabled || v == "eager" ? Exec::kEager : v == "interp" ? Exec::kInterp : Exec::kCompiled;
}

// Warns once for each line at which one compiled function after another was captured for a single call: a compile() in
// a loop. `used_once`: whether the function that ends now was also captured for a single call.
void count_captures_at(SourceLine line, bool used_once) {
  constexpr int kMost = 8;
  static auto* mutex = new Mutex;
  static auto* in_a_row = new std::map<std::string, int>;
  if (!line.line) return;
  MutexLock lock(*mutex);
  int& n = (*in_a_row)[line.to_string()];
  if (n == kMost) return;  // it has warned
  n = used_once ? n + 1 : 0;
  if (n == kMost)
    warn(str_cat("compile at ", line, ": ", n,
                 " compiled functions in a row were made here, captured for one call and dropped, so nothing is "
                 "reused: call compile() once, outside the loop, and keep its result"));
}
}  // namespace

class CompiledCore {
 public:
  CompiledCore(CompileOptions o, SourceLine at) : options(std::move(o)), mode(exec_mode(options)), line(at) {
    LineScope here(line);
    WEFT_CHECK(options.numerics == "fast" || options.numerics == "eager", "compile: numerics is '", options.numerics,
               "'; need fast or eager");
    WEFT_CHECK(!options.verify_numerics || mode != Exec::kEager,
               "compile: verify_numerics changes the captured graph; need a step that is compiled or interpreted");
    WEFT_CHECK(options.partitioner || (options.mesh.size() <= 1 && options.plan.world <= 1),
               "compile: the options have more than one rank; need dist::compile of distributed/distributed.h");
    machine_named(options.machine);                           // an error for unknown names
    if (options.verify_numerics) options.numerics = "eager";  // a chain of 16-bit values may be cut by a mesh
    WEFT_CHECK(options.memory_budget >= 0, "compile: memory_budget is ", options.memory_budget, "; need bytes >= 0");
    PassSteps names(pass_options(options, nullptr));  // refuses disabled passes that do not exist
    WEFT_CHECK(options.check_capture >= 0, "compile: check_capture is ", options.check_capture, "; need calls >= 0");
    WEFT_CHECK(options.max_plans >= 1, "compile: max_plans is ", options.max_plans, "; need at least 1");
    if (switch_value("WEFT_VERIFY") != "auto" && switch_on("WEFT_VERIFY")) options.verify = true;
    if (options.autocast) Autocast(options.autocast);  // an error for other dtypes
    key.line = line;
  }
  ~CompiledCore() {
    if (stats.captures > 0) count_captures_at(line, runs == 1);
  }

  /// The entry for a call, captured or planned anew if there is none.
  Entry& find(std::span<const Tensor> args, std::span<const int32_t> structure, CompiledCall::TraceFunction fn) {
    fill_key(args, structure);
    ++stats.calls;
    // An entry does not read a module that was assigned to a member after the capture.
    const uint64_t changes = registered_changes.load(std::memory_order_relaxed);
    std::erase_if(entries, [&](const auto& e) {
      const bool stale = e->registered_changes != changes;
      if (stale && current == e.get()) current = nullptr;
      return stale;
    });
    Entry* same_types = nullptr;
    Entry* found = nullptr;
    for (auto& e : entries) {
      if (!e->matches_types(key) || !e->still_holds()) continue;
      same_types = e.get();
      if (!e->matches_layouts(key)) continue;
      found = e.get();
      break;
    }
    if (!found) found = add(same_types, fn);
    found->last_used = ++clock;
    if (found->over_budget) throw *found->over_budget;
    current = found;
    return *found;
  }

  CompiledCall::CallResult run(Entry& e, std::span<const Tensor> args, CompiledCall::TraceFunction fn) {
    ++runs;
    const TraceScope step(TraceEvent::kStep, "step", line);
    try {
      return run_entry(e, args, fn);
    } catch (const Error& error) {
      if (error.code() != Code::kResourceExhausted) throw;
      CompileStats s;
      if (e.partitioned) {
        e.partitioned->fill(s);
      } else {
        s.planned_peak_bytes = e.plan.peak_bytes(), s.arena_bytes = e.plan.arena_bytes;
      }
      throw Error(error.code(), str_cat(error.what(), "; the step compiled at ", line, " needs ", s.planned_peak_bytes,
                                        " bytes at its peak", e.partitioned ? " on each rank" : "", ", ", s.arena_bytes,
                                        " of them for its own values; report() lists them"));
    }
  }

  CompiledCall::CallResult run_entry(Entry& e, std::span<const Tensor> args, CompiledCall::TraceFunction fn) {
    if (options.check_capture > 0 && e.runs++ > 0 && (e.runs - 1) % options.check_capture == 0) check_capture(e, fn);
    const bool counting = std::exchange(count_work, false);
    WEFT_CHECK_AS(kUnimplemented, !counting || !e.partitioned, "count_work: the step runs on a mesh; need one device");
    if (e.partitioned) return {e.partitioned->run(args), e.like};
    if (e.plan.device.type == DeviceType::kMeta) return {on_meta(e, args), e.like};
    if (mode == Exec::kInterp) {
      NoGrad guard;
      return {interpret(*e.joint, args), e.like};
    }
    if (!e.executable) e.executable = make_executable(e);
    if (counting) e.executable->count_next();
    if (!options.verify || e.verified || !e.operations->target().limits().synchronous)
      return {e.executable->run(args), e.like};
    return {verified_run(e, args), e.like};
  }

  std::atomic<bool> busy{false};
  CompileOptions options;
  const Exec mode;
  const SourceLine line;  // line of the call of compile()
  CompileStats stats;
  SharedArena arena;
  std::vector<std::unique_ptr<Entry>> entries;
  Entry* current = nullptr;
  bool count_work = false;  // in the next call
  CallKey key;              // kept, so that a call allocates nothing
  uint64_t clock = 0;
  int64_t runs = 0;

 private:
  void fill_key(std::span<const Tensor> args, std::span<const int32_t> structure) {
    LineScope here(line);
    key.types.clear();
    key.layouts.clear();
    for (size_t i = 0; i < args.size(); ++i) {
      WEFT_CHECK_AS(kFailedPrecondition, args[i].defined(), "compile: argument ", i,
                    " is an undefined tensor; need one with a value");
      const TensorImpl& t = args[i].get();
      WEFT_CHECK_AS(kFailedPrecondition, !t.trace, "compile: argument ", i,
                    " was traced by a capture that has ended; only the captured function's own return values leave it");
      const Device first = args[0].device();
      WEFT_CHECK(t.type.device == first || (!t.type.device.is_accelerator() && !first.is_accelerator()),
                 "compile: argument ", i, " is on ", t.type.device, " and argument 0 on ", first,
                 "; need one device: move with to(device)");
      key.types.push_back(t.type);
      key.layouts.push_back({is_contiguous(t.type.shape, t.strides) ? contiguous_strides(t.type.shape) : t.strides});
    }
    key.structure.assign(structure.begin(), structure.end());
    key.recorded.resize(args.size());
    for (size_t i = 0; i < args.size(); ++i) key.recorded[i] = args[i].requires_grad_enabled();
    key.grad = grad_enabled();
  }

  std::unique_ptr<Executable> make_executable(const Entry& e) {
    ExecutableOptions how{.captured = options.cuda_graph && !switch_has("WEFT_CUDA", "nograph"),
                          .check = launch_check(e, options.verify)};
    return std::make_unique<Executable>(e.plan, arena, std::move(how));
  }

  Entry* add(const Entry* same_types, CompiledCall::TraceFunction fn) {
    const TraceScope capture(TraceEvent::kHost, "capture and plan", line);
    std::unique_ptr<Entry> e;
    if (same_types) {
      e = replan(*same_types, key, options);
    } else {
      ++stats.captures;
      e = make_entry(key, fn, options);
    }
    stats.compile_seconds += (e->capture_ms + e->passes_ms + e->plan_ms + e->load.ms) / 1e3;
    stats.compilations += e->load.compiled;
    ++stats.plans;
    if (entries.size() >= static_cast<size_t>(options.max_plans)) {
      warn_of_many_plans();
      auto oldest = std::min_element(entries.begin(), entries.end(),
                                     [](const auto& a, const auto& b) { return a->last_used < b->last_used; });
      if (current == oldest->get()) current = nullptr;
      entries.erase(oldest);
    }
    entries.push_back(std::move(e));
    return entries.back().get();
  }

  // Once: names the argument whose shape changes most.
  void warn_of_many_plans() {
    if (std::exchange(warned, true)) return;
    size_t argument = 0, most = 0;
    for (size_t i = 0; i < key.types.size(); ++i) {
      std::set<std::string> types{key.types[i].to_string()};
      for (const auto& e : entries)
        if (i < e->key.types.size()) types.insert(e->key.types[i].to_string());
      if (types.size() > most) argument = i, most = types.size();
    }
    const std::string why = most > 1 ? str_cat("argument ", argument, " has had ", most, " types, now ",
                                               key.types[argument], ": pad it to a few shapes")
                                     : std::string("layouts, structures, host flags or cell types change");
    warn(str_cat("compile at ", line, ": the step needs more than ", options.max_plans,
                 " plans, so plans are made again and again: ", why, ", or raise CompileOptions::max_plans"));
  }

  std::vector<Tensor> on_meta(const Entry& e, std::span<const Tensor> args) {
    std::vector<Tensor> out;
    const Graph& g = *e.plan.graph;
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      const OutputPlace& o = e.plan.outputs[i];
      out.push_back(o.kind == OutputPlace::kArgument ? args[o.index] : Tensor::empty(g.type(g.outputs[i])));
    }
    return out;
  }

  std::vector<Tensor> verified_run(Entry& e, std::span<const Tensor> args) {
    bool same_bits = true;
    for (const Launch& l : e.plan.launches) same_bits &= l.operation->rounds_less().empty();
    if (!same_bits) {  // the launch check compares each kernel within its own bound
      e.verified = true;
      return e.executable->run(args);
    }
    const Evaluation want = evaluate(*e.joint, args);
    std::vector<Tensor> out = e.executable->run(args);
    for (size_t i = 0; i < out.size(); ++i) check_same_bits(out[i], want.outputs[i], str_cat("output ", i));
    for (size_t i = 0; i < want.writes.size(); ++i) {
      const Cell& c = *e.joint->cells[e.joint->writes[i].cell];
      check_same_bits(held_value(c, "verify"), want.writes[i],
                      c.name.empty() ? str_cat("cell ", i) : str_cat("cell '", c.name, "'"));
    }
    e.verified = true;
    return out;
  }

  bool warned = false;
};

struct CompiledCall::Step {
  EagerStep scope;
};

CompiledCall::CompiledCall(const std::shared_ptr<CompiledCore>& core) : core_(core) {
  WEFT_CHECK_AS(
      kFailedPrecondition, !core->busy.exchange(true, std::memory_order_acquire),
      "compile: this compiled function is already running, on another thread or in itself; need one call at a "
      "time: compile the function once per thread");
  direct_ = core->mode == Exec::kEager || thread_state.capture || thread_state.step;
  core->key.autocast = core->options.autocast ? core->options.autocast : thread_state.autocast;
  autocast_.emplace(direct_ ? core->key.autocast : std::nullopt);  // passes and kernels: off
}

CompiledCall::~CompiledCall() {
  step_ = {};
  core_->busy.store(false, std::memory_order_release);
}

void CompiledCall::begin_direct() {
  if (thread_state.capture || thread_state.step) return;  // part of the outer step
  ++core_->stats.calls;
  step_ = std::make_unique<Step>();
}

void CompiledCall::end_direct() {
  if (step_ && step_->scope.used()) advance_random_step();
  step_ = {};
}

CompiledCall::CallResult CompiledCall::run(std::span<const Tensor> args, std::span<const int32_t> structure,
                                           TraceFunction fn) {
  return core_->run(core_->find(args, structure, fn), args, fn);
}

void CompiledCall::prepare(std::span<const Tensor> args, std::span<const int32_t> structure, TraceFunction fn) {
  core_->find(args, structure, fn);
}

std::string CompiledCall::first_nonfinite(std::span<const Tensor> args, std::span<const int32_t> structure,
                                          TraceFunction fn) {
  return find_nonfinite(*core_->find(args, structure, fn).joint, args);
}

std::shared_ptr<CompiledCore> make_core(CompileOptions options, SourceLine line) {
  return std::make_shared<CompiledCore>(std::move(options), line);
}

static Tensor on_device(const Tensor& t, Device d) { return d.type == DeviceType::kCpu ? t : t.to(d); }

Number as_value(double number, Device d) { return {on_device(full({}, number, {.dtype = kFloat64}), d)}; }
Tensor as_value(int64_t number, Device d) { return on_device(full({}, number, {.dtype = kInt64}), d); }
Tensor as_value(bool number, Device d) { return on_device(full({}, number, {.dtype = kBool}), d); }

CompileStats core_stats(const CompiledCore& core) {
  CompileStats s = core.stats;
  s.plans_kept = static_cast<int64_t>(core.entries.size());
  if (!core.current) return s;
  if (core.current->partitioned) {
    core.current->partitioned->fill(s);
    return s;
  }
  const MemoryLayout& plan = core.current->plan;
  s.nodes = plan.graph->size();
  s.kernels = static_cast<int64_t>(plan.launches.size());
  for (const Launch& l : plan.launches) s.copies += l.copy;
  for (const CellUse& c : plan.cells) s.cells += c.used;
  s.arena_bytes = std::max(plan.arena_bytes, core.arena.bytes());
  s.planned_peak_bytes = plan.peak_bytes();
  if (const Executable* x = core.current->executable.get()) {
    const ReplayStats& last = x->last();
    if (last.predicted_peak_bytes > 0) s.planned_peak_bytes = last.predicted_peak_bytes;
    s.measured_peak_bytes = last.measured_peak_bytes;
    s.in_place_writes = last.in_place_writes;
    s.fresh_writes = last.fresh_writes;
  }
  return s;
}

const Entry& current_entry(const CompiledCore& core, const char* who) {
  WEFT_CHECK_AS(kFailedPrecondition, core.current, who,
                ": the function has not been captured yet; call it or prepare() first");
  return *core.current;
}

std::string core_report(const CompiledCore& core) {
  const Entry& e = current_entry(core, "report");
  return e.partitioned ? e.partitioned->report() : report_of(e, core.options, core_stats(core));
}

StepRecord core_record(const CompiledCore& core, int rank) {
  const Entry& e = current_entry(core, "record");
  WEFT_CHECK_AS(kOutOfRange, e.partitioned || rank == 0, "record: got rank ", rank,
                "; need 0 for a step on one device");
  StepRecord r = e.partitioned ? e.partitioned->record(rank) : record_of(e, e.executable.get());
  const std::vector<PassRecord> before = passes_of(e.passes);
  r.passes.insert(r.passes.begin(), before.begin(), before.end());
  return r;
}

void core_count_work(CompiledCore& core) { core.count_work = true; }

const Graph& core_graph(const CompiledCore& core, const std::string& stage) {
  const Entry& e = current_entry(core, "graph");
  if (e.partitioned && stage != "captured" && stage != "joint") {
    const Graph* g = e.partitioned->graph(stage);
    WEFT_CHECK(g, "graph: got stage '", stage, "'; need captured, joint, partitioned, fused or scheduled");
    return *g;
  }
  WEFT_CHECK(stage == "captured" || stage == "joint" || stage == "fused" || stage == "scheduled", "graph: got stage '",
             stage, "'; need captured, joint, fused or scheduled");
  return stage == "captured" ? *e.captured : stage == "joint" ? *e.joint : stage == "fused" ? *e.fused : *e.plan.graph;
}

std::string core_why(const CompiledCore& core, const std::string& a, const std::string& b) {
  const Entry& e = current_entry(core, "why");
  WEFT_CHECK_AS(kFailedPrecondition, !e.partitioned,
                "why: the step is partitioned over a mesh; need a step on one device");
  WEFT_CHECK_AS(kFailedPrecondition, e.report && e.report->before,
                "why: nothing was fused; need a step with the pass fuse enabled");
  std::string notes;
  for (const PassReport& p : e.passes)
    for (const std::string& note : p.notes) notes += str_cat("\n", p.name, ": ", note);
  try {
    return why(*e.report, a, b) + notes;
  } catch (const Error& error) {  // a pass may have replaced the op: its note says so
    internal::fail(error.code(), str_cat(error.what(), notes));
  }
}

}  // namespace weft::internal
