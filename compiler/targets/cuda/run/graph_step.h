// GraphStep: the operations of a step. The first run queues them one by one; later runs replay one CUDA graph. If
// addresses changed since the capture, the kernels that use them get new parameters. If that is not possible, the step
// is captured again. In the graph, operations with equal kernels are one launch (batch_operation.h) if no call between
// them touches their memory.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/targets/cuda/run/batch_operation.h"
#include "compiler/targets/cuda/run/operation.h"
#include "framework/cuda/graph_replay.h"
#include "framework/dispatch/device/target.h"

namespace weft::cuda {

/// Counters of a step's runs.
struct GraphCounts {
  int64_t queued = 0;      // runs that queued the operations one by one
  int64_t captures = 0;    // captures that made a new executable graph
  int64_t recaptures = 0;  // captures that updated the executable graph
  int64_t replays = 0;     // runs that launched the graph
  int64_t renamed = 0;     // kernels that got new parameters before a replay
};

class GraphStep {
 public:
  /// Views and operations must outlive it. `bad`: Addresses::bad of each call. `graphs`: false to queue every run.
  GraphStep(Gpu& gpu, std::vector<StepCall> calls, std::vector<int32_t*> bad, bool graphs);
  ~GraphStep();
  GraphStep(const GraphStep&) = delete;

  /// Queues the step on the GPU's stream. `moved`: addresses may differ from the last run's.
  void run(bool moved);
  /// Queues the calls one by one. Calls `before(i)` before call i, and `before(number of calls)` after the last.
  template <class F>
  void run_by_one(const F& before) {
    ++counts_.queued;
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      before(at_);
      enqueue(at_, gpu_.stream());
    }
    before(at_);
  }
  /// Whether runs after the first are replays.
  bool graphs() const { return graphs_; }
  /// The call that was queued last. An exception comes from this call.
  size_t at() const { return at_; }
  const GraphCounts& counts() const { return counts_; }

 private:
  // Calls that are captured together, in this order.
  struct CaptureUnit {
    std::vector<size_t> calls;
    BatchOperation* batch = nullptr;  // null: one by one
    bool operator==(const CaptureUnit& o) const { return calls == o.calls; }
  };
  struct Captured {
    int kernel = 0, kernels = 0;  // its kernels in the graph: index of the first, and number
    bool renameable = false;      // all queued work is kernels of Weft
    std::vector<void*> addresses;
  };
  // The addresses of a call, in `memory`.
  Addresses addresses_of(size_t call, SmallVec<void*, 8>* memory) const;
  void enqueue(size_t call, Stream& stream) const;
  void enqueue(const CaptureUnit& unit, Stream& stream) const;
  void queue_all();
  std::vector<void*> addresses_of(const CaptureUnit& unit) const;
  std::vector<CaptureUnit> make_units() const;
  void find_keys();
  void prepare_units();
  void capture();
  bool rename();

  Gpu& gpu_;
  std::vector<StepCall> calls_;
  std::vector<int32_t*> bad_;
  bool graphs_;
  std::optional<GraphReplay> graph_;
  std::vector<CaptureUnit> units_;
  std::vector<Captured> captured_;                          // index: unit
  std::vector<int> keys_;                                   // call -> a number for its batch_key, -1: none
  std::map<int, std::unique_ptr<BatchOperation>> batches_;  // key: number in keys_
  void* scratch_ = nullptr;                                 // workspaces of a unit of several calls
  int64_t scratch_bytes_ = 0;
  size_t at_ = 0;
  int64_t runs_ = 0;
  int captures_in_a_row_ = 0;  // without a plain replay in between
  GraphCounts counts_;
};

}  // namespace weft::cuda
