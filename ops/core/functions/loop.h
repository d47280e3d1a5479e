// Loops whose body is part of a graph once, however often it runs: the functions scan() and while_loop(), and the
// structural op `loop`.
#pragma once
#include <optional>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"

namespace weft {

struct WhileOptions {
  int64_t max_iterations = 1000;  // the loop throws if its condition still holds after this number
};

struct ScanOptions {
  int64_t length = -1;   // number of iterations; needed if no tensor is scanned over
  bool reverse = false;  // from the last slice to the first; results keep the positions of their slices
};

// (carry..., stacked..., shared...) -> (last carry..., stacked results...) {body, length, carries, stacked, reverse}:
// for each t: (carry..., results[t]...) = body(carry..., stacked[t]..., shared...).
// {go_on}: the number of a carry, bool[], that the body sets to false once and for all, and keeps all carries from then
// on; the loop may end there. An InvalidArgument if it is true after the last iteration. -1: there is none.
// {sums}: the carries are the sums of accumulate(), and there are no stacked results. The body adds to them by `add`
// with the attribute kSumOfParts.
extern const OpDef loop_op;
inline constexpr const char* kSumOfParts = "sum_of_parts";
std::span<const OpDef* const> loop_ops();

namespace internal {

/// The result of one iteration.
struct Iteration {
  std::vector<Tensor> carry, results;
};
/// Returns the results of a body's node in the body's copy, or nothing for the node itself. Its arguments are the
/// node's number, its operands in the copy, and the number of the iteration, a 0-d i64 tensor.
using BodyReplacement =
    std::function<std::optional<std::vector<Tensor>>(int32_t, std::span<const Tensor>, const Tensor& iteration)>;

/// How the loops of scan(), while_loop() and accumulate() differ.
struct LoopRules {
  const char* name = "scan";  // the caller, in errors
  int64_t go_on = -1;         // the op's attribute
  bool own_seeds = true;      // random ops draw new numbers in each iteration
  bool sums = false;          // the results are summed over the iterations, not stacked; f16 and bf16 in f32
  std::function<BodyReplacement(const Graph& body)> replacement = {};
};

/// (last carry..., stacked results...) of scan() with the function `fn` of (carry..., slices...).
std::vector<Tensor> run_loop(const std::function<Iteration(std::span<const Tensor>)>& fn,
                             const std::vector<Tensor>& carry, const std::vector<Tensor>& stacked,
                             const ScanOptions& options, SourceLine line, const LoopRules& rules = {});
/// The same of a body of (carry..., slices..., number of the iteration, lifted...) -> (carry..., results...) that is
/// traced already. `recorded`: whether a result has a gradient.
std::vector<Tensor> run_traced_loop(const Body& body, const std::vector<Tensor>& carry,
                                    const std::vector<Tensor>& stacked, int64_t length, bool reverse, bool recorded,
                                    const LoopRules& rules);

/// The seed of iteration t, counted from 0.
Tensor seed_of_iteration(const Tensor& seed, const Tensor& t);

/// Calls a function of the user inside a LineScope: its ops have the lines of their own calls.
template <class Fn, class... Args>
auto call_user(Fn& fn, const Args&... args) {
  struct Restore {
    const SourceLine* saved = std::exchange(origin.line, nullptr);
    ~Restore() { origin.line = saved; }
  } const lines;
  return fn(args...);
}

/// The last carry of while_loop().
std::vector<Tensor> run_while(const std::function<Tensor(std::span<const Tensor>)>& condition, const TensorFn& fn,
                              const std::vector<Tensor>& carry, const WhileOptions& options, SourceLine line);
/// Throws the error of a loop whose condition still holds after `length` iterations.
[[noreturn]] void loop_goes_on(int64_t length);

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
        const Result r = internal::call_user(fn, c, x);
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

/// Runs carry = fn(carry) while condition(carry), a bool[], is true, and returns the last carry:
///   auto root = while_loop([&](Tensor x) { return abs(x * x - 2.0) > 1e-6; },
///                          [&](Tensor x) { return (x + 2.0 / x) / 2.0; }, scalar(1.0));
/// The carry is as in scan(): both functions take all of it as one value, and the condition is a Tensor, because inside
/// a compiled function it has no value yet. The condition is called on `init` and traced once with `fn`.
/// Eager, and in compiled functions on the CPU, a loop without gradients ends with its condition. Everywhere else (with
/// gradients, compiled on CUDA, on meshes, in exported steps, inside vmap, under verify_numerics) all
/// options.max_iterations run, so set it as low as you can; without gradients the graph has the body that often. After
/// the end, `fn` gets `init`, and its result is dropped. So `fn` must be defined at `init`, with finite derivatives
/// where these are needed, even if the condition is false there.
/// Throws InvalidArgument if the condition still holds after max_iterations, if it is not a bool[], or if the carry
/// changes its shapes, dtypes or count.
template <class Condition, class Fn, class Carry>
Carry while_loop(Condition&& condition, Fn&& fn, const Carry& init, const WhileOptions& options = {},
                 std::source_location loc = std::source_location::current()) {
  static_assert(std::is_convertible_v<std::invoke_result_t<Fn&, Carry>, Carry>,
                "while_loop: the second function must return the type of the carry");
  static_assert(std::is_convertible_v<std::invoke_result_t<Condition&, Carry>, Tensor>,
                "while_loop: the first function must return a Tensor, bool[]");
  std::vector<Tensor> carry;
  flatten(init, carry);
  const auto carry_of = [&](std::span<const Tensor> in) {
    size_t at = 0;
    return Carry(unflatten(init, in, at));
  };
  const std::vector<Tensor> last = internal::run_while(
      [&](std::span<const Tensor> in) { return Tensor(internal::call_user(condition, carry_of(in))); },
      [&](std::span<const Tensor> in) {
        std::vector<Tensor> out;
        flatten(static_cast<Carry>(internal::call_user(fn, carry_of(in))), out);
        return out;
      },
      carry, options, loc);
  return carry_of(last);
}

}  // namespace weft
