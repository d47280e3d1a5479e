// LaunchMaker: what differs between kinds of devices when a plan is made and run. It prepares each launch for its types
// and layouts, says what that needs, and on devices other than the CPU runs the launches.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "compiler/exec/plan.h"

namespace weft::internal {

/// What load() did.
struct LoadReport {
  int64_t kernels = 0;   // distinct texts of this plan
  int64_t compiled = 0;  // of these, by a compiler now
  int64_t from_disk = 0;
  double ms = 0;
  std::vector<std::string> notes;  // what does not work as it could: no compiler, no cache folder
};

struct LoadOptions {
  std::string cache = {};         // folder of compiled kernels, or "off"; empty: the default
  bool faults_are_errors = true;  // what a compiler does not take is an error
};

/// Thrown where a body cannot be one kernel for the layouts that the plan has.
struct CannotLower {
  Ref<Graph> body;
  std::string why;
};

/// One launch of an executable and the slots that hold its addresses; the slots stay, their values may change.
struct DeviceCall {
  const Launch* launch = nullptr;
  std::span<void*const> in, out;
  void* const* workspace = nullptr;  // null: none
  const Node* node = nullptr;        // whose line and scope it has
};

/// Runs the launches of an executable on a device that works beside the host.
class DeviceCalls {
 public:
  virtual ~DeviceCalls() = default;
  /// Queues the calls; `moved`: a slot may have another value than in the last run.
  virtual void run(bool moved) = 0;
  /// The same call by call, which takes these microseconds each; waits.
  virtual void run_timed(std::span<double> us) = 0;
  /// Queues call by call, with `before(i)` ahead of call i and `before(calls)` after the last.
  virtual void run_by_one(const std::function<void(size_t)>& before) = 0;
  /// The call that run() was queuing: what an exception belongs to.
  virtual size_t at() const = 0;
  /// Runs are dearer where an address is another than in the last one: what moves is better copied to one place.
  virtual bool wants_fixed_addresses() const = 0;
  /// Queues a copy of bytes that lie together, on the device.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  /// Bytes of which every address is a multiple.
  virtual int64_t alignment() const { return 16; }
  /// One line for reports: how often what was done.
  virtual std::string to_string() const = 0;
};

class LaunchMaker {
 public:
  virtual ~LaunchMaker() = default;
  /// Bytes that buffers start on.
  virtual int64_t alignment() const { return 64; }
  /// Prepares `l`, whose op, node and places are set; returns the bytes of workspace it needs. Throws CannotLower for a
  /// fused node that cannot be one launch.
  virtual int64_t prepare(Launch& l, const Graph& g, std::span<const StridedView> in,
                          std::span<const StridedView> out) = 0;
  /// The prepared launch may write result `out` over operand `in`, which lies alike.
  virtual bool may_overwrite(const Launch& l, int32_t in, int32_t out) const = 0;
  /// Results of such a node may lie spread over a larger buffer, their last dim dense.
  virtual bool may_spread(const Node& n) const = 0;
  /// What cells and captured tensors must begin at a multiple of; and the same tensor, of the same strides, in memory that
  /// does. (Arguments: DeviceCalls::alignment.)
  virtual int64_t least_alignment() const { return 1; }
  virtual Tensor aligned(const Tensor& t) { return t; }
  /// What lies at an address of the device, for its message of "out of memory".
  virtual void set_name(Device device, const void* p, const std::string& name) {
    static_cast<void>(device), static_cast<void>(p), static_cast<void>(name);
  }
  /// Compiles what the prepared launches need.
  virtual LoadReport load(const LoadOptions& options) = 0;
  /// Null: launches are called, as on the CPU. `writes`: the cells that are torn if what was queued goes wrong.
  virtual std::unique_ptr<DeviceCalls> calls(Device device, std::vector<DeviceCall> calls, bool replayed,
                                             std::vector<Ref<Cell>> writes) {
    static_cast<void>(device), static_cast<void>(calls), static_cast<void>(replayed), static_cast<void>(writes);
    return {};
  }
};

}  // namespace weft::internal
