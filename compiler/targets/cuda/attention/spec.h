// Compile-time parameters of an attention kernel, and its source: readable constants and mods, followed by the bodies
// (*.inc) that all kernels share. Lengths, batch and heads are run-time parameters.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/attention/mod_text.h"
#include "compiler/targets/cuda/intrinsics/kernel.h"

namespace weft::cuda {

/// The kernels of attention.
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
  bool tf32 = false;         // f32 products in tf32, if the caller chooses it
  bool aligned = true;       // rows start at multiples of 16 bytes
  bool boxes = true;         // and TMA can address them
  bool blocks = false;       // it has a block mask
  bool classes = false;      // otherwise: the blocks of the mask are classified first
  bool scale_first = false;  // a mod reads scores, or the scale is not positive
  bool dropout = false, places = false, paged = false, wide = false;
  Ref<Graph> score, mask;  // null: none
  std::vector<TensorType> score_tables, mask_tables;
  int64_t fixed_tables = 0;  // fixed tables of the score, as in ops/attention/record.h

  // The tiles of one kernel.
  int row_tiles = 2, warps = 4, block_n = 64, stages = 2, value_cols = 64;
  bool keep_rows = true;  // the row operand stays in registers
  bool split = false, pack_heads = false;

  int block_m() const { return 16 * row_tiles * warps; }
};

/// The bytes of shared memory of a part.
int attention_shared_bytes(const AttentionSpec& s, AttentionPart part);

/// The kernel of a part. Throws if a mod cannot be printed, naming the op and its line.
Kernel attention_kernel(const AttentionSpec& s, AttentionPart part);

namespace internal {
/// The text of the kernel, with one line for each shared body unless `bodies`, as in golden texts.
std::string attention_text(const AttentionSpec& s, AttentionPart part, bool bodies);
}  // namespace internal

}  // namespace weft::cuda
