#include "compiler/targets/cuda/run/graph_step.h"

#include <algorithm>

namespace weft::cuda {
namespace {

// If addresses change in every run and kernels cannot get new parameters, a capture costs more than queueing.
constexpr int kMostCapturesInARow = 4;

const Operation& operation_of(const StepCall& c) { return static_cast<const Operation&>(*c.operation); }

}  // namespace

GraphStep::GraphStep(Gpu& gpu, std::vector<StepCall> calls, std::vector<int32_t*> bad, bool graphs)
    : gpu_(gpu), calls_(std::move(calls)), bad_(std::move(bad)), graphs_(graphs && !gpu.synchronous()) {
  captured_.resize(calls_.size());
  for (const StepCall& c : calls_) graphs_ &= operation_of(c).capturable();
}
GraphStep::~GraphStep() = default;

void GraphStep::enqueue(size_t call, Stream& stream) const {
  const StepCall& c = calls_[call];
  SmallVec<void*, 8> addresses;
  for (const StridedView& v : c.in) addresses.push_back(v.data);
  for (const StridedView& v : c.out) addresses.push_back(v.data);
  const std::span<void* const> all(addresses.data(), addresses.size());
  operation_of(c).enqueue(
      {all.first(c.in.size()), all.subspan(c.in.size()), c.workspace ? *c.workspace : nullptr, bad_[call]}, stream,
      c.node->line);
}

void GraphStep::queue_all() {
  for (at_ = 0; at_ < calls_.size(); ++at_) enqueue(at_, gpu_.stream());
}

std::vector<void*> GraphStep::addresses_of(const StepCall& c) const {
  std::vector<void*> all;
  for (const StridedView& v : c.in) all.push_back(v.data);
  for (const StridedView& v : c.out) all.push_back(v.data);
  all.push_back(c.workspace ? *c.workspace : nullptr);
  return all;
}

void GraphStep::capture() {
  // Use a separate stream: other threads may queue work on the GPU's stream meanwhile, which is not part of the step.
  Stream side(gpu_);
  const auto work = [&] {
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      Captured& c = captured_[at_];
      const GraphReplay::Position before = GraphReplay::position(side);
      enqueue(at_, side);
      const GraphReplay::Position after = GraphReplay::position(side);
      c.kernel = before.kernels;
      c.kernels = after.kernels - before.kernels;
      c.renameable = after.operations - before.operations == static_cast<size_t>(c.kernels);
      c.addresses = addresses_of(calls_[at_]);
    }
  };
  if (!graph_) {
    graph_.emplace(GraphReplay::capture(side, work));
    ++counts_.captures;
  } else if (graph_->recapture(side, work)) {
    ++counts_.recaptures;
  } else {
    ++counts_.captures;
  }
}

// Gives new parameters to the kernels whose addresses changed. False if that is not possible.
bool GraphStep::rename() {
  std::vector<size_t> moved;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const StepCall& c = calls_[i];
    const Captured& was = captured_[i];
    const auto at = [](const StridedView& v, void* address) { return v.data == address; };
    const bool same = std::equal(c.in.begin(), c.in.end(), was.addresses.begin(), at) &&
                      std::equal(c.out.begin(), c.out.end(), was.addresses.begin() + c.in.size(), at) &&
                      (c.workspace ? *c.workspace : nullptr) == was.addresses.back();
    if (same) continue;
    if (!was.renameable) return false;
    moved.push_back(i);
  }
  for (size_t i : moved) {
    at_ = i;
    Captured& c = captured_[i];
    if (!graph_->rename(c.kernel, c.kernels, [&] { enqueue(i, gpu_.stream()); })) return false;
    c.addresses = addresses_of(calls_[i]);
    counts_.renamed += c.kernels;
  }
  return true;
}

void GraphStep::run(bool moved) {
  // Do not capture the first run: in it libraries choose algorithms, and cells get their own storage.
  if (!graphs_ || runs_++ == 0) {
    ++counts_.queued;
    queue_all();
    return;
  }
  if (!graph_ || (moved && !rename())) {
    if (captures_in_a_row_ == kMostCapturesInARow) {
      graphs_ = false;
      graph_.reset();
      ++counts_.queued;
      queue_all();
      return;
    }
    ++captures_in_a_row_;
    capture();
  } else {
    captures_in_a_row_ = 0;
  }
  ++counts_.replays;
  graph_->launch(gpu_.stream());
}

}  // namespace weft::cuda
