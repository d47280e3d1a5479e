// Placement of a joint graph on a mesh. The pins of cells and arguments are carried forward through the rules of ops;
// where operands disagree, the split that moves the fewest bytes wins. The result consists of specs,
// without ranks or memory; emit() makes graphs from it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/propagate/lowering.h"
#include "distributed/propagate/reshard.h"

namespace weft::dist {

/// How a cell is stored and used. Cells without a pin are replicated, or placed like the value they are written with.
struct CellPin {
  Spec rest;                 // between steps
  Spec use;                  // in forward and backward; splits in it are never undone
  Spec update;               // of its gradient once reduced, and of the computation of its new value
  bool gather_again = true;  // backward gathers it again instead of keeping what forward gathered
  bool reduce_each = false;  // each term of its gradient (of micro-batches) is reduced before terms are added
  std::string why;           // "fsdp: dim 0 over fsdp"
};

/// Makes the table of positions of SegLayout::kTable from values that depend on arguments alone.
struct PositionSource {
  std::vector<Value> from;
  std::function<Tensor(std::span<const Tensor> from)> make = {};  // i64 [extent]: positions of rank 0, of rank 1, ...
};

/// What strategies decide before propagation.
struct Pins {
  std::vector<std::optional<CellPin>> cells;  // by index in Graph::cells
  std::vector<Spec> inputs;  // the split that each argument gives to the work; every rank has the whole argument
  Axes activations;          // sums over these axes are reduced at once (tensor parallelism) ...
  bool sequence = false;     // ... and scattered over the dim that is dim 1 of the arguments
  Axes experts;              // split the experts (expert parallelism)
  double expert_room = 0;    // rows that a rank takes for its experts, in average shares; 0: as many as there could be
  std::vector<std::shared_ptr<const Lowering>> lowerings;  // asked in order; the first that claims a node computes it
  PositionSource positions;
  DType wire = kFloat32;       // of f32 gradients that ranks reduce: kBFloat16 rounds what each gives, and the sum once
  bool keep_gathered = false;  // backward uses activations that forward gathered instead of gathering again
};

struct NodeChoice {
  const Lowering* lowering = nullptr;  // of Pins::lowerings, if one claims the node
  bool free = false;                   // emitted with whatever placement its users ask for
  Split split;
  std::vector<Spec> in;
  std::vector<Spec> out;      // as computed
  std::vector<Spec> settled;  // after the reductions that come at once; equal to `out` if there are none
};

struct Decision {
  std::vector<NodeChoice> nodes;
  std::vector<CellPin> cells;
  std::vector<Spec> outputs;         // of the graph's results; nothing is pending
  std::vector<Spec> prefer;          // by node: the default placement of free values
  std::vector<int32_t> gradient_of;  // by node: the cell whose gradient its first result is, before the update; else -1
  std::vector<std::string> notes;
};

/// Throws InvalidArgument if the pins do not fit the graph.
Decision decide(const Mesh& mesh, const Graph& g, const Pins& pins);

/// Whether these stages contain an all-gather. Backward repeats gathers of forward instead of using their results.
bool is_gather(const std::vector<ReshardStage>& stages);

}  // namespace weft::dist
