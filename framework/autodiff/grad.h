// Differentiation. Eager: over the tape. Under capture: one structural node, which expand_grad() turns into ordinary
// nodes after attention has been discovered.
#pragma once
#include <functional>

#include "framework/dispatch/arg.h"
#include "framework/dispatch/capture.h"
#include "framework/dispatch/parameter.h"
#include "framework/ir/op_def.h"

namespace weft {

struct GradOptions {
  bool create_graph = false;  // record the gradients themselves, so that grad() of them is possible
  Tensor grad_output = {};    // gradient of `loss`; required unless loss has one element
};

/// Gradients with their parameters, so that an optimiser finds the parameter of each gradient. Gradients made from a
/// plain vector have no parameters.
struct Gradients : std::vector<Tensor> {
  using std::vector<Tensor>::vector;
  Gradients(std::vector<Tensor> values, std::vector<Parameter> of = {})
      : std::vector<Tensor>(std::move(values)), parameters(std::move(of)) {}
  std::vector<Parameter> parameters;  // one for each gradient, or none
};

/// Gradients of `loss` with respect to `wrt`, each with its operand's type; zeros where the loss does not depend on it.
/// Throws for an operand that is not on the tape; a Parameter's value and a tensor after requires_grad() are.
std::vector<Tensor> grad(const Tensor& loss, const std::vector<Tensor>& wrt, const GradOptions& options = {},
                         std::source_location loc = std::source_location::current());
Gradients grad(const Tensor& loss, const std::vector<Parameter>& wrt, const GradOptions& options = {},
               std::source_location loc = std::source_location::current());
inline Gradients grad(const Tensor& loss, std::initializer_list<Parameter> wrt, const GradOptions& options = {},
                      std::source_location loc = std::source_location::current()) {
  return grad(loss, std::vector<Parameter>(wrt), options, loc);
}

/// PyTorch's name in C++: autograd::grad({loss}, {x}).
namespace autograd {
using weft::grad;
}  // namespace autograd

/// Runs fn without keeping its intermediate values: backward recomputes them (Chen et al. 2016) with the same random
/// bits.
std::vector<Tensor> checkpoint_n(const TensorFn& fn, const std::vector<Tensor>& inputs,
                                 SourceLine line = std::source_location::current());
template <class Fn, class... T>
Tensor checkpoint(Fn&& fn, const Arg& first, const T&... rest) {
  WEFT_CHECK(first.is_tensor(), "checkpoint: operand 0 is a number; need a tensor");
  return checkpoint_n(
      [&](std::span<const Tensor> in) {
        return [&]<size_t... I>(std::index_sequence<I...>) { return std::vector<Tensor>{fn(in[I]...)}; }
        (std::make_index_sequence<1 + sizeof...(T)>{});
      },
      {first.tensor(), Tensor(rest)...}, first.line())[0];
}

/// A function with the user's own derivative: `backward(inputs, outputs, grad_outputs)` returns one gradient per input
/// (undefined = zero). Both functions are traced, so neither may read values. Errors name the line that made it.
using BackwardFn = std::function<std::vector<Tensor>(std::span<const Tensor> in, std::span<const Tensor> out,
                                                     std::span<const Tensor> grad_out)>;
class CustomGrad {
 public:
  CustomGrad(TensorFn fn, BackwardFn backward, SourceLine line = std::source_location::current())
      : fn_(std::move(fn)), backward_(std::move(backward)), line_(line) {}
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// The form for functions with one result.
  template <class... T>
  Tensor operator()(const Tensor& first, const T&... rest) const {
    return only((*this)(std::vector<Tensor>{first, rest...}));
  }

 private:
  Tensor only(std::vector<Tensor> results) const;

  TensorFn fn_;
  BackwardFn backward_;
  SourceLine line_;
};
inline CustomGrad custom_grad(TensorFn fn, BackwardFn backward, SourceLine line = std::source_location::current()) {
  return {std::move(fn), std::move(backward), line};
}
/// The one-operand, one-result form: backward(x, y, dy) -> dx.
CustomGrad custom_grad(std::function<Tensor(Tensor)> fn, std::function<Tensor(Tensor x, Tensor y, Tensor dy)> backward,
                       SourceLine line = std::source_location::current());

/// Replaces every `grad` node (inner ones first), and the bodies of checkpoint and custom_grad, by ordinary nodes.
Ref<Graph> expand_grad(const Graph& g);

// Structural ops of differentiation.
extern const OpDef grad_op;           // (loss, grad_output?, wrt...) -> gradients {seeded}
extern const OpDef barrier_op;        // (x, after...) -> x: not simplified, not merged, scheduled after its operands
extern const OpDef stop_gradient_op;  // x -> x
extern const OpDef checkpoint_op;     // (in..., lifted...) -> out {body}
extern const OpDef custom_grad_op;    // (in..., lifted...) -> out {body, backward, inputs}
std::span<const OpDef* const> autodiff_ops();

namespace internal {
// The first two are defined in ops/core: the arithmetic that differentiation itself needs.
Tensor accumulate(const Tensor& a, const Tensor& b);
Tensor full_of(const TensorType& type, double value);
/// grad() in a capture, without its checks.
std::vector<Tensor> captured_grad(Capture& capture, const Tensor& loss, const std::vector<Tensor>& wrt,
                                  const GradOptions& options);
}  // namespace internal

}  // namespace weft
