#include "tools/plan/attention_rate.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace weft::planner {
namespace {

// TFLOP/s of FlashAttention-3 with heads of 128 at 512, 1024, ... to 16384 tokens: causal forward, and backward.
constexpr double kForwardCurve[] = {292, 423, 521, 579, 602, 616};
constexpr double kBackwardCurve[] = {316, 424, 501, 542, 559, 561};
constexpr double kFirst = 512;

struct Measured {
  double long128, short64;  // TFLOP/s at 8192 tokens with heads of 128, and at 1024 tokens with heads of 64
};
struct Kernel {
  Measured forward, backward;
};
constexpr Kernel kKernels[] = {{{493, 201}, {383, 118}},   // Weft's
                               {{508, 307}, {486, 212}},   // cuDNN's
                               {{282, 193}, {263, 138}}};  // FlashAttention 2
constexpr double kMeasuredPeak = 989.5e12;                 // peak of the GPU with these rates

double on_curve(const double (&curve)[6], double length) {
  const double at = std::clamp(std::log2(std::max(length, 1.0) / kFirst), 0.0, 5.0);
  const auto below = static_cast<size_t>(std::min(at, 4.0));
  return std::lerp(curve[below], curve[below + 1], at - static_cast<double>(below));
}

}  // namespace

AttentionKernel attention_kernel(const std::string& name) {
  if (name == "cudnn") return AttentionKernel::kCudnn;
  if (name == "flash2") return AttentionKernel::kFlash2;
  WEFT_CHECK(name == "weft", "attention: got '", name.substr(0, 40), "'; need weft, cudnn or flash2");
  return AttentionKernel::kWeft;
}

double attention_rate(const Machine& m, AttentionKernel kernel, double length, double head_dim, bool backward) {
  if (m.multiprocessors == 0) return 0;
  const Kernel& k = kKernels[static_cast<size_t>(kernel)];
  const Measured& measured = backward ? k.backward : k.forward;
  const auto& curve = backward ? kBackwardCurve : kForwardCurve;
  const double wide = measured.long128 * on_curve(curve, length) / on_curve(curve, 8192),
               narrow = measured.short64 * on_curve(curve, length) / on_curve(curve, 1024),
               rate = std::lerp(narrow, wide, std::clamp((head_dim - 64) / 64, 0.0, 1.0));
  return 1e12 * rate * m.products16 / kMeasuredPeak;
}

}  // namespace weft::planner
