// Values computed again by the groups that read them, where that moves fewer bytes than writing and reading them: the
// sigmoid of a gelu for its gradient, a softmax's exponentials from the scores, a cast that two groups read, the gelu
// that two products read.
#pragma once
#include "compiler/passes/fuse_partition.h"

namespace weft::fusion {

/// Values that groups read and write, clones counted.
class Flow {
 public:
  explicit Flow(const Partition& p);
  /// Distinct values that group i reads from outside.
  const std::vector<Value>& reads(int32_t i) const { return reads_[i]; }
  /// Something outside its group needs it.
  bool needed(Value v) const;
  /// After the clones of group i changed.
  void update(int32_t i);

 private:
  const Partition& p_;
  std::vector<std::vector<Value>> reads_;  // by group
  std::vector<int32_t> count_;             // by value: groups that read it from outside
};

/// Run when groups are final: fills Group::clones. With `products` also those of a product's operands, which are then
/// computed while it packs them.
void duplicate_cheap(Partition& p, bool products);

}  // namespace weft::fusion
