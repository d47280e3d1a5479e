// Names for the bits of blocks: two blocks with one name have equal bits, so each pattern is computed once. A value
// inside a block is written as a function of the position in the block plus a constant; comparisons keep only
// differences, and what the analysis found constant drops out. So all blocks on the diagonal of a causal mask are one.
#pragma once
#include <unordered_map>

#include "ops/attention/mask_analysis.h"

namespace weft::internal {

class MaskKeys {
 public:
  explicit MaskKeys(const MaskProgram& program) : program_(program), terms_(program.instrs().size()) {}

  /// The name of the block with this first point, from what analysis.over() just found for it (all of a block's points
  /// inside the lengths). -1: names ran out.
  int32_t name(const MaskAnalysis& analysis, int64_t q0, int64_t kv0);

 private:
  /// base's function of the position, plus constant; base 0 is zero.
  struct Term {
    int32_t base = 0;
    int64_t constant = 0;
    friend bool operator==(const Term&, const Term&) = default;
  };
  struct Key {
    int64_t v[5];
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    size_t operator()(const Key& k) const;
  };

  Term eval(const MaskInstr& in, std::span<const MaskRange> ranges, const MaskRange& own);
  Term opaque(const MaskInstr& in);
  int32_t intern(int64_t what, int64_t a, int64_t b = 0, int64_t c = 0, int64_t d = 0);
  int32_t affine(int64_t per_q, int64_t per_kv);
  /// per_q and per_kv of a base that is affine.
  const std::pair<int64_t, int64_t>* affine_of(int32_t base) const;
  int32_t combine(int64_t what, int32_t a, int32_t b, int64_t sign);

  const MaskProgram& program_;
  std::vector<Term> terms_;
  std::unordered_map<Key, int32_t, Hash> names_;
  std::unordered_map<int32_t, std::pair<int64_t, int64_t>> affine_{{0, {0, 0}}};
};

}  // namespace weft::internal
