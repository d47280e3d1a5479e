// The random generator's state: seed and step are cells, so that a compiled step reads and advances them.
#pragma once
#include <functional>

#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state/state.h"

namespace weft {

/// Restarts all random sequences from `seed`, on every device.
void manual_seed(uint64_t seed);

struct Generator {
  Buffer seed;  // i64 0-d
  Buffer step;  // i64 0-d: counts calls of compiled functions, from 1; ops outside a step use 0
};
/// The generator of a device. The CPU and meta share one; each GPU has its own, made at first use with the same seed.
/// All devices give the same numbers.
Generator& default_generator(Device device = Device::cpu());

/// The key of one random op: 0-d i64 seed and step, and the op's ordinal in its step scope.
struct RandomKey {
  Tensor seed, step;
  int64_t op_id = 0;
};
/// `device`: where the op runs and the key is stored.
RandomKey next_random_key(Device device = Device::cpu());

namespace internal {
/// Drops the generators of this kind of device; called before its memory goes away.
void forget_generators(DeviceType type);

/// During its lifetime, random ops of this thread use change(seed), inside the change of the scopes around it: the body
/// of a loop is traced once and draws other numbers in each iteration.
class SeedScope {
 public:
  using SeedChange = std::function<Tensor(const Tensor& seed)>;
  explicit SeedScope(SeedChange change);
  ~SeedScope();
  SeedScope(const SeedScope&) = delete;
  /// The seed that random ops use here.
  static Tensor changed(const Tensor& seed);

 private:
  const SeedChange change_;
  const SeedScope* const outer_;
  Tensor apply(const Tensor& seed) const;
};

/// Opens the step scope of one call of a function that is not compiled.
class EagerStep {
 public:
  EagerStep();
  ~EagerStep();
  /// True if a random op was called.
  bool used() const { return scope_.used(); }

 private:
  StepScope scope_;
  StepScope* saved_;
};
}  // namespace internal

}  // namespace weft
