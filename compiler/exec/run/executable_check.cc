// The replay of an Executable that compares launches with the interpreter.
#include <cstring>

#include "compiler/exec/run/executable.h"
#include "framework/base/clock.h"

namespace weft::internal {

// The elements of memory that a view spans.
static int64_t span_of(const StridedView& v) {
  int64_t elements = v.numel() > 0 ? 1 : 0;
  for (int d = 0; d < v.shape.size() && elements > 0; ++d) elements += (v.shape[d] - 1) * v.strides[d];
  return elements;
}

// A copy with the strides of the view, on which the order of sums of a product of few rows depends.
static Tensor copy_of_memory(const StridedView& v) {
  const int64_t bytes = span_of(v) * itemsize(v.dtype);
  auto* impl = new TensorImpl;
  const Tensor copy(impl);
  impl->type = {v.dtype, Device::cpu(), v.shape};
  impl->strides = v.strides;
  impl->storage = Storage::allocate(bytes, Device::cpu());
  if (bytes > 0) std::memcpy(impl->storage->data(), v.data, static_cast<size_t>(bytes));
  return copy;
}

void Executable::run_checked(Replay& replay, const std::vector<Launch>& launches, std::span<const StepCall> calls) {
  const Graph& g = *plan_.graph;
  const auto on_host = [&](std::span<const StridedView> views) {
    std::vector<Tensor> all;
    for (const StridedView& v : views) {
      if (!device_.is_accelerator() && span_of(v) <= 4 * v.numel()) {  // else a slice of something large
        all.push_back(copy_of_memory(v));
        continue;
      }
      all.push_back(Tensor::empty({v.dtype, Device::cpu(), v.shape}));
      if (v.numel() > 0) target_.copy(v, device_, all.back().view_for_kernel(), Device::cpu());
    }
    return all;
  };
  std::vector<Tensor> in;
  std::optional<size_t> wrong;
  const bool steps = &launches == &plan_.launches;
  try {
    replay.run_by_one([&](size_t i) {
      const auto wanted = [&](size_t at) {
        const Launch& l = launches[at];
        return check_->wants(*l.operation, g.node(l.node), l.copy);
      };
      if (i > 0) {
        const Launch& l = launches[i - 1];
        if (limits_.synchronous && steps) report(i - 1, begin_ns_, now_ns());
        wrong = i - 1;
        if (wanted(i - 1)) check_->compare(*l.operation, g.node(l.node), l.copy, in, on_host(calls[i - 1].out));
        wrong.reset();
      }
      if (i < calls.size() && wanted(i)) in = on_host(calls[i].in);
      if (steps) begin_launch(i);
    });
  } catch (...) {
    if (!steps) throw;
    failed(wrong.value_or(replay.at()));
  }
}

}  // namespace weft::internal
