// Entry: one capture of a compiled function with its graphs, its plan, and the conditions under which it can be used.
#pragma once
#include <memory>
#include <optional>

#include "compiler/exec/compile.h"
#include "compiler/exec/partitioned.h"
#include "compiler/exec/run/executable.h"
#include "compiler/passes/pass.h"
#include "compiler/targets/operations.h"
#include "framework/dispatch/capture.h"

namespace weft {
struct FusionReport;
}

namespace weft::internal {

/// The key by which a call finds its entry.
struct CallKey {
  std::vector<TensorType> types;
  std::vector<ArgumentLayout> layouts;
  std::vector<int32_t> structure;
  std::vector<bool> recorded;  // arguments that record for grad()
  bool grad = true;
  std::optional<DType> autocast;
  SourceLine line = {};  // line of the call of compile(), for errors; not compared
};

/// The values that are computed again so that the plan fits the memory budget.
struct Rematerialisation {
  bool tried = false;  // the plan without recomputation exceeds the budget
  bool fits = false;
  int64_t peak_before = 0;            // peak of the plan without recomputation
  int64_t least_peak = 0;             // the least of all plans that were tried
  int64_t kept_before = 0, kept = 0;  // bytes alive from forward to backward, estimated
  int32_t copies = 0;                 // nodes computed again
  double flops = 0;                   // FLOPs of these nodes
  double seconds = 0;                 // estimated cost in time
  int32_t policies = 0, plans = 0;    // listed, tried
};

struct PreparedGraph {
  Ref<Graph> fused;
  MemoryLayout plan;
  std::shared_ptr<Operations> operations;
  std::vector<PassReport> passes_to_plan;  // from the joint graph to the plan
  std::shared_ptr<FusionReport> report;
  LoadReport load;
  const char* order = "";   // the order of execution
  bool low_memory = false;  // products compute expensive operands again instead of keeping them
};

struct Entry : PreparedGraph {
  CallKey key;
  std::vector<std::pair<HostFlag, bool>> flags;  // read by the function, with their values at capture
  struct CellState {
    Ref<Cell> cell;
    TensorType type;
    bool requires_grad;
  };
  std::vector<CellState> cells;
  uint64_t registered_changes = 0;  // the count at capture (framework/dispatch/state/registered.h)
  Ref<Graph> captured, joint;
  Ref<Graph> before_recompute;  // the joint graph without nodes computed again; null if it has none
  Rematerialisation remat;
  bool saved_memory = false;         // save_memory() has run
  std::shared_ptr<const void> like;  // the result's structure
  std::vector<PassReport> passes;
  double capture_ms = 0, passes_ms = 0, plan_ms = 0;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<PartitionedStep> partitioned;  // on a mesh: replaces fused graph, plan and executable
  bool verified = false;
  uint64_t last_used = 0;
  int64_t runs = 0;
  std::optional<OverBudget> over_budget;  // each call throws it

  bool matches_types(const CallKey& k) const;
  bool matches_layouts(const CallKey& k) const;
  /// Whether host flags and the types of cells are as they were at capture.
  bool still_holds() const;
};

/// Stages kFused and kPlan of the pipeline: lowers, fuses and plans a joint or local graph in the better of the known
/// orders. Kernels are not loaded yet. A plan that needs `enough` bytes or more is not laid out: its arena is as large
/// as the values that are live at once. `low_memory`: PassFacts::low_memory.
PreparedGraph plan_joint(const Ref<Graph>& joint, std::span<const ArgumentLayout> layouts,
                         const CompileOptions& options, bool low_memory, int64_t enough = INT64_MAX);
/// The options of operations that follow from these options.
PrepareOptions prepare_options(const CompileOptions& options);
/// Compiles the kernels of a plan, and writes their sources to WEFT_DUMP.
void load_kernels(PreparedGraph& p, const CompileOptions& options);
/// Dumps the scheduled graph of a plan and its record, NN_scheduled_order.wir and .record (WEFT_DUMP), and verifies it
/// (WEFT_VERIFY_IR=2).
void check_scheduled(const PreparedGraph& p);
/// The check of a plan's launches, if the user asks for one or the target checks all (in tests); else null.
std::unique_ptr<LaunchCheck> launch_check(const PreparedGraph& p, bool asked);
/// Throws OverBudget, with a breakdown of the memory, if a plan exceeds the memory budget.
void check_budget(const PreparedGraph& p, const Rematerialisation& remat, const CompileOptions& options);
/// Plans e.joint for the layouts of e.key. If the plan exceeds the memory budget, values are computed again. Throws
/// OverBudget, with a breakdown of the memory, if no plan fits. e.captured may be null; if it is not, other passes are
/// tried too.
void plan_within_budget(Entry& e, const CompileOptions& options);
/// Replaces e.plan, which exceeds `budget`, by the fitting plan with the least extra time. Replaces its graph and pass
/// reports too. A smaller budget never gives a larger peak. If no plan fits, e.plan stays.
void rematerialise(Entry& e, int64_t budget, const CompileOptions& options);

/// One run of a function on traced arguments.
struct Traced {
  Ref<Graph> graph;
  std::vector<std::pair<HostFlag, bool>> flags;
  std::shared_ptr<const void> like;
};
Traced trace(const CallKey& key, CompiledCall::TraceFunction fn);

/// Traces the function again. Throws if the graph differs from the captured graph, and names the host value that
/// differs.
void check_capture(const Entry& e, CompiledCall::TraceFunction fn);

/// Captures, runs the passes and plans.
std::unique_ptr<Entry> make_entry(CallKey key, CompiledCall::TraceFunction fn, const CompileOptions& options);
/// An entry for the same function and types with other layouts of arguments: planned again, not captured.
std::unique_ptr<Entry> replan(const Entry& e, CallKey key, const CompileOptions& options);

/// The entry used last. Throws "WHO: ..." if there is none.
const Entry& current_entry(const CompiledCore& core, const char* who);

/// The record of a plan. `executable` has the measured times; null: none.
StepRecord record_of(const PreparedGraph& p, const Executable* executable);
std::vector<PassRecord> passes_of(std::span<const PassReport> reports);
/// The name of BufferRecord::home.
const char* home_name(Home home);
/// The text behind Compiled::report().
std::string report_of(const Entry& e, const CompileOptions& options, const CompileStats& stats);

}  // namespace weft::internal
