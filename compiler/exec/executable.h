// Executable: a plan bound to memory. A replay binds addresses, runs a flat list of prebuilt kernel calls and commits;
// it allocates nothing, infers nothing and looks nothing up. On a GPU the calls are queued, or replayed as one graph, and
// nothing is waited for: errors of what runs there show where a value is read.
#pragma once
#include <memory>

#include "compiler/exec/launch_maker.h"
#include "compiler/exec/plan.h"

namespace weft::internal {

/// Arena memory that the plans of one compiled function share; never shrinks.
struct SharedArena {
  Ref<Storage> storage;
  int64_t bytes() const { return storage ? storage->bytes() : 0; }
};

/// What the last replay did.
struct ReplayStats {
  int64_t predicted_peak_bytes = 0;  // see plan.h, with the fresh cell storages of this replay
  int64_t measured_peak_bytes = 0;   // the allocator's high-water mark less what does not belong to the step
  int64_t in_place_writes = 0;       // cells written where they were
  int64_t fresh_writes = 0;          // cells whose storage had another holder, now in new storage
};

/// How a kernel's first result is checked. The one there is, fused_check, stands in verify_fused.h: replays know nothing
/// of references.
struct FusedCheck {
  std::vector<Tensor> (*set_aside)(std::span<const StridedView> in);
  void (*compare)(const FusedKernel& k, const Graph& body, std::span<const Tensor> in,
                  std::span<const StridedView> out);
};

/// The same on a device: launches are compared one after the other with operands and results in host memory.
struct DeviceCheck {
  virtual ~DeviceCheck() = default;
  /// Throws naming the launch and the first element. `in` is from before the launch.
  virtual void compare(const Launch& l, const Node& n, std::span<const Tensor> in, std::span<const Tensor> out) = 0;
  /// One line for reports: how many were compared, how.
  virtual std::string to_string() const = 0;
};

class Executable {
 public:
  /// Computes the plan's constants. Plan and arena must outlive it. With `check` the first result of each fused kernel
  /// is compared with the reference.
  Executable(const Plan& plan, SharedArena& arena, const FusedCheck* check = nullptr);
  /// The same on the device of plan and maker, which must outlive it; `replayed`: as one piece where the device can.
  Executable(const Plan& plan, SharedArena& arena, LaunchMaker& maker, bool replayed,
             std::unique_ptr<DeviceCheck> check = {});
  /// The same for one of several ranks that run one plan: on its own device, with its own cells (by index, of the
  /// plan's types).
  Executable(const Plan& plan, SharedArena& arena, Device device, std::vector<Ref<Cell>> cells);
  Executable(const Executable&) = delete;

  /// One step: results in fresh handles, cells committed. Arguments have the planned types and layouts. If a kernel
  /// throws after the first cell was overwritten, the cells to be written are marked torn; on one of several ranks, if
  /// it throws after the commit point.
  std::vector<Tensor> run(std::span<const Tensor> args);
  /// Whether the last run() passed the plan's commit point: if it then failed, other ranks may have written their cells.
  bool past_commit_point() const { return past_commit_point_; }

  const Plan& plan() const { return plan_; }
  const ReplayStats& last() const { return last_; }
  /// Microseconds of launch `t`, the least of the replays that were timed (the three after the first, and all under
  /// WEFT_TRACE and WEFT_DEBUG); 0 before.
  double launch_us(size_t t) const { return t < launch_us_.size() ? launch_us_[t] : 0; }
  /// Null on the CPU.
  const DeviceCalls* device_calls() const { return device_calls_.get(); }
  /// Null unless the first replay is compared or was.
  const DeviceCheck* device_check() const { return device_check_.get(); }

 private:
  struct Patch {
    void** slot;
    int64_t offset;
  };
  struct Base {  // one moving address and the operands that are seen from it
    void* address = nullptr;
    int32_t begin = 0, end = 0;  // of patches_
  };
  struct Call {
    void (*kernel)(const KernelCall&) = nullptr;
    KernelCall call;
    const FusedKernel* fused = nullptr;     // run in place of `kernel`
    std::unique_ptr<void* []> operands {};  // of the fused kernel; of a device's call, operands then results

    void run() const {
      if (fused) {
        fused->run({operands.get(), call.in, call.out, call.workspace});
      } else {
        kernel(call);
      }
    }
  };
  struct BoundCell {
    int32_t cell;
    int32_t old_base = -1, new_base = -1;
    Ref<Storage> fresh;
  };

  // An argument, or an output block, and the memory that stands for it once its address is known to change, or is not
  // aligned as kernels take it for granted.
  struct Stand {
    void* last = nullptr;  // address in the last run
    Ref<Storage> memory;
  };

  int32_t base_of(const PlanBuffer& b);
  void build_calls(const std::vector<Launch>& launches, std::vector<Call>& calls);
  void run_setup();
  void bind(int32_t base, void* address);
  std::vector<DeviceCall> device_calls_of(const std::vector<Launch>& launches, const std::vector<Call>& calls) const;
  bool misaligned(const Tensor& t) const;  // as the device reads
  std::vector<Ref<Cell>> written_cells() const;
  void launch_on_device();
  void launch_compared();
  void name_memory();
  void bind_arena();
  void bind_cells();
  void bind_argument(size_t i, const Tensor& argument);
  void choose_outputs();
  void bind_output(size_t k);
  /// Copies outputs from where they were computed to where the caller finds them.
  void copy_outputs();
  bool should_stand(const Stand& s, void* address, int64_t bytes) const;
  void launch_all();
  /// At the commit point: waits for all ranks, so that no cell is overwritten unless all have come this far.
  void agree(size_t at);
  /// Times each launch; keeps the times if asked.
  void launch_traced(bool keep);
  /// To WEFT_TRACE and WEFT_DEBUG.
  void tell(size_t at, double start, double us) const;
  /// Microseconds; checks the result too if it is the first of a fused kernel.
  double run_timed(const Call& c, const Launch& l);
  [[noreturn]] void failed(size_t at);
  void commit();
  std::vector<Tensor> make_outputs(std::span<const Tensor> args);

  void build();

  const Plan& plan_;
  SharedArena& arena_;
  const Device device_;
  const std::vector<Ref<Cell>> cells_;
  Ref<Storage> folded_;
  std::vector<StridedView> views_;
  std::vector<Call> setup_, calls_;
  std::vector<std::pair<int32_t, Patch>> collected_;  // (base, patch) while building
  std::vector<Patch> patches_;
  std::vector<Base> bases_;
  std::vector<int32_t> argument_base_, output_base_;
  int32_t arena_base_ = -1;
  std::vector<BoundCell> bound_;
  std::vector<std::vector<Ref<Storage>>> pool_;  // per output block
  std::vector<Storage*> chosen_;                 // of this replay
  std::vector<Stand> argument_stands_, output_stands_;
  int64_t stand_bytes_ = 0;   // of all stands, as accounted
  int64_t reused_bytes_ = 0;  // output blocks that existed before this replay
  bool trace_ = false, debug_ = false;
  LaunchMaker* maker_ = nullptr;
  uintptr_t least_alignment_ = 1;  // LaunchMaker's
  std::vector<Tensor> copies_;     // of captured tensors that do not begin at a multiple of it
  bool replayed_ = false;
  std::unique_ptr<DeviceCalls> device_calls_;  // run in place of calls_
  std::unique_ptr<DeviceCheck> device_check_;
  bool compared_ = false;
  bool named_ = false;
  bool past_commit_point_ = false;
  bool moved_ = true;                  // an address changed since the last replay
  const FusedCheck* check_ = nullptr;  // until the first replay is done
  std::vector<double> launch_us_;
  int replays_ = 0;  // at most kTimedReplays + 1
  ReplayStats last_;
};

}  // namespace weft::internal
