// accumulate(): the sum of a function's results over the parts of a batch, one part after another.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"
#include "ops/core/functions/loop.h"

namespace weft {

// ([parts, rows, ...] stacked..., shared...) -> sums over the parts {body, stacked}. The body is (rows..., number of
// the part, shared...) -> results. Its random ops draw as accumulate() says.
extern const OpDef accumulate_op;
std::span<const OpDef* const> accumulate_ops();

namespace internal {

/// The sums of the results of `fn`, which gets the tensors of one part.
std::vector<Tensor> run_accumulate(int64_t n, const TensorFn& fn, const std::vector<Tensor>& batch, SourceLine line);

}  // namespace internal

/// Splits a batch into n parts of equal numbers of rows along dim 0, and returns the sum of fn(part) over the parts,
/// in their order. A step needs memory for the activations of one part only:
///   auto [loss, grads] = accumulate(4, std::pair{x, y}, [&](Tensor x, Tensor y) {
///     Tensor loss = mse_loss(model(x), y) / 4;             // the mean over the batch
///     return std::pair{loss.detach(), grad(loss, params)};
///   });
/// `batch` and the result of `fn` are a Tensor, or a tuple, array, vector or struct of Tensors; `fn` takes the batch,
/// or the elements of its tuple. `fn` is traced once, so the time to compile and the size of graphs do not depend on
/// n. It may read cells and tensors of the program. f16 and bf16 results are summed in f32 and rounded once.
/// Random ops that give numbers for rows of the batch (dropout) draw the numbers of the whole batch, so that each row
/// gets the numbers that it has for n = 1; other random ops (noise on weights) draw the same numbers for each part. Two
/// kinds of tensors are exceptions, with new numbers for each part: tensors with a dim in which the rows are the minor
/// factor, as [time * rows, ...], and rows that were selected or sorted before.
/// Throws InvalidArgument if n is below 1 or does not divide the rows, or if `fn` returns bools; FailedPrecondition if
/// `fn` reads values on the host or sets a cell.
template <class Batch, class Fn>
auto accumulate(int64_t n, const Batch& batch, Fn&& fn, std::source_location loc = std::source_location::current()) {
  const auto call = [&](const Batch& part) {
    if constexpr (std::is_invocable_v<Fn&, const Batch&>)
      return internal::call_user(fn, part);
    else
      return std::apply([&](const auto&... each) { return internal::call_user(fn, each...); }, part);
  };
  using Result = std::remove_cvref_t<decltype(call(batch))>;
  std::vector<Tensor> rows;
  flatten(batch, rows);
  std::optional<Result> like;
  const std::vector<Tensor> sums = internal::run_accumulate(
      n,
      [&](std::span<const Tensor> part) {
        size_t at = 0;
        like = call(unflatten(batch, part, at));
        std::vector<Tensor> out;
        flatten(*like, out);
        return out;
      },
      rows, loc);
  size_t at = 0;
  return unflatten(*like, sums, at);
}

}  // namespace weft
