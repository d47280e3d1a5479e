#include "compiler/targets/cuda/nvrtc/arch.h"

namespace weft::cuda {

SharedLimits shared_limits(int sm) {
  constexpr int kb = 1024;
  if (sm == 80 || sm == 87) return {163 * kb, 164 * kb};
  if (sm == 86 || sm == 89 || sm >= 120) return {99 * kb, 100 * kb};
  if (sm >= 90) return {227 * kb, 228 * kb};
  return {48 * kb, 48 * kb};
}

}  // namespace weft::cuda
