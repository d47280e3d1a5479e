// The random generator's state: seed and step are cells, so that a compiled step reads and advances them.
#pragma once
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state.h"

namespace weft {

/// Starts all random sequences anew from `seed`, on every device.
void manual_seed(uint64_t seed);

struct Generator {
  Buffer seed;  // i64 0-d
  Buffer step;  // i64 0-d: counts calls of compiled functions, from 1; ops outside any use step 0
};
/// The generator of a device: the CPU's and meta's are one, each GPU has its own, made at first use with the same seed.
/// The same numbers come out everywhere.
Generator& default_generator(Device device = Device::cpu());

/// What one random op is keyed by: 0-d i64 seed and step, and the op's ordinal in its step scope.
struct RandomKey {
  Tensor seed, step;
  int64_t op_id = 0;
};
/// `device`: where the op runs, and the key lies.
RandomKey next_random_key(Device device = Device::cpu());

namespace internal {
/// Before memory of this kind of device goes: its generators go too.
void forget_generators(DeviceType type);

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
