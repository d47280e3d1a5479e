// The umbrella registers the targets and the generated score_mods for every program.
#include "compiler/targets/cpu/mods/tile_mod.h"
#include "compiler/targets/cpu/target.h"
#include "compiler/targets/cuda/run/target.h"
#include "framework/cuda/libraries/driver_api.h"

namespace weft {
namespace {

[[maybe_unused]] const bool wired = [] {
  register_target(DeviceType::kCpu, &internal::cpu_target());
  register_target(DeviceType::kCuda, &cuda::cuda_target());
  internal::install_generated_mods();
  return true;
}();

}  // namespace
}  // namespace weft

namespace weft::cuda {

bool is_available() { return availability().ok; }
int device_count() { return availability().ok ? availability().devices : 0; }

}  // namespace weft::cuda
