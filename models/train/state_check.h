// StateCheck: finds wrong bits in the state of a run, and the rank that has them.
//
// On a mesh the ranks compare hashes of equal shards: copies of data-parallel ranks, tensors that tp does not split. A
// state whose copies are equal is good, and a copy of it is kept. If copies differ, the run goes back to it and makes
// the same steps again, which repeats all bits. Wrong bits reach another rank only in an operand of a collective. So
// the wrong rank is the first rank whose operands differ from its own earlier operands. If none differ, it is the rank
// whose state differs from its own earlier state. If this does not decide, it is the odd one of three or more copies. A
// wrong operand that all ranks have summed leaves equal states, so it is not found.
//
// On one device every N-th step is made twice from one state, and the results are compared.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "distributed/plan/report.h"
#include "models/train/rank_cells.h"

namespace weft::train {

class StateCheck {
 public:
  /// Checks `cells`, all cells that steps write. On a mesh, `world` has the ranks of the step and outlives this object,
  /// and `plan` gets the memory of the kept copy; both are null on one device. Prints a sentence if tensors have no
  /// copies, and checks nothing if no tensor has one.
  StateCheck(NamedCells cells, const StateCheckOptions& options, dist::World* world = nullptr,
             dist::PlanReport* plan = nullptr);
  ~StateCheck();
  StateCheck(const StateCheck&) = delete;

  /// Whether the caller calls passes() after this step. On a mesh `always` asks for a check, as before a save.
  bool due(int64_t step, bool always) const;
  /// Checks the cells after the step of `state`; all processes of a job call it. Returns false if the cells and `state`
  /// are an earlier state again; the caller then makes the steps after it once more. Throws DataLoss, naming host,
  /// rank, tensor and step, when the wrong rank is known, or cannot be found. If `continues` is set and the rank is
  /// known, calls `note` with the sentence instead.
  using Note = std::function<void(const std::string&)>;
  bool passes(TrainState& state, const Note& note);

 private:
  using Operands = std::vector<std::vector<uint64_t>>;  // sums of the operands of collectives, by rank
  // The first cell with wrong bits.
  struct Difference {
    size_t cell = 0;
    std::vector<int> ranks;  // ranks with this shard
    std::set<int> suspects;  // ranks with different shards, in any cell
    size_t others = 0;       // number of further cells
  };
  // A state of which a rank had wrong bits, or the first of two runs of a step.
  struct Suspect {
    int64_t step = 0;
    Difference difference;
    std::vector<uint64_t> hashes;
    Operands operands;
  };
  struct Kept {
    Ref<dist::ShardedCell> shards;  // null on one device
    std::vector<Tensor> values;     // the values of the ranks
  };
  static void add(std::optional<Difference>& all, size_t cell, const std::vector<int>& ranks);
  size_t ranks() const { return world_ ? static_cast<size_t>(world_->size()) : 1; }
  std::optional<Difference> difference(const std::vector<uint64_t>& now) const;
  int wrong_rank(const Suspect& s, const std::vector<uint64_t>& now) const;
  std::string sentence(const Suspect& s, int rank) const;
  bool copies_agree(TrainState& state, const Note& note);
  bool runs_agree(TrainState& state, const Note& note);
  void keep(const TrainState& state);
  bool go_back(TrainState& state, std::optional<Suspect> suspect);

  const NamedCells cells_;
  const StateCheckOptions options_;
  dist::World* const world_;
  bool compares_ = true;
  std::vector<Kept> kept_;          // the kept value of each cell
  std::optional<TrainState> good_;  // the good state that kept_ belongs to
  Operands operands_;               // the operands since then
  std::optional<Suspect> suspect_;  // the state that is made again
  bool repeated_ = false;           // one device: a pair of runs of this step differed
};

}  // namespace weft::train
