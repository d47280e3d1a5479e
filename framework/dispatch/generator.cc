#include "framework/dispatch/generator.h"

#include <atomic>

#include "framework/dispatch/state.h"

namespace weft {

using internal::thread_state;

namespace {
Tensor scalar_i64(int64_t v) { return Tensor::from_vector<int64_t>({v}, Shape{}); }
std::atomic<int64_t> implicit_ordinal{0};
}  // namespace

Generator& default_generator() {
  static auto* g = new Generator{Buffer(scalar_i64(0), "rng.seed"), Buffer(scalar_i64(1), "rng.step")};
  return *g;
}

void manual_seed(uint64_t seed) {
  Generator& g = default_generator();
  g.seed.set(scalar_i64(static_cast<int64_t>(seed)));
  g.step.set(scalar_i64(1));
  implicit_ordinal = 0;
}

RandomKey next_random_key() {
  Generator& g = default_generator();
  RandomKey k;
  k.seed = g.seed.value();
  if (internal::StepScope* s = thread_state.step) {
    k.step = g.step.value();
    k.op_id = s->ordinal++;
    s->used = true;
  } else {
    static const Tensor* outside = new Tensor(scalar_i64(0));
    k.step = *outside;
    k.op_id = implicit_ordinal.fetch_add(1);
  }
  return k;
}

namespace internal {
EagerStep::EagerStep() : saved_(thread_state.step) { thread_state.step = &scope_; }
EagerStep::~EagerStep() { thread_state.step = saved_; }
}  // namespace internal

}  // namespace weft
