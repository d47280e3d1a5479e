// Operations: the one cache of prepared operations, for eager calls and compiled steps on every device. Two nodes with
// the same op, attributes (of a fused group: equal bodies with the same source lines), layouts, alignment, device and
// options share one operation in a process.
#pragma once
#include <unordered_map>
#include <vector>

#include "framework/dispatch/device/target.h"

namespace weft::internal {

/// Counts of the cache since the process began.
struct OperationCounts {
  int64_t kept = 0, found = 0, prepared = 0;
};
OperationCounts operation_counts();
/// Keeps at most this number of operations and drops the least recently used first. Users of an operation hold it
/// themselves. About 512 unused fused groups stay, the last used ones.
void set_operation_capacity(int64_t operations);
/// Drops the operations of one kind of device, because its driver is unloaded or a test changes how they are prepared.
void forget_operations(DeviceType type);

/// The operations of one step, or of eager calls with one set of options.
class Operations {
 public:
  Operations(Target& target, Device device, const PrepareOptions& options)
      : target_(target), device_(device), options_(options) {}

  Target& target() const { return target_; }
  Device device() const { return device_; }
  const PrepareOptions& options() const { return options_; }
  /// The operation for operands and results of these layouts; throws as Target::prepare. `address_bits` is the bitwise
  /// or of their addresses: only the largest power of two that divides all of them counts, up to
  /// TargetLimits::address_alignment.
  std::shared_ptr<Operation> get(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                                 std::span<const StridedView> out, uint64_t address_bits);

 private:
  uint64_t hash_of(const Ref<Graph>& body);

  Target& target_;
  const Device device_;
  const PrepareOptions options_;
  std::unordered_map<const Graph*, uint64_t> hashes_;
  std::vector<Ref<Graph>> hashed_;  // keeps the bodies alive while their addresses are keys
};

}  // namespace weft::internal
