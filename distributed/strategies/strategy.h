// Strategy: one way to spread a step over a mesh. A strategy pins placements; decide() carries them through the graph,
// and emit() makes collectives where placements differ. The planner prices the emitted graph, so a strategy states no
// costs.
#pragma once
#include "distributed/propagate/emit.h"
#include "distributed/strategies/options.h"

namespace weft::dist {

/// The placement of one parameter, to which strategies add axes; at first none.
struct ParameterPin {
  int32_t cell = -1;
  std::string name;
  Shape shape;
  std::vector<Axes> split;  // by dim: at use
  Axes sharded = {};        // split dim `sharded_dim` further, where gradients are reduced and updates computed
  int sharded_dim = -1;
  bool sharded_at_rest = false;  // between steps, too: each use gathers it
  bool gather_again = false;     // CellPin::gather_again
  bool reduce_each = false;      // CellPin::reduce_each
  bool split_by_rule = false;
  bool expert = false;  // weights of experts: tokens are split over tp where they meet them
  std::string why = {}, why_sharded = {};

  /// Whether it is split over one of these axes at use.
  bool uses(const Axes& axes) const;
};

/// The step that a strategy annotates.
struct StrategyContext {
  const Mesh& mesh;
  const Graph& graph;  // joint: forward, backward and update
  const Plan& plan;
  Pins pins = {};
  std::vector<ParameterPin> parameters = {};
  std::vector<std::string> notes = {};  // for the plan report

  ParameterPin* find(int32_t cell);
  /// The axes of a mesh dimension with more than one rank, else none.
  Axes axes(std::string_view name) const;
};

/// A mesh that Plan::automatic(world) builds, from the innermost dimension outwards.
struct MeshSearch {
  const Graph& graph;  // joint
  int world;           // all ranks
  int node;            // ranks of one node, which have the fastest links
  int inner = 1;       // ranks of the dimensions chosen so far
};

struct Strategy {
  std::string_view name;
  std::span<const std::string_view> dimensions = {};  // mesh dimensions that it serves; empty: any
  std::span<const OptionRow> options = {};
  void (*annotate)(StrategyContext&) = nullptr;
  /// Replaces values that the plan leaves open by those that follow from the mesh.
  void (*settle)(const Mesh&, Plan&) = nullptr;
  /// Throws InvalidArgument if the arguments of a step do not divide over the mesh.
  void (*check)(const Mesh&, const Plan&, std::span<const TensorType> arguments) = nullptr;
  /// The setting that has no such collective, for errors; empty: none. Later strategies are asked first.
  std::string (*avoid)(const Mesh&, const PlannedCollective&) = nullptr;
  /// The sizes of its dimension that Plan::automatic(world) tries; 1: without it. Null: it tries none.
  std::vector<int> (*sizes)(const MeshSearch&) = nullptr;
  /// Orders the dimensions of such a mesh: that of the lowest level is the innermost.
  int level = 0;
};

/// The cell that a value is made from by views and elementwise ops, if it is the only one; else -1.
int32_t parameter_behind(const Graph& g, Value v);
/// 1 and the powers of 2 up to `most` that divide the ranks which are left.
std::vector<int> powers_of_2(const MeshSearch& search, int64_t most);
/// "the nearest batches that do are 3 and 6": multiples of n around `have`, for errors.
std::string nearest_multiples(const char* what, int64_t have, int64_t n);

// The strategies of strategies.cc.
extern const Strategy data_parallel, expert_parallel, tensor_parallel, context_parallel, pipeline_parallel,
    sharded_state;

}  // namespace weft::dist
