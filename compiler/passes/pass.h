// The pass runner. A pass is a free function from graph to graph; the runner gives each one for free: switched off by
// name, timed, counted, dumped if it changed the graph, verified.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/ir/graph.h"

namespace weft {

struct Pass {
  const char* name;
  /// The new graph, or null if nothing changed. Never changes its argument.
  Ref<Graph> (*run)(const Graph&);
  /// Why it stands where it stands in its list.
  const char* why_here;
  /// A stage cannot be reached without it: WEFT_DISABLE does not know its name.
  bool required = false;
};

/// What one pass did.
struct PassReport {
  const char* name = "";
  double ms = 0;
  int32_t nodes_before = 0, nodes_after = 0;
  bool changed = false;
  bool disabled = false;
  std::vector<std::string> notes = {};  // what the pass did or left alone, and why: a sentence each
  /// "cse  1.2 ms  120 -> 97 nodes".
  std::string to_string() const;
};

/// What is asked of the step that a graph becomes; passes choose by it.
struct PassFacts {
  bool eager_bits = false;     // the bits of eager, also where 16-bit values could be rounded less often
  bool little_memory = false;  // the step as usual needs more memory than it may
  bool exact_sums = false;     // sums whose bits do not depend on order, so that one device and any mesh agree
};

struct PassOptions {
  /// Names of passes to leave out, or "all"; added to those of WEFT_DISABLE.
  std::vector<std::string> disable;
  /// The passes whose names may be disabled, if more than those run here (another list of the pipeline).
  std::span<const Pass> known;
  /// Where to append what each pass did.
  std::vector<PassReport>* report = nullptr;
  PassFacts facts = {};
};

/// Runs the passes in order. Honours WEFT_DISABLE, WEFT_DUMP (NN_stage_pass.wir for each graph that changed),
/// WEFT_VERIFY_IR and WEFT_DEBUG. Throws on names of unknown passes, listing the known ones; an error inside a pass is
/// rethrown with the pass's name.
Ref<Graph> run_passes(Ref<Graph> graph, std::span<const Pass> passes, const PassOptions& options = {});

/// For the pass that runs on this thread: what is asked, and its notes. Outside run_passes: nothing, and lost.
const PassFacts& pass_facts();
void pass_note(std::string line);

/// Throws weft::Error(kInternal) unless `after` has the arguments, outputs and cell writes of `before` (types, order)
/// and no fewer side effects.
void verify_same_interface(const Graph& before, const Graph& after);

}  // namespace weft
