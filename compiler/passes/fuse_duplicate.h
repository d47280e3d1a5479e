// Values computed again by the groups that read them, where that moves fewer bytes than writing and reading them: the
// sigmoid of a gelu for its gradient, a softmax's exponentials from the scores, a cast that two groups read, the norm
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

/// Which operands products compute while they pack them.
enum class Operands : uint8_t {
  kNone,
  kCheap,  // those that take fewer operations than keeping them is worth
  kAll,    // also the others: less memory, more time
};

/// Run when groups are final: fills Group::clones.
void duplicate_cheap(Partition& p, Operands operands);

}  // namespace weft::fusion
