// The pass runner. A pass is a free function from graph to graph. The runner switches passes off by name, times them,
// counts nodes, dumps each changed graph and verifies it.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/ir/graph.h"

namespace weft {

struct Pass {
  const char* name;
  /// Returns the new graph, or null if nothing changed. Never changes its argument.
  Ref<Graph> (*run)(const Graph&);
  /// Why the pass has this position in its list.
  const char* why_here;
  /// A later stage needs it, so WEFT_DISABLE does not accept its name.
  bool required = false;
};

/// What one pass did.
struct PassReport {
  const char* name = "";
  double ms = 0;
  int32_t nodes_before = 0, nodes_after = 0;
  bool changed = false;
  bool disabled = false;
  std::vector<std::string> notes = {};  // what the pass did or left unchanged, and why; one sentence each
  /// "cse  1.2 ms  120 -> 97 nodes".
  std::string to_string() const;
};

/// Requirements of the step that the graph becomes. Passes decide by them.
struct PassFacts {
  bool eager_bits = false;  // the bits of eager mode, even where 16-bit values could be rounded less often
  bool low_memory = false;  // the step as usual needs more memory than it may
  bool exact_sums = false;  // sums whose bits do not depend on order, so that one device and any mesh agree
};

struct PassOptions {
  /// Names of passes to skip, or "all"; added to those in WEFT_DISABLE.
  std::vector<std::string> disable;
  /// The passes whose names may be disabled, if these are more than the passes that run here (another list of the
  /// pipeline).
  std::span<const Pass> known;
  /// Appends a report of each pass here.
  std::vector<PassReport>* report = nullptr;
  PassFacts facts = {};
};

/// Runs the passes in order. Obeys WEFT_DISABLE, WEFT_DUMP (writes NN_stage_pass.wir for each changed graph),
/// WEFT_VERIFY_IR and WEFT_DEBUG. Throws on unknown pass names and lists the known ones. Rethrows an error inside a
/// pass with the name of the pass.
Ref<Graph> run_passes(Ref<Graph> graph, std::span<const Pass> passes, const PassOptions& options = {});

/// For the pass that runs on this thread: its facts, and a note for its report. Outside run_passes: default facts, and
/// notes are dropped.
const PassFacts& pass_facts();
void pass_note(std::string line);

/// Throws weft::Error(kInternal) unless `after` has the arguments, outputs and cell writes of `before` (types, order)
/// and at least as many side effects.
void verify_same_interface(const Graph& before, const Graph& after);

}  // namespace weft
