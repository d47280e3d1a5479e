// Deciding how each node of a joint graph is split over a mesh: pins on cells and arguments are carried forward through
// the rules of ops; where operands disagree the choice that moves the fewest bytes wins. Nothing here knows of ranks or
// memory: the result says specs only, and emit() makes graphs of it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "distributed/placement/rule.h"
#include "distributed/propagate/reshard.h"

namespace weft::dist {

/// How a cell lies and is used. For cells that no strategy pins: replicated, or as what their new value is made of.
struct CellPin {
  Spec rest;                 // between steps
  Spec use;                  // what forward and backward see; splits in it are never undone
  Spec home;                 // where its update is computed and its gradient reduced to
  bool gather_again = true;  // backward gathers it anew rather than keeping what forward gathered
  bool reduce_each = false;  // its gradient is reduced where it arises, not after terms (of micro-batches) are added
  std::string why;           // "fsdp: dim 0 over fsdp"
};

/// How attention runs over a sequence that is split (context parallelism).
enum class CpKind : uint8_t {
  kAllGather,  // keys and values gathered
  kRing,       // passed around (Liu et al. 2023)
  kUlysses,    // heads exchanged for sequence (Jacobs et al. 2023)
};

struct Pins {
  std::vector<std::optional<CellPin>> cells;  // by index in Graph::cells
  std::vector<Spec> inputs;                   // what splits the work on each argument; the argument itself is global
  Axes activations;        // sums over these axes are reduced where they arise (tensor parallelism) ...
  bool sequence = false;   // ... and scattered over the dim that is the arguments' dim 1
  Axes experts;            // over which experts are split (expert parallelism)
  double expert_room = 0;  // how many rows a rank takes for its experts, in average shares; 0: all there could be
  Axes context;            // over which sequences are split (context parallelism)
  CpKind cp = CpKind::kAllGather;
  std::vector<Value> documents;  // Layout::kDocuments: ids [.., sequence], made of arguments alone
  bool keep_gathered = false;    // backward uses activations that forward gathered instead of gathering again
};

struct NodeChoice {
  bool ring = false;  // attention with its keys split as its queries
  bool free = false;  // emitted in whatever way it is asked for
  Split split;
  SmallVec<Spec, 3> in;
  SmallVec<Spec, 1> out;      // as computed
  SmallVec<Spec, 1> settled;  // as reduced at once; equal to `out` if nothing is pending or it may stay so
};

struct Decision {
  std::vector<NodeChoice> nodes;
  std::vector<CellPin> cells;
  std::vector<Spec> outputs;         // of the graph's results: nothing pending
  std::vector<Spec> prefer;          // by node: of free values, what splits them by default
  std::vector<int32_t> gradient_of;  // by node: the cell whose gradient its first result is, before the update; else -1
  std::vector<std::string> notes;
};

/// Throws InvalidArgument if the pins do not fit the graph.
Decision decide(const Mesh& mesh, const Graph& g, const Pins& pins);

/// Whether a version of a value that forward made is seen by backward: all but what is gathered again.
bool is_gather(const std::vector<Stage>& stages);

}  // namespace weft::dist
