// The cells of the outer optimiser: "outer.anchor.NAME" and "outer.momentum.NAME" for each parameter, with its shards.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "distributed/diloco/outer.h"
#include "distributed/launch/sharded_cell.h"
#include "distributed/replica/state_parts.h"
#include "framework/dispatch/parameter.h"

namespace weft::dist {

/// The trained parameters among the cells of a step, and the others.
std::pair<NamedCells, NamedCells> trained_and_others(const NamedCells& cells);

class OuterState {
 public:
  /// Throws InvalidArgument for a parameter that is not f32 on the CPU.
  OuterState(const OuterOptions& options, const NamedCells& parameters);
  const NamedCells& cells() const { return cells_; }

  /// Gives the outer cells the shards of the parameters. `made`: the parameters have values, and so have the outer
  /// cells then: without values before, anchors are the parameters, and momentum is 0. Returns the shards of both.
  CellShards bind(const CellShards& shards, const std::vector<int>& ranks, bool made);
  /// The outer gradients of exchange x, by rank of this process.
  std::vector<std::vector<float>> gradients(int64_t x) const;
  /// Moves the anchors of the fragment of exchange x by averages, by rank.
  void move_anchors(int64_t x, const std::vector<std::vector<float>>& averages);
  /// Moves the parameters of this fragment to the anchors.
  void move_parameters(int64_t x);
  /// All parameters become the anchors.
  void take_anchors();

 private:
  template <class F>
  void each_piece(int64_t x, size_t rank, F&& f) const;
  // The cells of parameter i are anchor i and momentum i.
  size_t anchor(size_t i) const { return i; }
  size_t momentum(size_t i) const { return parameters_.size() + i; }

  const OuterOptions options_;
  const NamedCells parameters_;
  NamedCells cells_;  // all anchors, then all momenta
  bool made_ = false;
  std::vector<Ref<ShardedCell>> own_;  // index: cell
  std::vector<int> ranks_;
  RankValues inner_{{}, {}}, outer_{{}, {}};
  std::vector<std::vector<std::vector<FragmentPiece>>> fragments_;  // index: rank of this process, fragment
};

}  // namespace weft::dist
