// ComputeCheck: finds a rank that computes wrong bits, even where all ranks have summed them and have equal states.
//
// Before a checked step, the ranks take the places of their neighbours along one mesh dimension: each rank gets the
// rows and the shards of its neighbour and makes the neighbour's part of the step. This run is not kept. Then the ranks
// make the step in their own places. The operands of all collectives and the new state of a place must have equal bits
// in both runs. If a place differs, more runs let other ranks compute it: the bits that most ranks have computed are
// right.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "distributed/plan/report.h"
#include "models/train/rank_cells.h"

namespace weft::train {

class ComputeCheck {
 public:
  /// Checks each `every`-th step but the first of the run. The steps write `cells` on the ranks of `world`, which
  /// outlives this object, and `plan` gets the memory of the state before a step. Prints a sentence and checks nothing
  /// if no rank has a neighbour.
  ComputeCheck(NamedCells cells, int64_t every, const StateCheckOptions& options, dist::World& world,
               dist::PlanReport& plan);

  /// Makes step `step` by `make`, several times if the step is checked; all processes of a job call it. The last call
  /// of `make` is the step of the run. If runs differ, calls `went_back` with the state before the step. If it returns
  /// true, the state was wrong, and this function returns false: the caller makes earlier steps again. Otherwise throws
  /// DataLoss, naming step, host and rank. If `continues` is set and the wrong rank is known, calls `note` with the
  /// sentence instead and makes the step again.
  bool make_step(int64_t step, const std::function<void()>& make, const std::function<void(const std::string&)>& note,
                 const std::function<bool()>& went_back);

 private:
  // The value of a cell before the step.
  struct Kept {
    Tensor value;
    Ref<RemoteValue> remote;
    std::vector<Tensor> shards;
  };
  // The sums of the operands of a place, then the hashes of its cells.
  using Bits = std::vector<uint64_t>;
  // A run of the step in which each rank was `by` places further.
  struct Run {
    int by = 0;
    size_t operands = 0;     // the largest number of operands of a place
    std::vector<Bits> bits;  // index: place
    std::vector<Bits> sums;  // the sums of the operands of the ranks of this process, by rank
  };
  int rank_at(int place, int by) const;
  bool due(int64_t step) const { return size_ > 1 && step > options_.first && step % every_ == 0; }
  void keep();
  void restore();
  void move_shards(int by);
  Run run(int by, const std::function<void()>& make);
  std::string found(const std::vector<Run>& runs, std::set<int>& wrong) const;

  const NamedCells cells_;
  const int64_t every_;
  const StateCheckOptions options_;
  dist::World& world_;
  std::string dim_;  // neighbours differ along this mesh dimension
  int size_ = 1;     // its size; 1: no rank has a neighbour
  std::vector<Kept> kept_;
};

}  // namespace weft::train
