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
  /// The outer gradients of the whole fragment, in an order that is equal on all meshes. A collective of the processes;
  /// empty in all but the first.
  std::vector<float> whole(int64_t x, const std::vector<std::vector<float>>& d) const;
  /// The inverse, from the values of the first process. A collective.
  std::vector<std::vector<float>> by_rank(int64_t x, std::vector<float> values) const;
  /// Moves the anchors of the fragment of exchange x by averages, by rank.
  void move_anchors(int64_t x, const std::vector<std::vector<float>>& averages);
  /// Moves the parameters of this fragment to the anchors.
  void move_parameters(int64_t x);
  /// All parameters become the anchors.
  void take_anchors();

 private:
  // A range of the values of a parameter in a fragment.
  struct Piece {
    size_t part = 0;                      // parameter
    int64_t begin = 0, count = 0;         // in the shard of the rank
    size_t before = 0, before_whole = 0;  // values before it in the fragment of the rank, and in the whole fragment
    bool first = false;                   // no lower rank has these values
  };
  struct Fragment {
    std::vector<Piece> pieces;
    size_t size = 0;
  };
  void cut();
  const Fragment& fragment(int64_t x, size_t rank) const { return fragments_[rank][options_.fragment(x)]; }
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
  std::vector<Ref<ShardedCell>> cut_for_;         // shards of the parameters, for which fragments_ was made
  std::vector<std::vector<Fragment>> fragments_;  // index: rank of the replica, fragment
  std::vector<size_t> whole_sizes_;               // index: fragment
};

}  // namespace weft::dist
