// Entry: one capture of a compiled function, its graphs at every stage, its plan, and what must hold for it to be used.
#pragma once
#include <memory>

#include "compiler/exec/compile.h"
#include "compiler/exec/executable.h"
#include "compiler/passes/pass.h"
#include "framework/dispatch/capture.h"

namespace weft::internal {

/// What a call is looked up by.
struct CallKey {
  std::vector<TensorType> types;
  std::vector<ArgumentLayout> layouts;
  std::vector<int32_t> structure;
  bool grad = true;
};

struct Entry {
  CallKey key;
  std::vector<std::pair<HostFlag, bool>> flags;  // read by the function, with the values they had
  struct CellState {
    Ref<Cell> cell;
    TensorType type;
    bool requires_grad;
  };
  std::vector<CellState> cells;
  Ref<Graph> captured, joint;
  std::shared_ptr<const void> like;  // the result's structure
  std::vector<PassReport> passes;
  double capture_ms = 0, passes_ms = 0, plan_ms = 0;
  const char* order = "";  // which order of execution the plan has
  Plan plan;
  std::unique_ptr<Executable> executable;
  bool verified = false;
  uint64_t last_used = 0;

  bool matches_types(const CallKey& k) const;
  bool matches_layouts(const CallKey& k) const;
  /// Host flags and cells are as they were.
  bool still_holds() const;
};

/// Traces, optimises and plans. Throws ResourceExhausted if the plan exceeds the budget.
std::unique_ptr<Entry> make_entry(CallKey key, CompiledCall::Trace fn, const CompileOptions& options);
/// The same function and types with arguments laid out otherwise: planned anew, not captured.
std::unique_ptr<Entry> replan(const Entry& e, CallKey key, const CompileOptions& options);

/// The text behind Compiled::report().
std::string report_of(const Entry& e, const CompileOptions& options, const CompileStats& stats);

}  // namespace weft::internal
