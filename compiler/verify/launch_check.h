// Verified launches: the first results of each launch are compared with its ops, run one by one on the CPU from the
// launch's operands. The target says how closely they must agree (Target::agreement).
#pragma once
#include <memory>
#include <span>
#include <string>

#include "framework/dispatch/device/target.h"

namespace weft::internal {

/// The check of one executable. Replays use the interface alone: they link no reference.
class LaunchCheck {
 public:
  virtual ~LaunchCheck() = default;
  /// Whether compare() has something to do. `copy`: the launch copies a value of the node.
  virtual bool wants(const Operation& operation, const Node& n, bool copy) = 0;
  /// Throws kInternal. The message names the kernel, its ops and lines, the first element that differs, and the file of
  /// a reproduction, if the target can write one. All tensors are on the CPU. `in` holds the operands from before the
  /// launch; for a launch on the CPU they have its strides, except slices of much larger memory.
  virtual void compare(const Operation& operation, const Node& n, bool copy, std::span<const Tensor> in,
                       std::span<const Tensor> out) = 0;
  /// One line for reports: how many launches were compared, and how; empty: nothing to say.
  virtual std::string to_string() const = 0;
};

/// On a target that runs synchronously each operation is compared once, else each launch.
std::unique_ptr<LaunchCheck> make_launch_check(Target& target, const PrepareOptions& options);

/// True if launches are checked although nobody asked for it: in tests, unless WEFT_VERIFY is 0.
bool verifies_kernels();

}  // namespace weft::internal
