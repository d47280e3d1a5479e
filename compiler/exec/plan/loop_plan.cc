#include "compiler/exec/plan/loop_plan.h"

#include "compiler/exec/plan/plan.h"
#include "compiler/exec/plan/stamp.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/passes/lower.h"
#include "compiler/targets/operations.h"
#include "framework/ir/rewrite.h"

namespace weft::internal {
namespace {

class LoopCallsBuilder {
 public:
  LoopCallsBuilder(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView> out)
      : in_(in),
        out_(out),
        carries_(static_cast<size_t>(attrs.i("carries"))),
        fixed_(carries_ + static_cast<size_t>(attrs.i("stacked"))) {
    loop_.length = attrs.i("length");
    loop_.reverse = attrs.b("reverse");
    loop_.go_on = static_cast<int32_t>(attrs.i("go_on", -1));
  }

  LoopCalls run(const Ref<Graph>& whole, Operations& operations) {
    const Ref<Graph> body = without_stacked_carries(*whole);
    std::vector<ArgumentLayout> layouts;
    for (size_t i = 0; i < in_.size(); ++i) {
      const TensorType& type = body->type(body->inputs[i]);
      Shape strides = i < carries_ ? contiguous_strides(type.shape) : in_[i].strides;
      if (i >= carries_ && i < fixed_) {
        strides = {};
        for (int d = 1; d < in_[i].strides.size(); ++d) strides.push_back(in_[i].strides[d]);
      }
      layouts.push_back({strides, i < carries_ ? static_cast<int32_t>(i) : -1});
    }
    MemoryLayout plan = draft(body, layouts, operations);
    if (const std::set<size_t> shared = shared_outputs(plan); !shared.empty())
      plan = draft(with_copies(*plan.graph, shared), layouts, operations);
    lay_out(plan);
    loop_.body = plan.graph;
    find_results(plan);
    folded_ = reserve(plan.folded_bytes);
    arena_ = reserve(std::max(plan.arena_bytes, plan.setup_workspace));
    for (size_t c = 0; c < carries_; ++c) {
      const TensorType& type = body->type(body->inputs[c]);
      LoopCalls::Carry& carry = loop_.carries[c];
      carry.value = {nullptr, type.dtype, type.shape, contiguous_strides(type.shape)};
      const bool in_place = carry.stacked < 0 && fits_in_place(plan, static_cast<int32_t>(c), plan.outputs[c]);
      carry.spare = in_place || carry.stacked >= 0 ? -1 : reserve(type.nbytes());
      carry.starts_here = !in_place && !carry.shifted && is_contiguous(in_[c].shape, in_[c].strides);
    }
    for (const Launch& l : plan.setup) add(plan, l, loop_.setup, arena_);
    for (const Launch& l : plan.launches)
      add(plan, l, loop_.calls, l.workspace < 0 ? -1 : arena_ + plan.buffers[l.workspace].offset);
    return std::move(loop_);
  }

 private:
  // Finds the carries whose values are stacked, and removes those results from the body: they would be copies.
  Ref<Graph> without_stacked_carries(const Graph& body) {
    loop_.carries.resize(carries_);
    std::vector<bool> removed(body.outputs.size());
    for (const bool shifted : {true, false})  // reverse mode stacks the values before
      for (size_t c = 0; c < carries_; ++c)
        for (size_t o = carries_; o < body.outputs.size() && loop_.carries[c].stacked < 0; ++o) {
          if (removed[o] || body.outputs[o] != (shifted ? body.inputs[c] : body.outputs[c])) continue;
          if (!is_contiguous(out_[o].shape, out_[o].strides)) continue;
          loop_.carries[c].stacked = static_cast<int32_t>(o);
          loop_.carries[c].shifted = shifted;
          removed[o] = true;
        }
    const auto now = make_ref<Graph>(body);
    now->outputs.clear();
    for (size_t o = 0; o < body.outputs.size(); ++o) {
      if (removed[o]) continue;
      now->outputs.push_back(body.outputs[o]);
      left_.push_back(static_cast<int32_t>(o));
    }
    return now;
  }

  // Takes groups apart that cannot be one kernel for these layouts.
  static MemoryLayout draft(Ref<Graph> body, std::span<const ArgumentLayout> layouts, Operations& operations) {
    for (;;) {
      try {
        return draft_plan(body, layouts, operations);
      } catch (const CannotLower& c) {
        body = expand(*body, [&](const Node& n) { return loop_ir::group_of(n) == c.body.get(); });
      }
    }
  }

  int64_t reserve(int64_t bytes) {
    const int64_t at = loop_.workspace;
    loop_.workspace += accounted(bytes);
    return at;
  }

  // Finds the loop's result to which each output block belongs.
  void find_results(const MemoryLayout& plan) {
    results_.resize(plan.output_blocks.size());
    for (size_t o = 0; o < plan.outputs.size(); ++o)
      results_[plan.buffers[plan.outputs[o].place.buffer].index] = left_[o];
  }

  LoopCalls::Place place(const MemoryLayout& plan, const BufferPlace& p) const {
    const MemoryBlock& b = plan.buffers[p.buffer];
    const auto index = static_cast<size_t>(b.index);
    switch (b.home) {
      case Home::kArena:
        return {LoopCalls::Place::kWorkspace, 0, arena_ + b.offset + p.offset, 0};
      case Home::kFolded:
        return {LoopCalls::Place::kWorkspace, 0, folded_ + b.offset + p.offset, 0};
      case Home::kArgument:
        if (index < carries_) return {LoopCalls::Place::kCarried, b.index, p.offset, 0};
        return {LoopCalls::Place::kOperand, b.index, p.offset,
                index < fixed_ ? in_[index].strides[0] * itemsize(in_[index].dtype) : 0};
      case Home::kOutput: {
        const int32_t o = results_[index];
        if (static_cast<size_t>(o) < carries_) return {LoopCalls::Place::kCarry, o, p.offset, 0};
        return {LoopCalls::Place::kResult, o, p.offset, out_[o].strides[0] * itemsize(out_[o].dtype)};
      }
      default:
        WEFT_BUG_IF(true, "loop: the body has cells or captured tensors");
    }
  }

  void add(const MemoryLayout& plan, const Launch& l, std::vector<LoopCalls::Call>& calls, int64_t workspace) {
    LoopCalls::Call c;
    c.operation = l.operation;
    c.workspace = workspace;
    c.node = &plan.graph->node(l.node);
    const auto bind = [&](const auto& from, auto& to) {
      for (const BufferPlace& p : from) {
        to.push_back(place(plan, p));
        loop_.views.push_back({nullptr, p.type.dtype, p.type.shape, p.strides});
      }
    };
    bind(l.in, c.in);
    bind(l.out, c.out);
    calls.push_back(std::move(c));
  }

  const std::span<const StridedView> in_, out_;
  const size_t carries_, fixed_;
  int64_t folded_ = 0, arena_ = 0;  // offsets into the scratch memory
  std::vector<int32_t> left_;       // output of the planned body -> result of the loop
  std::vector<int32_t> results_;
  LoopCalls loop_;
};

}  // namespace

std::shared_ptr<Operation> prepare_loop(const Attrs& attrs, std::span<const StridedView> in,
                                        std::span<const StridedView> out, Operations& operations) {
  return operations.target().repeat(LoopCallsBuilder(attrs, in, out).run(attrs.get<Ref<Graph>>("body"), operations));
}

}  // namespace weft::internal
