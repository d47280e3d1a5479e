// Loops whose body is part of a graph once, however often it runs: the function scan() and the structural op `loop`.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"

namespace weft {

struct ScanOptions {
  int64_t length = -1;   // number of iterations; needed if no tensor is scanned over
  bool reverse = false;  // from the last slice to the first; results keep the positions of their slices
};

// (carry..., stacked..., shared...) -> (last carry..., stacked results...) {body, length, carries, stacked, reverse}:
// for each t: (carry..., results[t]...) = body(carry..., stacked[t]..., shared...).
extern const OpDef loop_op;
std::span<const OpDef* const> loop_ops();

namespace internal {

/// What one iteration returns.
struct Iteration {
  std::vector<Tensor> carry, results;
};
/// (last carry..., stacked results...) of scan() with the function `fn` of (carry..., slices...).
std::vector<Tensor> run_loop(const std::function<Iteration(std::span<const Tensor>)>& fn,
                             const std::vector<Tensor>& carry, const std::vector<Tensor>& stacked,
                             const ScanOptions& options, SourceLine line);

}  // namespace internal

/// Runs (carry, y) = fn(carry, x) for each slice x of `xs` along dim 0. Returns y, stacked along a new dim 0, and the
/// last carry:
///   auto [out, last] = scan([&](Tensor h, Tensor x) {
///     h = tanh(x + matmul(h, w));
///     return std::pair{h, h};
///   }, h0, xs);  // h0 [B, H], xs [T, B, H] -> out [T, B, H], last [B, H]
/// Carry, xs and y are a Tensor, or a tuple, array, vector or struct of Tensors. `fn` is traced once, so the time to
/// compile and the size of graphs do not depend on the number of slices. Random ops draw new numbers in each iteration.
/// `fn` may read cells and tensors of the program. Throws InvalidArgument if the tensors of xs have different numbers
/// of slices or if the carry changes its shapes, dtypes or count, FailedPrecondition if `fn` reads values on the host
/// or sets a cell.
template <class Fn, class Carry, class Xs>
auto scan(Fn&& fn, const Carry& init, const Xs& xs, const ScanOptions& options = {},
          std::source_location loc = std::source_location::current()) {
  using Result = std::remove_cvref_t<std::invoke_result_t<Fn&, Carry, Xs>>;
  static_assert(
      internal::is_tuple<Result> && requires { typename std::tuple_element<1, Result>::type; },
      "scan: the function must return std::pair{carry, y}");
  using Y = std::tuple_element_t<1, Result>;
  static_assert(std::is_convertible_v<std::tuple_element_t<0, Result>, Carry>,
                "scan: the first value that the function returns must have the type of the carry");
  std::vector<Tensor> carry, stacked;
  flatten(init, carry);
  flatten(xs, stacked);
  std::optional<Y> like;
  const std::vector<Tensor> all = internal::run_loop(
      [&](std::span<const Tensor> in) {
        size_t at = 0;
        const Carry c = unflatten(init, in, at);
        const Xs x = unflatten(xs, in, at);
        const Result r = fn(c, x);
        internal::Iteration out;
        flatten(static_cast<Carry>(std::get<0>(r)), out.carry);
        like = std::get<1>(r);
        flatten(*like, out.results);
        return out;
      },
      carry, stacked, options, loc);
  size_t at = 0;
  Carry last = unflatten(init, all, at);
  Y y = unflatten(*like, all, at);
  return std::pair<Y, Carry>{std::move(y), std::move(last)};
}

}  // namespace weft
