// Loop IR: one generated kernel as data. Between a group of graph nodes (lower_group.h) and the text of a target
// (compiler/targets/cpu/print); interpret.h is its reference. Shape-free: extents, strides and the graph's constants
// are arguments, so one kernel serves every size and its text is the key of the kernel cache.
//
// A kernel walks outer points and, at each, runs an *instance*: segments in order, each either straight (once) or a
// loop over the loop axis. Axes are numbered outermost first.
//   kRows    axes: outer..., L.     The loop axis is the lane axis L: a loop runs along it 16 lanes at a time. An
//   instance
//            is one outer point. A kernel without kReduce may be run on any part [l0, l1) of L.
//   kAcross  axes: outer..., K, L.  An instance is one outer point and 16 neighbours along L; a loop runs along K one
//            step at a time, all 16 lanes at once. It may be run on any part of L.
//   kSplit   axes: outer..., L.     As kRows with one loop, run on whole blocks of kReduceBlock along L: each kReduce
//            writes its block's result to partial[slot][outer point * blocks + block]; the caller combines them.
// Values are in SSA form: an instruction is named by its index. It is computed
//   once per instance as one number (kPoint), once per instance for each lane (kLane: only kAcross), in a loop as one
//   number (kStep: only kAcross), or in a loop for each lane (kBoth; in kRows everything that varies along L).
// An operand may be of a lower level than its instruction (a number where lanes are wanted is the same in all of them),
// also of kStore, kReduce and kColumn. Without loops (all extents 1) everything is straight.
// Sums run in the order of ops/numerics/reduce_order.h: along the loop, logical lane = position % 16, blocks of 1024,
// the tree; so a fused sum has the bits of the eager one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "ops/kernels/kernels.h"

namespace weft::loop_ir {

/// What numbers are computed as: f32 for f32, bf16 and f16; i32 also for u8 (wrapped at stores and casts); pred for
/// bool.
enum class Type : uint8_t { f32, f64, i32, i64, pred };

enum class Op : uint8_t {
  kConst,   // value, written into the text: 0, 1, -1, 2, 0.5, infinities
  kParam,   // scalar argument param[slot]
  kIndex,   // position along axis `slot`, i64 or i32 (wrapped)
  kLoad,    // operand `slot` at this point, converted to type; with a >= 0 (i64) also at position a of its indexed dim
  kCheck,   // a (i64) where 0 <= a < b; else 0, and *bad becomes 1
  kPw,      // pw(a, b, c), a row of ops/kernels/pointwise.inc; operands have one type (where: c's first is pred)
  kCast,    // a converted to type as ops/kernels cast_copy does
  kRound,   // a (f32) rounded to `dtype` (bf16, f16) and back
  kStore,   // operand `slot` at this point = a, converted to its dtype
  kReduce,  // a reduced by rd along the loop it stands in; of use in later segments. Has level kPoint or kLane
  kKeep,    // scratch row `slot` at this position of the loop = a (f32)
  kKept,    // scratch row `slot`, written by an earlier loop
  kColumn,  // column[slot][l] = rd(column[slot][l], a): sums over outer points. kRows only
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
  std::string note;        // the user's op and line; not part of the key
};

enum class StrideKind : uint8_t { kZero, kUnit, kAny };

/// How the kernel sees memory: an address and a stride per axis, in elements. One tensor may be several operands.
struct Operand {
  DType dtype = kFloat32;
  bool output = false;
  bool indexed = false;             // has one more dim, whose stride is index_stride[operand]
  std::vector<StrideKind> strides;  // by axis; kAny ones are run-time arguments
  std::string name;                 // not part of the key
};

struct Segment {
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
  std::vector<Segment> segments;
  int params = 0, kept = 0, columns = 0, partials = 0;
  bool in_cache = false;  // makes or finishes tiles of a product: results are read again soon

  int outer_axes() const { return mode == Mode::kAcross ? axes - 2 : axes - 1; }
  bool reduces() const;

  /// Readable text, one line an instruction, segments as loops; with notes as comments at line ends if asked.
  std::string to_string(bool notes = true) const;
  /// Throws kInternal naming the instruction if an operand, slot, level or type breaks the rules above.
  void verify() const;
};

/// What a compiled kernel is called with (the C ABI of generated code, which repeats this declaration).
struct Args {
  void* const* ptr;       // by operand, the element at position 0 of all axes
  const int64_t* stride;  // [operands][axes], elements
  const int64_t* extent;  // [axes]
  const double* param;    // [params]
  float* scratch;         // kRows: [kept][extent of L rounded up to 16]; kAcross: [kept][extent of K][16]; one per call
  void* const* column;    // [columns], each [extent of L] of f32 (f64, i64), initialised by the caller
  void* const* partial;   // [partials], each [outer points][blocks] of f32 (f64, i64)
  const int64_t* index_stride;  // [operands], elements; read for indexed ones
  int32_t* bad;                 // set to 1 by kCheck; may be null without one
};
/// Runs outer points o0, o0 + step, ... below o1 (flattened, row-major) on lanes [l0, l1).
using Fn = void (*)(const Args*, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1);

}  // namespace weft::loop_ir
