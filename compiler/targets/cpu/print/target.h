// What a target of the printer is: how each word of a kernel is spelled there, as text with {holes}, and the source
// that defines those words. Everything that differs between targets is in this table; print.cc knows none of them.
#pragma once
#include <string>

namespace weft::codegen {

/// Holes: {t} type of the value, {e} one element of it, {p} address, {s} stride, {v} value, {x} text of an operand,
/// {l} position along the lane axis, {k} extent of axis K, {r} reductions, {rd} what they combine by, {w} how many
/// blocks of a reduction go side by side, {n} a number of lanes or vectors.
struct Target {
  const char* name;
  int lanes;           // of a vector; 1: none
  int vectors_a_step;  // vectors that kAcross kernels do in a step, where they keep nothing

  const char* type[5];     // by loop_ir::Type
  const char* wide[5];     // the same in kernels that are one long chain
  const char* memory[8];   // element types in memory by DType: f32 f64 bf16 f16 i64 i32 u8 bool
  const char* head;        // {f}: opens the function
  const char* all;         // {x}, a number, in all lanes
  const char* iota;        // position {l} and those after it
  const char* select;      // {c} ? {a} : {b}
  const char* order_pred;  // a predicate as something that compares as 0 < 1
  const char* long_pred;   // a predicate out of a comparison of 8-byte lanes
  const char* from_pred;   // 0 or 1 in i32

  const char *get_one, *get, *get_strided;
  const char* get_indexed;        // each lane from its own position {x} of a dim of stride {d}
  const char* number;             // {x}, equal in all lanes, as an i64
  const char *check, *check_one;  // {x} where it is in [0, {v})
  const char *put_one, *put, *put_strided;
  // Declares {f}: whether result {p} of {w} operands, {n} axes, goes past the caches; such a store; what follows them.
  const char *far, *put_far, *far_end;
  const char* column;  // {p} combined with {v}

  const char *tiles, *tiles_end;    // around outer points, parts of L: where an operand is transposed; or empty
  const char *turned, *line;        // there, of operand {p}, elements {m}: what copies lines; the one of {n} points
  const char *fetch, *fetch_to;     // {p}, which is read soon, or written if not {f}, into the cache
  const char *along, *along_end;    // a loop over L
  const char *along_wide, *now;     // that of a long chain, and {x} there before anything that comes later
  const char *blocks, *blocks_end;  // the same with reductions
  const char *instances, *instances_end;  // of a kAcross kernel, {n} lanes each
  const char *vectors, *vectors_end;      // those of an instance; empty: it is one
  const char *across, *across_end;        // a loop over K with reductions

  const char* per_vector;                      // declares {x} of type {t} for {n} vectors of an instance
  const char *this_vector, *only_vector;       // {x} where it was declared so
  const char *reduce, *split, *reduce_across;  // declarations of reductions, named r{i}
  const char *take, *take_across;              // a value into r{i}
  const char *result, *result_across;          // {x} = the result of r{i}
};

const Target& cpu();
/// One element at a time, in plain loops: the readable reference.
const Target& cpu_scalar();

/// Preprocessor lines after which another target's prelude may follow in the same file.
const std::string& forget_intrinsics();
/// The source of a target's words: what stands before kernels in a translation unit. It includes nothing.
const std::string& prelude(const Target& target);

}  // namespace weft::codegen
