// Executable: a plan bound to memory. A replay binds addresses, runs a flat list of prepared calls and commits cells.
// It allocates nothing, infers nothing and looks nothing up. Where the target queues work, the replay does not wait
// for it: errors of the device are thrown where a value is read.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "compiler/exec/plan/plan.h"
#include "compiler/verify/launch_check.h"
#include "framework/base/tracer.h"

namespace weft::internal {

/// The arena that the plans of one compiled function share. It never shrinks.
struct SharedArena {
  Ref<Storage> storage;
  int64_t bytes() const { return storage ? storage->bytes() : 0; }
};

/// Counts of the last replay.
struct ReplayStats {
  int64_t predicted_peak_bytes = 0;  // as in plan.h, with the new cell storage of this replay
  int64_t measured_peak_bytes = 0;   // the allocator's peak, without memory that does not belong to the step
  int64_t in_place_writes = 0;       // cells written in place
  int64_t fresh_writes = 0;          // cells that got new storage, because another handle held the old one
};

struct ExecutableOptions {
  Target* target = nullptr;  // null: the target registered for the plan's device
  bool captured = true;      // ReplayOptions::captured
  std::unique_ptr<LaunchCheck> check = {};
  /// One of several ranks that run the plan: its device, and its cells by index, with the types of the plan.
  struct RankCells {
    Device device;
    std::vector<Ref<Cell>> cells;
  };
  std::optional<RankCells> rank = {};
  std::function<bool()> holds = {};  // ReplayOptions::holds
};

class Executable {
 public:
  /// Computes the plan's constants. The plan and the arena must outlive it.
  Executable(const MemoryLayout& plan, SharedArena& arena, ExecutableOptions options = {});
  Executable(const Executable&) = delete;

  /// Runs one step: commits the cells and returns the results in new handles. Arguments have the planned types and
  /// layouts. If a kernel throws, the cells that were overwritten become torn; the others keep their values. A rank
  /// does not commit: when all ranks have ended, call commit() or discard().
  std::vector<Tensor> run(std::span<const Tensor> args);
  /// Gives the cells of a rank their new values. Throws nothing.
  void commit();
  /// The step failed after this rank had run it: the cells that the rank has overwritten become torn. No effect if this
  /// rank's run() threw.
  void discard();

  const ReplayStats& last() const { return last_; }
  /// Microseconds of launch `t`: the least of the timed replays (the three after the first, and all that are traced or
  /// under WEFT_DEBUG); 0 before.
  double launch_us(size_t t) const { return t < launch_us_.size() ? launch_us_[t] : 0; }
  /// The next replay runs its launches one by one, and counts the work of those whose plan is a bound (count.h).
  void count_next() { counting_ = true; }
  /// The work of launch `t` in the last replay that counted; null: not counted.
  const Cost* done(size_t t) const { return t < done_.size() && done_[t] ? &*done_[t] : nullptr; }
  const Replay& replay() const { return *replay_; }
  /// Null if nothing is compared.
  const LaunchCheck* check() const { return check_.get(); }

 private:
  struct Patch {
    void** slot;
    int64_t offset;
  };
  struct MovableBase {  // one address that may move, and the operands relative to it
    void* address = nullptr;
    int32_t begin = 0, end = 0;  // range of patches_
  };
  struct BoundCell {
    int32_t cell;
    int32_t old_base = -1, new_base = -1;
    bool owned = false;  // during a run: the step writes the cell
    Tensor held;         // during a run: the value of a cell that the step only reads
    Tensor fresh;        // the new value, where it cannot be written in place
  };

  // A fixed buffer for an argument or an output block whose address keeps changing or is not aligned.
  struct StagingBuffer {
    void* last = nullptr;  // address in the last run
    Ref<Storage> memory;
  };

  void build();
  int32_t base_of(const MemoryBlock& b);
  std::vector<StepCall> build_calls(const std::vector<Launch>& launches, std::vector<void*>& workspaces);
  void run_setup(std::span<const StepCall> calls);
  void bind(int32_t base, void* address);
  bool misaligned(const Tensor& t) const;
  Tensor aligned(const Tensor& t) const;
  void copy(void* to, const void* from, int64_t bytes) const;
  void copy_extent(const Tensor& from, void* to) const;
  std::vector<Ref<Cell>> written_cells() const;
  /// Owns the cells that the step writes, and holds the values of the cells that it reads, until free_cells(): other
  /// threads may use the same cells. The cells of a rank are its own.
  void take_cells();
  void take(BoundCell& b);
  void free_cells();
  /// The position in bound_ of the first cell that cannot be bound: without a value, or misaligned.
  std::optional<size_t> unready_cell() const;
  void make_ready(Cell& c) const;
  const Tensor& value_of(const BoundCell& b) const { return b.held.defined() ? b.held : cells_[b.cell]->value; }
  void name_memory();
  void bind_arena();
  void bind_cells();
  void bind_argument(size_t i, const Tensor& argument);
  void choose_outputs();
  void bind_output(size_t k);
  /// Copies outputs from their staging buffers to the memory that the caller gets.
  void copy_outputs();
  bool needs_staging(const StagingBuffer& s, void* address, int64_t bytes) const;
  void launch();
  /// Runs all launches, and counts each before it runs.
  void run_counted();
  /// Runs all launches with a time for each.
  void run_timed();
  /// Compares each launch that the check selects.
  void run_checked(Replay& replay, const std::vector<Launch>& launches, std::span<const StepCall> calls);
  /// The events of all launches, without times.
  void describe_launches();
  /// Launch `t` begins now, if there is one.
  void begin_launch(size_t t);
  /// Launch `t` has ended, here or on the device: reports it to the trace and to WEFT_DEBUG.
  void report(size_t t, int64_t begin_ns, int64_t end_ns) const;
  /// Reports the launch that failed: the last line of the step, and the last event of the trace, which is written now.
  void report_failure(size_t t) const;
  [[noreturn]] void failed(size_t at);
  /// The cells that launches up to `at` overwrite become torn; with `all`, each cell that the step writes.
  void tear(size_t at, bool all);
  std::vector<Tensor> make_outputs(std::span<const Tensor> args);

  const MemoryLayout& plan_;
  SharedArena& arena_;
  const Device device_;
  const std::vector<Ref<Cell>> cells_;
  const bool rank_;  // true: one rank of several, and its owner commits
  Target& target_;
  const TargetLimits limits_;
  Ref<Storage> folded_;
  std::vector<StridedView> views_;  // views of all calls; a run reads the addresses here
  std::vector<void*> setup_workspaces_, workspaces_;
  std::vector<StepCall> calls_;
  std::vector<std::pair<int32_t, Patch>> collected_;  // (base, patch) while building
  std::vector<Patch> patches_;
  std::vector<MovableBase> bases_;
  std::vector<int32_t> argument_base_, output_base_;
  int32_t arena_base_ = -1;
  std::vector<BoundCell> bound_;
  std::vector<size_t> gate_order_;               // order of bound_
  std::vector<std::vector<Ref<Storage>>> pool_;  // per output block
  std::vector<Storage*> chosen_;                 // storage of this replay
  std::vector<StagingBuffer> argument_staging_, output_staging_;
  int64_t staging_bytes_ = 0;  // size of all staging buffers, as accounted
  int64_t reused_bytes_ = 0;   // output blocks that existed before this replay
  bool debug_ = false;
  bool traced_ = false;                   // this replay's launches are traced
  std::vector<TraceEvent> descriptions_;  // index: launch; empty before the first traced replay
  int64_t begin_ns_ = 0;                  // start of the launch that runs
  int64_t device_ns_ = 0;                 // the end of the last traced launch of a device
  std::vector<Tensor> copies_;            // copies of captured tensors that the target needs aligned
  const bool captured_;
  std::unique_ptr<Replay> replay_;
  const std::function<bool()> holds_;
  std::unique_ptr<LaunchCheck> check_;
  bool checked_ = false;  // the first replay is done, and compared if there is a check
  bool named_ = false;
  bool past_commit_point_ = false;  // always true without a commit point
  bool ended_ = false;              // a rank's run has ended, and is neither committed nor discarded
  bool moved_ = true;               // an address changed since the last replay
  std::vector<double> launch_us_;
  bool counting_ = false;                  // the next replay counts
  std::vector<std::optional<Cost>> done_;  // index: launch; empty before the first replay that counts
  int replays_ = 0;                        // at most kTimedReplays + 1
  ReplayStats last_;
};

}  // namespace weft::internal
