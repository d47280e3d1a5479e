// The tables of the CPU printer: how it spells each construct of a kernel, as text with {holes}, and the source that
// defines the intrinsics in that text. There are two tables, cpu() and cpu_scalar(). All
// differences between them are here; print.cc has none. The CUDA printer (compiler/targets/cuda/print) does not use
// them.
#pragma once
#include <string>

namespace weft::codegen {

/// Holes: {t} type of the value, {e} type of one element of it, {p} address, {s} stride, {v} value, {x} text of an
/// operand, {l} position along the lane axis, {k} extent of axis K, {r} reductions, {rd} the type that combines them,
/// {w} number of blocks of a reduction at once, {n} number of lanes or vectors.
struct PrintTarget {
  const char* name;
  int lanes;           // per vector; 1: no vectors
  int vectors_a_step;  // vectors per step of kAcross kernels that keep no scratch rows

  const char* type[5];     // index: loop_ir::Type
  const char* wide[5];     // the same, in kernels that are one long chain
  const char* memory[10];  // element types in memory by DType: f32 f64 bf16 f16 i64 i32 i16 i8 u8 bool
  const char* head;        // {f}: opens the function
  const char* all;         // {x}, a number, in all lanes
  const char* iota;        // position {l} and the following ones
  const char* select;      // {c} ? {a} : {b}
  const char* order_pred;  // a predicate as a value that orders 0 < 1
  const char* long_pred;   // a predicate from a comparison of 8-byte lanes
  const char* from_pred;   // 0 or 1 in i32

  const char *get_one, *get, *get_strided;
  const char* get_indexed;        // each lane from its own position {x} along a dim of stride {d}
  const char* number;             // {x}, which is equal in all lanes, as an i64
  const char *check, *check_one;  // {x} if it is in [0, {v})
  const char *put_one, *put, *put_strided;
  // Declares {f}: whether result {p} of {w} operands over {n} axes is written past the caches; such a store; the code
  // after all such stores.
  const char *far, *put_far, *far_end;
  const char* column;  // {p} combined with {v}

  const char *tiles, *tiles_end;          // around outer points and parts of L, if an operand is transposed; or empty
  const char *transposed, *line;          // the copied tile of operand {p}, elements {m}; the tile's line at {n} points
  const char *fetch, *fetch_to;           // {p}, which is read soon, or written soon unless {f}: prefetch it
  const char *along, *along_end;          // a loop over L
  const char *along_wide, *now;           // a loop over L in a long chain; {x}, computed before the code that follows
  const char *blocks, *blocks_end;        // a loop over L with reductions
  const char *instances, *instances_end;  // the instances of a kAcross kernel, {n} lanes each
  const char *vectors, *vectors_end;      // the vectors of an instance; empty: an instance is one vector
  const char *across, *across_end;        // a loop over K with reductions

  const char* per_vector;                      // declares {x} of type {t} for {n} vectors of an instance
  const char *this_vector, *only_vector;       // {x}, if it is declared per vector
  const char *reduce, *split, *reduce_across;  // declarations of reductions, named r{i}
  const char *take, *take_across;              // adds a value to r{i}
  const char *result, *result_across;          // {x} = the result of r{i}
};

const PrintTarget& cpu();
/// One element at a time, in simple loops: the readable reference.
const PrintTarget& cpu_scalar();

/// Preprocessor lines that undefine the macros of a prelude, so that another target's prelude can follow in the same
/// file.
const std::string& undef_intrinsics();
/// The source of the intrinsics of a target: it precedes the kernels in a translation unit and includes nothing.
const std::string& prelude(const PrintTarget& target);

}  // namespace weft::codegen
