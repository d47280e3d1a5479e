// Strategy: one way to distribute a step over a mesh. A strategy pins placements; decide() propagates them through the
// graph, and emit() makes collectives where placements differ. The planner computes the cost of the emitted graph, so a
// strategy states no costs.
#pragma once
#include "distributed/propagate/emit.h"
#include "distributed/strategies/options.h"

namespace weft::dist {

/// The placement of one parameter: at first none; strategies add axes.
struct ParameterPin {
  int32_t cell = -1;
  std::string name;
  Shape shape;
  std::vector<Axes> split;  // dim -> axes at use
  Axes sharded = {};        // axes that split dim `sharded_dim` further for the reduced gradient and the update
  int sharded_dim = -1;
  bool sharded_at_rest = false;  // `sharded` also holds between steps: each use gathers the parameter
  bool gather_again = false;     // CellPin::gather_again
  bool reduce_each = false;      // CellPin::reduce_each
  bool split_by_rule = false;
  bool expert = false;  // weights of experts: their tokens are split over tp
  std::string why = {}, why_sharded = {};

  /// Whether the parameter is split over one of these axes at use.
  bool uses(const Axes& axes) const;
};

/// The step that a strategy annotates.
struct StrategyContext {
  const Mesh& mesh;
  const Graph& graph;  // the joint graph: forward, backward and update
  const Plan& plan;
  Pins pins = {};
  std::vector<ParameterPin> parameters = {};
  std::vector<std::string> notes = {};  // for the plan report

  ParameterPin* find(int32_t cell);
  /// The axes of a mesh dimension, if it has more than one rank; else none.
  Axes axes(std::string_view name) const;
};

/// A mesh that Plan::automatic(world) builds, from the innermost dimension outwards.
struct MeshSearch {
  const Graph& graph;  // joint
  int world;           // number of all ranks
  int node;            // number of ranks on one node, which have the fastest links
  int inner = 1;       // number of ranks of the dimensions chosen so far
};

struct Strategy {
  std::string_view name;
  std::span<const std::string_view> dimensions = {};  // mesh dimensions that it serves; empty: any
  std::span<const OptionRow> options = {};
  void (*annotate)(StrategyContext&) = nullptr;
  /// Replaces values that the plan leaves open by values that follow from the mesh.
  void (*settle)(const Mesh&, Plan&) = nullptr;
  /// Throws InvalidArgument if the arguments of a step do not divide over the mesh.
  void (*check)(const Mesh&, const Plan&, std::span<const TensorType> arguments) = nullptr;
  /// A setting that avoids such a collective, for errors; empty: none. Later strategies are asked first.
  std::string (*avoid)(const Mesh&, const PlannedCollective&) = nullptr;
  /// The sizes of its dimension that Plan::automatic(world) tries; 1: without the dimension. Null: it tries none.
  std::vector<int> (*sizes)(const MeshSearch&) = nullptr;
  /// Orders the dimensions of such a mesh: the strategy with the lowest level gets the innermost dimension.
  int level = 0;
};

/// The only cell from which views and elementwise ops compute a value; -1 if there is none or more than one.
int32_t parameter_behind(const Graph& g, Value v);
/// 1 and the powers of 2 up to `most` that divide the remaining ranks.
std::vector<int> powers_of_2(const MeshSearch& search, int64_t most);
/// "the nearest batches that do are 3 and 6": multiples of n around `have`, for errors.
std::string nearest_multiples(const char* what, int64_t have, int64_t n);

// The strategies of strategies.cc.
extern const Strategy data_parallel, expert_parallel, tensor_parallel, context_parallel, pipeline_parallel,
    sharded_state, replica;

}  // namespace weft::dist
