// What of an attention call is compiled into its kernels, and their text: constants and mods that a person can read,
// followed by the bodies (*.inc) that all of them share. Lengths, batch and heads are not part of it.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/attention/mod_text.h"
#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

/// Which kernel of attention.
enum class AttentionPart {
  kForward,
  kMerge,
  kDelta,
  kKeyGrad,
  kQueryGrad,
  kTableGrad,
  kFinishTables,
  kForwardHopper,
  kClassify,
  kKeyGradHopper,
  kQueryGradHopper
};

struct AttentionSpec {
  DType type = kFloat32;
  int dim = 64, value_dim = 64;
  bool tf32 = false;         // f32 products in tf32: a choice of the caller
  bool aligned = true;       // rows begin at multiples of 16 bytes
  bool boxes = true;         // and TMA can find its way from one to the next
  bool blocks = false;       // there is a block mask
  bool classes = false;      // else: its blocks are classified before
  bool scale_first = false;  // a mod reads scores, or the scale is not above 0
  bool dropout = false, places = false, paged = false, wide = false;
  Ref<Graph> score, mask;  // null: none
  std::vector<TensorType> score_tables, mask_tables;

  // The tiles of one kernel.
  int row_tiles = 2, warps = 4, block_n = 64, stages = 2, value_cols = 64;
  bool keep_rows = true;  // the rows' operand stays in registers
  bool split = false, pack_heads = false;

  int block_m() const { return 16 * row_tiles * warps; }
};

/// Bytes of shared memory that a part needs.
int attention_shared_bytes(const AttentionSpec& s, AttentionPart part);

/// The kernel of a part. Throws where a mod cannot be printed, naming op and line.
Kernel attention_kernel(const AttentionSpec& s, AttentionPart part);

namespace internal {
/// The kernel's text with a line in place of each body that all share, as golden texts have it.
std::string attention_text(const AttentionSpec& s, AttentionPart part, bool bodies);
}  // namespace internal

}  // namespace weft::cuda
