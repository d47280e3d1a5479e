// The packed-panel product that gemm and grouped_gemm use, for kernels with their own loops (attention): pack both
// operands, then run blocks of them. An element's sum runs over k in ascending order (steps of kr, each inside one
// instruction), in every block, panel or edge: its bits depend only on the operands and the instruction set. Keep this
// small: the per-instruction-set sources include it.
#pragma once
#include <cstdint>

namespace weft::kernels {

/// The most rows of a product that is computed without packing (few_rows in gemm.cc). 32 rows of 4096 to 11008 terms
/// took 0.9 to 1.25 of the time with packing (AVX2).
inline constexpr int kMostFewRows = 16;

/// Element types that panels are packed from and results are written as.
enum class PanelType : int { f32, bf16, f16 };

/// One operand to pack: `lines` rows of a or columns of b, each of k elements, with any two strides in elements.
struct GemmPack {
  const void* from;
  PanelType type;
  int64_t line_stride, k_stride;
  int64_t lines, k;
  /// Panel p (mr or nr lines, the last padded with zeros) is written to `to` + p * panel_stride bytes; k is padded with
  /// zeros to a multiple of kr. Write a later piece of k mr (nr) * size bytes further for each k before it.
  void* to;
  int64_t panel_stride;
};

/// Memory that will be used soon: rows of `bytes`, `line` bytes apart.
struct GemmTouch {
  const char* at;
  int64_t line, bytes, rows;
};

/// One block: to[m, n] (rows to_ld elements apart) = from[m, n] + a[m, k] b[k, n], with packed a and b.
struct GemmBlock {
  const void *a, *b;
  int64_t a_stride, b_stride;  // bytes between panels
  /// If not 0: a is not packed. It has the panels' own type, contiguous k, and rows this many bytes apart.
  int64_t a_line;
  int64_t m, n, k;
  /// Partial sums, or null for zeros. They are whole panels: rows padded to mr, columns to nr.
  const float* from;
  int64_t from_ld;
  void* to;
  int64_t to_ld;
  PanelType to_type;
  bool to_whole;  // `to` has room for whole panels, as `from` has; its padding is overwritten with undefined values
  bool stream;    // whole, aligned lines of `to` bypass the caches: it is large and in none of them
  /// Prefetched to the second-level cache while the block is computed, as far as time allows.
  const GemmTouch* touches = nullptr;
  int num_touches = 0;
};

/// The functions for one element type and instruction set; all run on the calling thread.
struct GemmKernel {
  int mr, nr;  // lines in a panel of a and of b
  int kr;      // k is padded to a multiple of it
  // The k of a block; a multiple of kr. Sums are read and written once per block, so deep blocks save time, but blocks
  // of both operands must stay in the second-level cache.
  int kc;
  int size;  // bytes of a packed element
  /// Rows and k that `run` reads of an unpacked a are rounded up to multiples of these.
  int direct_m, direct_k;
  PanelType direct_type;  // type of an unpacked a
  // Products of up to this many rows are computed without packing, and a row has the bits that it has alone: at most
  // kMostFewRows. Not timed: the bits of a program depend on the instruction set alone.
  int few_rows;
  void (*pack_a)(const GemmPack&);
  void (*pack_b)(const GemmPack&);
  void (*run)(const GemmBlock&);
};

/// The kernel for operands of this type: bf16 on AMX tiles if the machine has them and WEFT_ISA allows, otherwise as
/// f32.
const GemmKernel& gemm_kernel(PanelType type);

#define WEFT_DECLARE_GEMM(isa)         \
  namespace isa {                      \
  const GemmKernel& f32_gemm_kernel(); \
  }
WEFT_DECLARE_GEMM(baseline)
WEFT_DECLARE_GEMM(avx2)
WEFT_DECLARE_GEMM(avx512)
#undef WEFT_DECLARE_GEMM
namespace amx {
const GemmKernel& bf16_gemm_kernel();
}

}  // namespace weft::kernels
