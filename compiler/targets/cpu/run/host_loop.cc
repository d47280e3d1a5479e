// A loop on the CPU: one call of its body after another.
#include "compiler/targets/cpu/run/host_operation.h"
#include "ops/core/functions/loop.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

class HostLoop final : public HostOperation {
 public:
  explicit HostLoop(LoopCalls calls) : loop_(std::move(calls)) {
    for (const LoopCalls::Call& c : loop_.setup) first_view_ += c.in.size() + c.out.size();
    for (const auto* list : {&loop_.setup, &loop_.calls})
      for (const LoopCalls::Call& c : *list) operations_.push_back(c.operation);
    for (const auto& operation : operations_)
      rounds_less_.insert(rounds_less_.end(), operation->rounds_less().begin(), operation->rounds_less().end());
  }
  const char* name() const override { return "loop"; }
  int64_t workspace_bytes() const override { return loop_.workspace; }
  bool compiled() const override {
    for (const auto& operation : operations_)
      if (!operation->compiled()) return false;
    return true;
  }
  std::span<const std::string> rounds_less() const override { return rounds_less_; }
  std::string remark() const override {
    return str_cat(loop_.length, " iterations of ", loop_.calls.size(), loop_.calls.size() == 1 ? " call" : " calls");
  }
  std::span<const std::shared_ptr<Operation>> operations() const override { return operations_; }

  void run(std::span<const StridedView> in, std::span<const StridedView> out, void* workspace) const override {
    // Stacked results have an element of each iteration.
    const bool may_end = loop_.go_on >= 0 && out.size() == loop_.carries.size();
    if (may_end && !*static_cast<const bool*>(in[loop_.go_on].data)) {
      for (size_t c = 0; c < out.size(); ++c) kernels::cast_copy(in[c], out[c]);
      return;
    }
    LoopRun run{loop_, in, out, static_cast<char*>(workspace), loop_.views};
    run.start();
    for (int64_t i = 0; i < loop_.length; ++i) {
      run.run(loop_.calls, first_view_, i);
      if (may_end && !run.goes_on(i)) return run.end_after(i);
    }
    run.end_after(loop_.length - 1);
    if (loop_.go_on >= 0 && run.goes_on(loop_.length - 1)) loop_goes_on(loop_.length);
  }

 private:
  // Runs may overlap, so each has its own views.
  struct LoopRun {
    const LoopCalls& loop;
    std::span<const StridedView> in, out;
    char* const scratch;
    std::vector<StridedView> views;

    int64_t slice(int64_t i) const { return loop.reverse ? loop.length - 1 - i : i; }
    // Whether the value of a carry after iteration i is in the loop's result: the last is, or end_after() copies it.
    bool in_result(int32_t c, int64_t i) const {
      const LoopCalls::Carry& carry = loop.carries[c];
      if (carry.stacked >= 0) return carry.shifted ? i == loop.length - 1 : i < 0;
      return carry.spare < 0 || (loop.length - 1 - i) % 2 == 0;
    }
    void* carry_after(int32_t c, int64_t i) const {
      const LoopCalls::Carry& carry = loop.carries[c];
      if (in_result(c, i)) return out[c].data;
      if (carry.stacked < 0) return scratch + carry.spare;
      const StridedView& all = out[carry.stacked];
      return static_cast<char*>(all.data) +
             slice(carry.shifted ? i + 1 : i) * all.strides[0] * static_cast<int64_t>(itemsize(all.dtype));
    }
    void* carry_before(int32_t c, int64_t i) const {
      return i == 0 && loop.carries[c].starts_here ? in[c].data : carry_after(c, i - 1);
    }

    void start() {
      for (size_t c = 0; c < loop.carries.size(); ++c) {
        if (loop.carries[c].starts_here && loop.length > 0) continue;
        StridedView to = loop.carries[c].value;
        to.data = carry_after(static_cast<int32_t>(c), -1);
        kernels::cast_copy(in[c], to);
      }
      run(loop.setup, 0, 0);
    }

    bool goes_on(int64_t i) const { return *static_cast<const bool*>(carry_after(loop.go_on, i)); }
    // The results, if iteration i was the last.
    void end_after(int64_t i) {
      for (int32_t c = 0; c < static_cast<int32_t>(loop.carries.size()); ++c) {
        if (in_result(c, i)) continue;
        StridedView from = loop.carries[c].value, to = from;
        from.data = carry_after(c, i);
        to.data = out[c].data;
        kernels::cast_copy(from, to);
      }
    }

    void run(const std::vector<LoopCalls::Call>& calls, size_t at, int64_t i) {
      const int64_t t = slice(i);
      for (const LoopCalls::Call& c : calls) {
        StridedView* const first = views.data() + at;
        const auto bind = [&](const auto& places) {
          for (const LoopCalls::Place& p : places) views[at++].data = address(p, i, t);
        };
        bind(c.in);
        bind(c.out);
        const std::span<const StridedView> operands(first, c.in.size()), results(first + c.in.size(), c.out.size());
        try {
          static_cast<const HostOperation&>(*c.operation)
              .run(operands, results, c.workspace < 0 ? nullptr : scratch + c.workspace);
        } catch (const FailedNode&) {
          throw;
        } catch (const Error& e) {
          throw FailedNode(e, *c.node);
        }
      }
    }

    void* address(const LoopCalls::Place& p, int64_t i, int64_t t) const {
      char* base = scratch;
      if (p.base == LoopCalls::Place::kOperand) base = static_cast<char*>(in[p.index].data);
      if (p.base == LoopCalls::Place::kResult) base = static_cast<char*>(out[p.index].data);
      if (p.base == LoopCalls::Place::kCarried) base = static_cast<char*>(carry_before(p.index, i));
      if (p.base == LoopCalls::Place::kCarry) base = static_cast<char*>(carry_after(p.index, i));
      return base + p.offset + t * p.step;
    }
  };

  const LoopCalls loop_;
  std::vector<std::string> rounds_less_;
  size_t first_view_ = 0;  // first view of the calls of an iteration
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace

std::shared_ptr<Operation> HostTarget::repeat(LoopCalls calls) { return std::make_shared<HostLoop>(std::move(calls)); }

}  // namespace weft::internal
