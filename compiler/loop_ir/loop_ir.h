// Loop IR: one generated kernel as data, with loops over a few axes and scalar instructions inside them.
//
// lower_group.h makes a kernel from a group of graph nodes. The printers of the targets (compiler/targets/cpu/print,
// compiler/targets/cuda/print) turn it into source text. interpret.h runs it without a compiler and is the reference
// for both. A kernel has no shapes: extents, strides and most constants of the graph are arguments (Args). So one
// kernel serves every size, and its text is its key in the kernel cache.
//
// A kernel runs one *instance* after another. An instance is a list of segments. A straight segment runs once, a loop
// segment runs along the loop axis. Axes are numbered from the outermost. The mode defines the axes:
// - kRows: axes are outer..., L. The lane axis L is also the loop axis: a loop takes 16 lanes of L at a time. An
//   instance is one outer point. A kernel without kReduce can run on any part [l0, l1) of L.
// - kAcross: axes are outer..., K, L. An instance is one outer point and 16 neighbours along L. A loop takes one
//   step of K at a time, for all 16 lanes at once. The kernel can run on any part of L.
// - kSplit: axes are outer..., L. Like kRows with one loop, but it runs on whole blocks of kReduceBlock along L. Each
//   kReduce writes the result of its block to partial[slot][outer point * blocks + block]. The caller combines them, of
//   several neighbouring outer points together if these are parts of one row (Lowered::joined).
//
// Values are in SSA form; the index of an instruction names its value. The level of an instruction says how often it
// runs:
// - kPoint: once per instance, as one number.
// - kLane: once per instance, for each lane (kAcross only).
// - kStep: once per step of the loop, as one number (kAcross only).
// - kBoth: in the loop, for each lane. In kRows every value that varies along L has this level.
//
// An operand may have a lower level than its instruction, also in kStore, kReduce and kColumn: all lanes or steps then
// use the same number. If all extents are 1, there are no loops and every segment is straight.
//
// Sums use the order of ops/numerics/reduce_order.h along the loop: lane = position % 16, blocks of 1024, then the
// tree. So a fused sum has the same bits as the eager one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "ops/kernels/kernels.h"

namespace weft::loop_ir {

/// The type in which numbers are computed: f32 for f32, bf16 and f16; i32 also for i16, i8 and u8 (wrapped at stores
/// and casts); pred for bool.
enum class Type : uint8_t { f32, f64, i32, i64, pred };

enum class Op : uint8_t {
  kConst,   // a literal in the text: 0, 1, -1, 2, 0.5 or an infinity
  kParam,   // scalar argument param[slot]
  kIndex,   // position along axis `slot`, i64 or i32 (wrapped)
  kLoad,    // operand `slot` at this point, converted to type; with a >= 0 (i64): at position a of its indexed dim
  kCheck,   // a (i64) if 0 <= a < b; otherwise 0, and *bad becomes 1
  kPw,      // pw(a, b, c), a row of ops/kernels/pointwise.inc; all operands have one type (where: c's first is pred)
  kCast,    // a converted to type as ops/kernels cast_copy does
  kRound,   // a (f32) rounded to `dtype` (bf16, f16) and back
  kStore,   // operand `slot` at this point = a, converted to its dtype
  kReduce,  // a reduced by rd along its loop; later segments can use the result. Level kPoint or kLane
  kKeep,    // scratch row `slot` at this position of the loop = a (f32)
  kKept,    // scratch row `slot`, which an earlier loop wrote
  kColumn,  // column[slot][l] = rd(column[slot][l], a): sums over outer points; kRows only
};

enum class Level : uint8_t { kPoint, kLane, kStep, kBoth };

struct Instr {
  Op op = Op::kConst;
  Type type = Type::f32;
  Level level = Level::kPoint;
  int a = -1, b = -1, c = -1;  // operands: instruction indices
  int slot = -1;
  double value = 0;
  kernels::Pw pw{};
  kernels::Rd rd{};
  DType dtype = kFloat32;  // kRound; kCast from or to u8
  std::string note;        // the user's op and source line; not part of the key
};

enum class StrideKind : uint8_t { kZero, kUnit, kAny };

/// One operand in memory: an address, and a stride in elements per axis. Several operands may be views of one tensor.
struct Operand {
  DType dtype = kFloat32;
  bool output = false;
  bool indexed = false;             // has one more dim, whose stride is index_stride[operand]
  std::vector<StrideKind> strides;  // index: axis; kAny strides are run-time arguments
  std::string name;                 // not part of the key
};

struct KernelSegment {
  bool loop = false;
  std::vector<int> instrs;
};

enum class Mode : uint8_t { kRows, kAcross, kSplit };

struct Kernel {
  std::string name;  // e.g. "rms_norm_mul"; not part of the key
  Mode mode = Mode::kRows;
  int axes = 1;
  std::vector<Operand> operands;
  std::vector<Instr> instrs;
  std::vector<KernelSegment> segments;
  int params = 0, kept = 0, columns = 0, partials = 0;
  bool in_cache = false;  // computes or finishes tiles of a product; its results are read again soon

  int outer_axes() const { return mode == Mode::kAcross ? axes - 2 : axes - 1; }
  bool reduces() const;

  /// Readable text: one instruction per line, loops as segments. `notes` adds the notes as comments at the line ends.
  std::string to_string(bool notes = true) const;
  /// Throws kInternal, naming the instruction, if an operand, slot, level or type breaks the rules above.
  void verify() const;
};

/// The arguments of a compiled kernel: the C ABI of generated code, which repeats this declaration.
struct Args {
  void* const* ptr;       // operand -> the element at position 0 of all axes
  const int64_t* stride;  // [operands][axes], elements
  const int64_t* extent;  // [axes]
  const double* param;    // [params]
  float* scratch;  // kRows: [kept][extent of L rounded up to 16]; kAcross: [kept][extent of K][16]; not shared by calls
  void* const* column;          // [columns], each [extent of L] of f32 (f64, i64), initialised by the caller
  void* const* partial;         // [partials], each [outer points][blocks] of f32 (f64, i64)
  const int64_t* index_stride;  // [operands], elements; read for indexed operands only
  int32_t* bad;                 // kCheck sets it to 1; may be null in a kernel without kCheck
};
/// Runs outer points o0, o0 + step, ... below o1 (flattened, row-major) on lanes [l0, l1).
using KernelFunction = void (*)(const Args*, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1);

}  // namespace weft::loop_ir
