// Strategies: each pins placements of parameters and arguments for the mesh dimensions it knows, and does nothing else.
#pragma once
#include "distributed/propagate/decide.h"
#include "framework/mesh/plan.h"

namespace weft::dist {

/// What strategies work on: of each parameter the axes by dim, to begin with none.
struct ParameterPin {
  int32_t cell = -1;
  std::string name;
  Shape shape;
  std::vector<Axes> split;  // by dim, at use: model dimensions (tp, ep)
  Axes sharded;             // at rest besides, over one dim (fsdp)
  int sharded_dim = -1;
  bool split_by_rule = false;
  bool expert = false;  // weights of experts: tokens are split over tp where they meet them
  std::string why;
};

struct Strategy {
  const Mesh& mesh;
  const Graph& graph;  // joint
  const Plan& plan;
  Pins pins = {};
  std::vector<ParameterPin> parameters = {};
  std::vector<std::string> notes = {};

  ParameterPin* find(int32_t cell);
  /// Axes of a mesh dimension that has more than one rank; empty if there is none.
  Axes axes(std::string_view name) const;
  /// Whether the parameter is split over one of these already.
  static bool uses(const ParameterPin& p, const Axes& axes);
};

/// The parameter behind a value that is made of one cell alone; -1 if there is none.
int32_t parameter_behind(const Graph& g, Value v);

void pin_rules(Strategy& s);            // what the plan says by name
void pin_experts(Strategy& s);          // ep: experts' weights over their first dim
void pin_tensor_parallel(Strategy& s);  // tp: columns, then rows, by the graph
void pin_data_parallel(Strategy& s);    // dp, fsdp, ep, cp: arguments
void pin_sharded(Strategy& s);          // ZeRO: parameters, gradients, optimiser state at rest

/// Throws InvalidArgument, as make_pins does, for a mesh dimension without a strategy and for arguments of these types
/// that do not divide over the mesh.
void check_arguments(const Mesh& mesh, const Plan& plan, std::span<const TensorType> types);

/// Everything for a mesh: throws InvalidArgument for rules that match nothing, dimensions nobody knows, work that does
/// not divide.
Pins make_pins(const Mesh& mesh, const Graph& joint, const Plan& plan, std::vector<std::string>* notes = nullptr);

}  // namespace weft::dist
