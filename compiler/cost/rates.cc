#include "compiler/cost/rates.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "framework/cuda/gpu.h"
#include "framework/tensor/view.h"
#include "ops/kernels/gemm.h"

namespace weft::internal {
namespace {

constexpr int kRepetitions = 3;

// Work per second of the best of a few runs: others disturb, nobody helps.
double best_rate(double work, auto&& run) {
  double best = 1e30;
  for (int i = 0; i <= kRepetitions; ++i) {
    const double start = now_us();
    run();
    if (i > 0) best = std::min(best, now_us() - start);  // the first run touches the memory
  }
  return 1e6 * work / std::max(best, 1e-3);
}

double copy_rate() {
  constexpr int64_t kPiece = 1 << 20, kPieces = 24;  // beyond the caches that tasks share
  std::vector<char> from(kPieces * kPiece, 1), to(kPieces * kPiece);
  return best_rate(2.0 * kPieces * kPiece, [&] {
    parallel_for(kPieces, [&](int64_t i) { std::memcpy(to.data() + i * kPiece, from.data() + i * kPiece, kPiece); });
  });
}

// Memory that the allocator's statistics do not see.
struct Aligned {
  explicit Aligned(int64_t bytes) : memory(bytes + 64) {}
  void* data() { return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) & ~uintptr_t{63}); }
  std::vector<char> memory;
};

double gemm_rate(DType t) {
  constexpr int64_t n = 512;
  const Shape shape{1, n, n};
  Aligned a(n * n * itemsize(t)), b(n * n * itemsize(t)), c(n * n * itemsize(t)),
      workspace(kernels::gemm_workspace(t, t, 1, n, n, n));
  auto view = [&](Aligned& x) { return StridedView{x.data(), t, shape, contiguous_strides(shape)}; };
  return best_rate(2.0 * n * n * n, [&] { kernels::gemm(view(a), view(b), view(c), workspace.data()); });
}

// Operations of one multiprocessor in a cycle (the architectures' white papers): f32 multiply-adds and dense products
// of 16-bit operands on tensor cores. An H100 SXM at 1.83 GHz: 132 of them make 989 TFLOP/s.
Machine gpu_rates(const cuda::GpuProperties& p) {
  if (p.clock_khz <= 0 || p.memory_rate() <= 0) return kPlannedGpu;  // a driver that keeps them to itself
  const double cycles = 1e3 * p.clock_khz * p.multiprocessors;
  const double f32 = p.sm == 80 ? 128 : 256;
  const double bf16 = p.sm == 80 ? 2048 : p.sm == 90 ? 4096 : p.sm >= 100 && p.sm < 120 ? 8192 : 1024;
  return {.bytes = p.memory_rate(), .flops = cycles * f32, .products = cycles * f32, .products16 = cycles * bf16};
}

}  // namespace

Machine rates_of(Device device) {
  if (device.type == DeviceType::kCuda) return gpu_rates(cuda::gpu_properties(device.index));
  static const Machine machine{
      .bytes = copy_rate(), .products = gemm_rate(kFloat32), .products16 = gemm_rate(kBFloat16)};
  return machine;
}

}  // namespace weft::internal
