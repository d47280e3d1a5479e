// GraphStep: the operations of a step, queued one by one at first, then captured and replayed as one CUDA graph. Where
// addresses moved since, the kernels that use them get new parameters;
// where that cannot be, the step is captured again.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "compiler/targets/cuda/run/operation.h"
#include "framework/cuda/graph_replay.h"
#include "framework/dispatch/target.h"

namespace weft::cuda {

/// What the runs of a step did.
struct GraphCounts {
  int64_t queued = 0;      // runs that queued operation after operation
  int64_t captures = 0;    // first captures and those that could not keep the old graph
  int64_t recaptures = 0;  // captures that renamed the old graph's addresses
  int64_t replays = 0;     // runs that were one launch
  int64_t renamed = 0;     // kernels given new parameters, of all replays
};

class GraphStep {
 public:
  /// Views and operations must outlive it. `bad`: Addresses::bad of each call. `graphs`: false queues always.
  GraphStep(Gpu& gpu, std::vector<StepCall> calls, std::vector<int32_t*> bad, bool graphs);
  ~GraphStep();
  GraphStep(const GraphStep&) = delete;

  /// Queues the step on the GPU's stream. `moved`: a slot may have another value than in the last run.
  void run(bool moved);
  /// Queues call after call, with `before(i)` ahead of call i and `before(calls)` after the last.
  template <class F>
  void run_by_one(const F& before) {
    ++counts_.queued;
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      before(at_);
      enqueue(at_, gpu_.stream());
    }
    before(at_);
  }
  /// Whether runs are replays, or will be from the second on.
  bool graphs() const { return graphs_; }
  /// The call that was being queued: what an exception belongs to.
  size_t at() const { return at_; }
  const GraphCounts& counts() const { return counts_; }

 private:
  struct Captured {
    int kernel = 0, kernels = 0;  // of the graph
    bool renameable = false;      // all it queued are kernels of ours
    std::vector<void*> addresses;
  };
  void enqueue(size_t call, Stream& stream) const;
  void queue_all();
  std::vector<void*> addresses_of(const StepCall& call) const;
  void capture();
  bool rename();

  Gpu& gpu_;
  std::vector<StepCall> calls_;
  std::vector<int32_t*> bad_;
  bool graphs_;
  std::optional<GraphReplay> graph_;
  std::vector<Captured> captured_;  // by call
  size_t at_ = 0;
  int64_t runs_ = 0;
  int in_a_row_ = 0;  // captures without a replay in between
  GraphCounts counts_;
};

}  // namespace weft::cuda
