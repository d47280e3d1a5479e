#include "ops/core/functions/loop_derivative.h"

#include <algorithm>
#include <map>

#include "framework/autodiff/grad.h"
#include "framework/autodiff/joint_body.h"
#include "ops/core/functions/body.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::internal {
namespace {

// Splits a body with its derivative into two bodies. The values that the second reads from the first are stacked over
// the iterations, except views and constants, which cost nothing to compute again.
class BodySplitter {
 public:
  BodySplitter(const Graph& body, int carries, int stacked, std::vector<bool> inputs, const std::vector<bool>& results)
      : carries_(carries), fixed_(carries + stacked), outputs_(static_cast<int>(body.outputs.size())) {
    const int operands = static_cast<int>(body.inputs.size());
    std::vector<bool> roots;
    // The gradient of a carried value comes from the next iteration, whatever is wanted outside.
    for (int k = 0; k < carries; ++k) {
      inputs[k] = is_floating(body.type(body.inputs[k]).dtype);
      roots.push_back(inputs[k]);
    }
    for (int o = carries; o < outputs_; ++o) roots.push_back(results[o - carries]);
    for (int k = carries; k < operands; ++k) inputs[k] = inputs[k] && is_floating(body.type(body.inputs[k]).dtype);
    joint_ = differentiate_body(body, inputs, roots);
    g_ = joint_.graph.get();
    for (int k = 0; k < operands; ++k) input_of_[g_->inputs[k]] = k;
    int at = operands;
    for (int o = 0; o < outputs_; ++o)
      if (roots[o]) root_of_[g_->inputs[at++]] = o;
    gradient_.resize(operands);
    size_t selected = 0, reached = 0;
    for (int k = 0; k < operands; ++k)
      if (inputs[k] && joint_.reached[selected++]) gradient_[k] = g_->outputs[outputs_ + reached++];
  }

  LoopDerivative run() {
    const int operands = static_cast<int>(gradient_.size());
    for (int k = 0; k < carries_; ++k)
      if (is_floating(g_->type(g_->inputs[k]).dtype)) d_.carry.push_back(k);
    // Products come first: a sum is gathered only where its operand is stacked for a product.
    std::vector<bool> gathered(gradient_.size());
    for (bool product : {true, false})
      for (int k = fixed_; k < operands; ++k)
        if (gradient_[k].valid() && !gathered[k]) gathered[k] = gather(k, product);
    for (int k = fixed_; k < operands; ++k)
      if (gradient_[k].valid() && !gathered[k]) d_.sums.push_back(k - fixed_);
    for (int k = carries_; k < fixed_; ++k)
      if (gradient_[k].valid()) d_.slices.push_back(k - carries_);
    make_backward();
    make_forward();
    for (const Late& l : late_) make_after(l);
    return std::move(d_);
  }

 private:
  /// A gradient of shared operand `input` that is computed after the loop: views of `last`, a product or a sum.
  struct Late {
    int input;
    Value last;
    std::vector<int32_t> views;  // from the product to the gradient
  };

  bool is_backward(Value v) const { return v.node >= joint_.first_backward; }
  const TensorType& type(Value v) const { return g_->type(v); }

  /// The stack of a value. A value without one becomes a further result of a loop.
  LoopDerivative::Stack stack_of(Value v) {
    if (const auto at = input_of_.find(v); at != input_of_.end() && at->second >= carries_ && at->second < fixed_)
      return {LoopDerivative::Stack::kOperand, at->second - carries_};
    if (const auto at = root_of_.find(v); at != root_of_.end() && at->second >= carries_)
      return {LoopDerivative::Stack::kGradient, at->second - carries_};
    if (is_backward(v)) return {LoopDerivative::Stack::kPart, index_in(parts_, v)};
    for (int o = carries_; o < outputs_; ++o)
      if (g_->outputs[o] == v) return {LoopDerivative::Stack::kResult, o - carries_};
    return {LoopDerivative::Stack::kResult, outputs_ - carries_ + index_in(missing_, v)};
  }

  /// The index of `v`, which is appended if it is not there.
  static int index_in(std::vector<Value>& list, Value v) {
    const auto at = std::find(list.begin(), list.end(), v) - list.begin();
    if (at == static_cast<std::ptrdiff_t>(list.size())) list.push_back(v);
    return static_cast<int>(at);
  }

  /// Whether the stack of `v` exists without a new result of the backward loop.
  bool is_stacked(Value v) const { return !is_backward(v) || (root_of_.contains(v) && root_of_.at(v) >= carries_); }

  /// Whether the gradient of shared input k is one product, or one sum, over all iterations. A sum in the carry would
  /// read and write the gradient in each iteration; stacks of larger operands would need more memory.
  bool gather(int k, bool product) {
    Late l{k, gradient_[k], {}};
    for (;;) {
      const Node& n = g_->node(l.last);
      if (!is_backward(l.last) || !is_rearranged(n)) break;
      l.views.push_back(l.last.node);
      l.last = n.inputs[0];
    }
    const Node& n = g_->node(l.last);
    if (!is_backward(l.last) || n.op != (product ? &dot_op : &reduce_sum_op)) return false;
    if (n.op == &dot_op && n.attrs.ints("a_contract").size() == kMaxDims) return false;
    int64_t bytes = 0;
    for (Value v : n.inputs) {
      const auto input = input_of_.find(v);
      if (type(v).shape.size() == kMaxDims || (input != input_of_.end() && input->second >= fixed_)) return false;
      if (!is_stacked(v)) bytes += type(v).nbytes();
    }
    if (n.op == &dot_op && bytes > n.outputs[0].nbytes()) return false;
    if (n.op == &reduce_sum_op && bytes > 0) {  // unless the operand is stacked for a product anyway
      bool anyway = false;
      for (const Late& other : late_)
        for (Value v : g_->node(other.last).inputs) anyway |= v == n.inputs[0];
      if (!anyway) return false;
    }
    std::reverse(l.views.begin(), l.views.end());
    late_.push_back(std::move(l));
    return true;
  }

  // ---- the loop of derivatives ----

  void make_backward() {
    std::vector<Value> wanted;
    for (int k : d_.carry) wanted.push_back(gradient_[k]);
    for (int k : d_.sums) wanted.push_back(gradient_[fixed_ + k]);
    for (int k : d_.slices) wanted.push_back(gradient_[carries_ + k]);
    for (const Late& l : late_)
      for (Value v : g_->node(l.last).inputs) stack_of(v);  // finds the parts
    wanted.insert(wanted.end(), parts_.begin(), parts_.end());
    live_.assign(g_->size(), false);
    for (Value v : wanted)
      if (v.valid()) need(v);

    Capture capture(Capture::kStep);
    const EnableGrad record;
    const BackwardScope backward(true);
    BodyValues value(*g_);
    std::map<int, Tensor> carried;  // the gradient of a carried result, from the next iteration
    for (int k : d_.carry) carried[k] = capture.add_input(type(g_->inputs[k]));
    for (const auto& [v, o] : root_of_)
      if (o < carries_) value.set(v, carried.at(o));
    std::vector<Tensor> sums;
    for (int k : d_.sums) sums.push_back(capture.add_input(type(g_->inputs[fixed_ + k])));
    for (Value v : stacked_) {
      d_.stacks.push_back(stack_of(v));
      value.set(v, capture.add_input(type(v)));
    }
    for (int k : shared_) {
      d_.shared.push_back(k - fixed_);
      value.set(g_->inputs[k], capture.add_input(type(g_->inputs[k])));
    }
    for (int32_t id = 0; id < g_->size(); ++id)
      if (live_[id] && !value.has({id, 0})) value.run(id);
    std::vector<Tensor> out;
    size_t at = 0;
    for (int k : d_.carry) {
      const Value v = wanted[at++];
      out.push_back(v.valid() ? value(v) : full_of(type(g_->inputs[k]), 0));
    }
    for (const Tensor& sum : sums) out.push_back(accumulate(sum, value(wanted[at++])));
    for (; at < wanted.size(); ++at) out.push_back(value(wanted[at]));
    d_.backward = capture.finish(out);
  }

  /// Marks the nodes that the backward loop computes, and finds the values that it reads.
  void need(Value v) {
    if (live_[v.node]) return;
    const Node& n = g_->node(v);
    if (const auto at = input_of_.find(v); at != input_of_.end() && at->second >= fixed_) {
      if (std::find(shared_.begin(), shared_.end(), at->second) == shared_.end()) shared_.push_back(at->second);
      return;
    }
    if (const auto at = root_of_.find(v); at != root_of_.end()) {
      if (at->second >= carries_) index_in(stacked_, v);
      return;
    }
    if (input_of_.contains(v) || (!is_backward(v) && !n.inputs.empty() && !n.op->view)) {
      index_in(stacked_, v);
      return;
    }
    live_[v.node] = true;
    for (Value operand : n.inputs) need(operand);
  }

  // ---- the loop with the values that the derivative reads ----

  void make_forward() {
    if (missing_.empty()) return;
    Capture capture(Capture::kStep);
    const EnableGrad record;
    BodyValues value(*g_);
    for (size_t k = 0; k < gradient_.size(); ++k) value.set(g_->inputs[k], capture.add_input(type(g_->inputs[k])));
    for (int32_t id = 0; id < joint_.first_backward; ++id)
      if (!value.has({id, 0})) value.run(id);
    std::vector<Tensor> out;
    for (int o = 0; o < outputs_; ++o) out.push_back(value(g_->outputs[o]));
    for (Value v : missing_) out.push_back(value(v));
    d_.forward = capture.finish(out);
  }

  // ---- products over all iterations ----

  void make_after(const Late& l) {
    LoopDerivative::After after;
    after.shared = l.input - fixed_;
    Node n = g_->node(l.last);
    for (Value v : n.inputs) after.operands.push_back(stack_of(v));
    const auto with_iterations = [](const Shape& dims) {  // dim 0 of a stack is the iteration
      Shape all = plus_one(dims);
      all.insert(0, 0);
      return all;
    };
    if (n.op == &dot_op) {
      for (const char* dims : {"a_batch", "b_batch"}) n.attrs = n.attrs.with(dims, plus_one(n.attrs.ints(dims)));
      for (const char* dims : {"a_contract", "b_contract"})
        n.attrs = n.attrs.with(dims, with_iterations(n.attrs.ints(dims)));
    } else {
      n.attrs = n.attrs.with("dims", with_iterations(n.attrs.ints("dims")));
    }
    after.nodes.push_back(std::move(n));
    for (int32_t id : l.views) after.nodes.push_back(g_->node(id));
    d_.after.push_back(std::move(after));
  }

  const int carries_, fixed_, outputs_;
  JointBody joint_;
  const Graph* g_ = nullptr;
  std::map<Value, int> input_of_;  // inputs of the body -> their number
  std::map<Value, int> root_of_;   // gradients of results -> the number of the result
  std::vector<Value> gradient_;    // index: input of the body; invalid: none
  std::vector<Late> late_;
  std::vector<Value> parts_, missing_, stacked_;
  std::vector<int> shared_;
  std::vector<bool> live_;
  LoopDerivative d_;
};

}  // namespace

LoopDerivative loop_derivative(const Graph& body, int carries, int stacked, std::vector<bool> inputs,
                               const std::vector<bool>& results) {
  return BodySplitter(body, carries, stacked, std::move(inputs), results).run();
}

}  // namespace weft::internal
