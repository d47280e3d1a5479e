#include "compiler/targets/cuda/run/graph_step.h"

#include <algorithm>

namespace weft::cuda {
namespace {

// A step whose addresses cannot be renamed and change at every call costs more to capture than to queue.
constexpr int kMostCapturesInARow = 4;

}  // namespace

GraphStep::GraphStep(Gpu& gpu, std::vector<StepCall> calls, bool graphs)
    : gpu_(gpu), calls_(std::move(calls)), graphs_(graphs && !gpu.synchronous()) {
  captured_.resize(calls_.size());
  for (const StepCall& c : calls_) graphs_ &= c.operation->capturable();
}
GraphStep::~GraphStep() = default;

void GraphStep::enqueue(const StepCall& c, Stream& stream) const {
  c.operation->enqueue({c.in, c.out, c.workspace ? *c.workspace : nullptr, c.bad}, stream, c.line);
}

void GraphStep::queue_all() {
  for (at_ = 0; at_ < calls_.size(); ++at_) enqueue(calls_[at_], gpu_.stream());
}

std::vector<void*> GraphStep::addresses_of(const StepCall& c) const {
  std::vector<void*> all(c.in.begin(), c.in.end());
  all.insert(all.end(), c.out.begin(), c.out.end());
  all.push_back(c.workspace ? *c.workspace : nullptr);
  return all;
}

void GraphStep::capture() {
  // On a stream of its own: what other threads queue on the GPU's stream meanwhile is no part of the step.
  Stream side(gpu_);
  const auto work = [&] {
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      Captured& c = captured_[at_];
      const GraphReplay::Position before = GraphReplay::position(side);
      enqueue(calls_[at_], side);
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

// True if every address that moved could be renamed.
bool GraphStep::rename() {
  std::vector<size_t> moved;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const StepCall& c = calls_[i];
    const Captured& was = captured_[i];
    const bool same = std::equal(c.in.begin(), c.in.end(), was.addresses.begin()) &&
                      std::equal(c.out.begin(), c.out.end(), was.addresses.begin() + c.in.size()) &&
                      (c.workspace ? *c.workspace : nullptr) == was.addresses.back();
    if (same) continue;
    if (!was.renameable) return false;
    moved.push_back(i);
  }
  for (size_t i : moved) {
    at_ = i;
    Captured& c = captured_[i];
    if (!graph_->rename(c.kernel, c.kernels, [&] { enqueue(calls_[i], gpu_.stream()); })) return false;
    c.addresses = addresses_of(calls_[i]);
    counts_.renamed += c.kernels;
  }
  return true;
}

void GraphStep::run(bool moved) {
  // The first run meets what is done once: libraries choose algorithms, cells get storage of their own.
  if (!graphs_ || runs_++ == 0) {
    ++counts_.queued;
    queue_all();
    return;
  }
  if (!graph_ || (moved && !rename())) {
    if (in_a_row_ == kMostCapturesInARow) {
      graphs_ = false;
      graph_.reset();
      ++counts_.queued;
      queue_all();
      return;
    }
    ++in_a_row_;
    capture();
  } else {
    in_a_row_ = 0;
  }
  ++counts_.replays;
  graph_->launch(gpu_.stream());
}

}  // namespace weft::cuda
