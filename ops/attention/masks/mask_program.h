// A traced mask as a short linear program over the indices b, h, q, kv and the tables that it reads. Block masks are
// analysed in this form (mask_range.h), and the bits of a block are computed from it. Equal instructions are merged;
// instructions come after their operands.
#pragma once
#include <memory>

#include "framework/ir/graph.h"
#include "ops/attention/mods/mod.h"
#include "ops/kernels/attention/block_mask.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {

/// Bits of MaskInstr::deps: the indices that a value depends on.
enum MaskDep : uint8_t { kDepB = 1, kDepH = 2, kDepQ = 4, kDepKv = 8 };

/// One captured tensor, and its strides as the mask uses it.
struct MaskTable {
  Tensor tensor;  // keeps the memory
  StridedView view;
};

struct MaskInstr {
  enum MaskInstrKind : uint8_t { kIndex, kConst, kPointwise, kCast, kLookup };
  MaskInstrKind kind = kConst;
  uint8_t deps = 0;                        // MaskDep
  DType dtype = kBool;                     // dtype of the result
  DType in_dtype = kBool;                  // kPointwise, kCast: of the operands (where: of its last two)
  kernels::Pw op{};                        // kPointwise
  int32_t index = 0;                       // kIndex: 0 to 3 for b, h, q, kv; kLookup: its table
  SmallVec<int32_t, 3> args;               // instructions; kLookup: one for each dim that an index selects
  SmallVec<int64_t, 3> extents, strides;   // kLookup: of these dims, in elements
  int64_t offset = 0;                      // kLookup: elements from the table's first element
  alignas(8) unsigned char value[8] = {};  // kConst
  kernels::PwFn fn = nullptr;              // kPointwise
  SourceLine line;

  /// The value of a kConst of an integer dtype or bool.
  int64_t integer() const;
};

/// Rows [q0, q0 + rows) x keys [kv0, kv0 + cols) of one batch entry and head.
struct MaskTile {
  int64_t b = 0, h = 0, q0 = 0, kv0 = 0, rows = 0, cols = 0;
};

class MaskProgram {
 public:
  /// Traces and lowers; throws, naming the op and the user's line, if a mask cannot be lowered.
  explicit MaskProgram(const MaskMod& mask);
  /// Lowers a traced mask.
  explicit MaskProgram(const Body& body);

  /// A program with the same bits for batch entries below `batch` and so on, computed in i32 if all values are known to
  /// fit.
  MaskProgram narrowed(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) const;

  std::span<const MaskInstr> instrs() const { return instrs_; }
  std::span<const MaskTable> tables() const { return tables_; }
  /// The instruction whose value is the mask.
  int32_t output() const { return output_; }
  /// MaskDep bits of the result: without kDepB it is the same for every batch entry, and so on.
  uint8_t deps() const { return instrs_[output_].deps; }

  /// Writes the mask of these points: a row of bits every row_bytes bytes, least bit first; bits beyond cols are 0.
  /// Every value is computed for every point, so an index outside its table throws OutOfRange with table and point.
  void fill(const MaskTile& t, uint8_t* bits, int64_t row_bytes) const;
  /// fill() as a hook for kernels; valid as long as this program.
  kernels::MaskFill fill_hook() const;

 private:
  friend class MaskLowering;
  friend class MaskNarrowing;
  MaskProgram() = default;
  struct MaskRun;
  std::vector<MaskInstr> instrs_;
  std::vector<MaskTable> tables_;
  int32_t output_ = 0;
};

}  // namespace weft::internal
