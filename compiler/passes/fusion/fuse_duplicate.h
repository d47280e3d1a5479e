// Groups recompute values that they read, if that moves fewer bytes than writing and reading the values. Examples: the
// sigmoid of a gelu for its gradient, the exponentials of a softmax from the scores, a cast that two groups read, a
// norm that two products read.
#pragma once
#include "compiler/passes/fusion/fuse_partition.h"

namespace weft::fusion {

/// The values that groups read and write, including clones.
class Flow {
 public:
  explicit Flow(const Partition& p);
  /// Distinct values that group i reads from outside.
  const std::vector<Value>& reads(int32_t i) const { return reads_[i]; }
  /// Whether anything outside its group needs the value.
  bool needed(Value v) const;
  /// Call it after the clones of group i change.
  void update(int32_t i);

 private:
  const Partition& p_;
  std::vector<std::vector<Value>> reads_;  // index: group
  std::vector<int32_t> count_;             // value -> number of groups that read it from outside
};

/// Which operands products compute while they pack them.
enum class ComputedOperands : uint8_t {
  kNone,
  kCheap,  // operands that need fewer operations than keeping them is worth
  kAll,    // all: less memory, more time
};

/// Fills Group::clones. Call it when the groups are final.
void duplicate_cheap(Partition& p, ComputedOperands operands);

}  // namespace weft::fusion
