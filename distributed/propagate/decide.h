// Placement of a joint graph on a mesh. The rules of ops propagate the pins of cells and arguments forward; where
// operands disagree, the split that moves the fewest bytes wins. The result is a set of specs, independent of ranks and
// memory; emit() makes graphs from it.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/propagate/lowering.h"
#include "distributed/propagate/reshard.h"

namespace weft::dist {

/// The placement of a cell. Cells without a pin are replicated, or placed like the value that is written to them.
struct CellPin {
  Spec rest;                 // spec between steps
  Spec use;                  // spec in forward and backward; its splits are never undone
  Spec update;               // the spec of its reduced gradient, and of the computation of its new value
  bool gather_again = true;  // backward gathers it again instead of keeping the gathered value of forward
  bool reduce_each = false;  // each microbatch's term of its gradient is reduced before terms are added
  std::string why;           // "fsdp: dim 0 over fsdp"
};

/// Makes the table of positions of SegLayout::kTable from values that depend on arguments alone.
struct PositionSource {
  std::vector<Value> from;
  std::function<Tensor(std::span<const Tensor> from)> make = {};  // i64 [extent]: positions of rank 0, rank 1, ...
};

/// The decisions of strategies before propagation.
struct Pins {
  std::vector<std::optional<CellPin>> cells;  // index as in Graph::cells
  std::vector<Spec> inputs;  // the split of the work that each argument sets; every rank has the whole argument
  Axes activations;          // sums over these axes are reduced at once (tensor parallelism) ...
  bool sequence = false;     // ... and scattered over the dim that is dim 1 of the arguments
  Axes experts;              // axes that split the experts (expert parallelism)
  double expert_room = 0;    // row capacity of a rank for its experts, in average shares; 0: for all rows
  std::vector<std::shared_ptr<const Lowering>> lowerings;  // asked in order; the first one to claim a node computes it
  PositionSource positions;
  DType wire =
      kFloat32;  // type in which ranks exchange f32 gradients; kBFloat16 rounds each rank's term, and the sum once
  bool keep_gathered = false;  // backward keeps activations that forward gathered instead of gathering them again
};

struct NodeChoice {
  const Lowering* lowering = nullptr;  // the element of Pins::lowerings that claims the node, or null
  bool free = false;                   // emitted with any placement that its users ask for
  FactorSplit split;
  std::vector<Spec> in;
  std::vector<Spec> out;      // specs as computed
  std::vector<Spec> settled;  // specs after the immediate reductions; equal to `out` if there are none
};

struct Decision {
  std::vector<NodeChoice> nodes;
  std::vector<CellPin> cells;
  std::vector<Spec> outputs;         // specs of the graph's results; nothing is pending
  std::vector<Spec> prefer;          // node -> default placement of free values
  std::vector<int32_t> gradient_of;  // node -> the cell whose gradient (before the update) is its first result; else -1
  std::vector<std::string> notes;
};

/// Throws InvalidArgument if the pins do not fit the graph.
Decision decide(const Mesh& mesh, const Graph& g, const Pins& pins);

/// Whether these stages contain an all-gather. Backward repeats gathers of forward instead of using their results.
bool is_gather(const std::vector<ReshardStage>& stages);

}  // namespace weft::dist
