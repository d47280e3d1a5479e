// Names for the bits of blocks: two blocks with the same name have equal bits, so each pattern is computed once. A
// value inside a block is written as a function of the position in the block plus a constant. Comparisons keep only
// differences, and values that the analysis found constant are dropped. So all blocks on the diagonal of a causal mask
// have the same name.
#pragma once
#include "ops/attention/masks/mask_analysis.h"

namespace weft::internal {

class MaskKeys {
 public:
  explicit MaskKeys(const MaskProgram& program);

  /// The name of the block that starts at this point, from the result of the last analysis.over() (all of the block's
  /// points inside the lengths). -1: no other block can be known to be equal.
  int32_t name(const MaskAnalysis& analysis, int64_t q0, int64_t kv0);

 private:
  /// base's function of the position, plus constant; base 0 is zero.
  struct BaseTerm {
    int32_t base = 0;
    int64_t constant = 0;
  };
  struct FunctionKey {
    int64_t v[5];
    friend bool operator==(const FunctionKey&, const FunctionKey&) = default;
  };
  /// Facts about a base's function: its key, its slopes if it is affine, and its dependence on absolute positions.
  struct FunctionBase {
    FunctionKey key;
    int64_t per_q = 0, per_kv = 0;
    bool affine = false;
    uint8_t ties = 0;  // Tie
  };
  enum Tie : uint8_t { kMovesWithQ = 1, kMovesWithKv = 2, kReadsAtQ = 4, kReadsAtKv = 8 };

  BaseTerm eval(const MaskInstr& in, std::span<const MaskRange> ranges, const MaskRange& own);
  BaseTerm opaque(const MaskInstr& in);
  int32_t intern(const FunctionKey& key, uint8_t ties);
  int32_t affine(int64_t per_q, int64_t per_kv);
  int32_t combine(int32_t a, int32_t b, int64_t sign);
  uint8_t ties(const BaseTerm& t) const { return bases_[t.base].ties; }

  const MaskProgram& program_;
  std::vector<BaseTerm> terms_;
  std::vector<FunctionBase> bases_;
  std::vector<int32_t> slots_;  // open addressing over bases_; -1 is free
  int32_t at_q_, at_kv_;        // bases of q and kv
};

}  // namespace weft::internal
