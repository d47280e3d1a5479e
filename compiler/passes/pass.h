// The pass runner. A pass is a free function from graph to graph. The runner switches passes off by name, times them,
// counts nodes, dumps each changed graph and verifies it. A pass reads no global state: its context has all it needs.
#pragma once
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/function_ref.h"
#include "framework/ir/graph.h"

namespace weft {

struct FusionReport;

/// Requirements of the step that the graph becomes. Passes decide by them.
struct PassFacts {
  bool eager_bits = false;  // the bits of eager mode, even where 16-bit values could be rounded less often
  bool low_memory = false;  // the usual step exceeds the memory budget
  bool exact_sums = false;  // sums whose bits do not depend on order, so that one device and any mesh agree
  bool prologues = true;    // kernels of the device can compute operands of a product while they pack them
  bool loops = false;       // the device runs loops; else each iteration has its own nodes
  bool stages = false;      // the loop over the parts of a batch is cut into pipeline stages
};

/// The input of a pass besides the graph, and its notes.
struct PassContext {
  PassFacts facts = {};
  std::vector<std::string> disabled = {};  // names of parts of the pass that are switched off
  FusionReport* fusion = nullptr;          // where fuse describes its groups; null: nowhere
  std::vector<std::string> notes = {};     // changes that the pass made or refused, and why; one sentence each

  /// Whether the part of a pass with this name is switched on.
  bool enabled(std::string_view part) const;
  void note(std::string line) { notes.push_back(std::move(line)); }
};

/// A pass as a function: with a context, or of the graph alone. Returns the new graph, or null if nothing changed.
/// Never changes its argument.
class PassFunction {
 public:
  constexpr PassFunction(std::nullptr_t) {}
  constexpr PassFunction(Ref<Graph> (*run)(const Graph&)) : of_graph_(run) {}
  constexpr PassFunction(Ref<Graph> (*run)(const Graph&, PassContext&)) : with_context_(run) {}
  explicit operator bool() const { return of_graph_ || with_context_; }
  Ref<Graph> operator()(const Graph& g, PassContext& context) const {
    return of_graph_ ? of_graph_(g) : with_context_(g, context);
  }

 private:
  Ref<Graph> (*of_graph_)(const Graph&) = nullptr;
  Ref<Graph> (*with_context_)(const Graph&, PassContext&) = nullptr;
};

struct Pass {
  const char* name;
  /// Null: a part of the pass before it, or not a function of one graph; then PassSteps runs it.
  PassFunction run;
  /// Why the pass has this position in its list.
  const char* why_here;
  /// A later stage needs it, so WEFT_DISABLE does not accept its name.
  bool required = false;
};

/// The outcome of one pass.
struct PassReport {
  const char* name = "";
  double ms = 0;
  int32_t nodes_before = 0, nodes_after = 0;  // 0: not a function of one graph
  bool changed = false;
  bool disabled = false;
  std::vector<std::string> notes = {};  // PassContext::notes
  /// "cse  1.2 ms  120 -> 97 nodes".
  std::string to_string() const;
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
  FusionReport* fusion = nullptr;  // PassContext::fusion
};

/// Runs the passes in order. Obeys WEFT_DISABLE, WEFT_DUMP (writes NN_stage_pass.wir for each changed graph),
/// WEFT_VERIFY_IR and WEFT_DEBUG. Throws on unknown pass names and lists the known ones. An internal error
/// gets the name of the pass.
Ref<Graph> run_passes(Ref<Graph> graph, std::span<const Pass> passes, const PassOptions& options = {});

/// Runs those rows of the pipeline that are not functions of one graph: they place values on a mesh, arrange the
/// graphs of all ranks together, or make a plan. Switches them off by name, times and reports them as run_passes does.
class PassSteps {
 public:
  explicit PassSteps(const PassOptions& options);
  /// Runs `step`, unless WEFT_DISABLE or the options disable this name. False if disabled.
  bool run(const char* name, FunctionRef<void()> step);

 private:
  std::set<std::string, std::less<>> off_;
  std::vector<PassReport>* report_;
  const long debug_;
};

/// Writes NN_stage_pass.wir into the folder of WEFT_DUMP, if it is set. Returns the path without ".wir"; empty: it is
/// not set.
std::string dump_graph(const Graph& g, std::string_view pass);

/// Throws weft::Error(kInternal) unless `after` has the arguments, outputs and cell writes of `before` (types, order)
/// and no fewer side effects.
void verify_same_interface(const Graph& before, const Graph& after);

}  // namespace weft
