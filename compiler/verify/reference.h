// The reference for an executable: the same graph node by node through eager kernels, without committing anything.
#pragma once
#include <functional>

#include "framework/dispatch/interpreter.h"

namespace weft::internal {

/// Called with each node's operands and results; returning false ends the evaluation.
using Visitor = std::function<bool(int32_t id, std::span<const Tensor> in, std::span<const Tensor> out)>;

/// Evaluates a graph without grad nodes. Cells are read and left alone; side effects are left out. Results own their
/// memory.
Evaluation evaluate(const Graph& g, std::span<const Tensor> args, const Visitor& visit = {});

/// The first flat position whose bits differ, any NaN agreeing with any; -1: there is none. Types are equal.
int64_t first_difference(const Tensor& got, const Tensor& want);
/// "[1, 0]": the indices of a flat position.
std::string index_text(int64_t flat, const Shape& shape);
/// The element at a flat position, with nine digits.
std::string element_text(const Tensor& t, int64_t flat);

/// Throws naming the first element in which `got` differs from `want` bit for bit, any NaN agreeing with any; `what`
/// names the value.
void check_same_bits(const Tensor& got, const Tensor& want, const std::string& what);

/// A contiguous copy in its own memory. A value on a device is copied to host memory.
Tensor copy_of(const Tensor& t);

/// Sentence naming the first op of the step that makes a NaN from operands without one, or an infinity from finite
/// operands; or saying that there is none.
std::string find_nonfinite(const Graph& g, std::span<const Tensor> args);

}  // namespace weft::internal
