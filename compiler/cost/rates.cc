#include "compiler/cost/rates.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "framework/cuda/gpu.h"
#include "framework/tensor/view.h"
#include "ops/kernels/gemm.h"

namespace weft {
namespace {

constexpr int kRepetitions = 4;

// Work per second of the fastest of a few runs: other processes only slow a run down.
double best_rate(double work, auto&& run) {
  double best = 1e30;
  for (int i = 0; i <= kRepetitions; ++i) {
    const double start = internal::now_us();
    run();
    if (i > 0) best = std::min(best, internal::now_us() - start);  // the first run touches the memory
  }
  return 1e6 * work / std::max(best, 1e-3);
}

// Aligned memory that the allocator's statistics do not include.
struct Memory {
  explicit Memory(int64_t bytes) : memory(new char[static_cast<size_t>(bytes + 64)]) {
    data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63});
  }
  std::unique_ptr<char[]> memory;
  char* data;
};

// Values in [-1, 1) whose bits vary: with zeros a processor takes less power and may run faster.
Memory varied(DType t, int64_t elements) {
  Memory m(elements * itemsize(t));
  for (int64_t i = 0; i < elements; ++i) {
    const auto hash = static_cast<uint32_t>(i) * 2654435761u;
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(hash)) * 0x1p-31f);
    if (t == kFloat32)
      reinterpret_cast<uint32_t*>(m.data)[i] = bits;
    else
      reinterpret_cast<uint16_t*>(m.data)[i] = static_cast<uint16_t>(bits >> 16);  // bf16
  }
  return m;
}

double copy_rate() {
  constexpr int64_t kPiece = 1 << 20, kPieces = 64;  // more than the caches that a core can use
  const Memory from = varied(kFloat32, kPieces * kPiece / 4), to(kPieces * kPiece);
  return best_rate(2.0 * kPieces * kPiece, [&] {
    parallel_for(kPieces, [&](int64_t i) { std::memcpy(to.data + i * kPiece, from.data + i * kPiece, kPiece); });
  });
}

double gemm_rate(DType t, int64_t n) {
  const Shape shape{1, n, n};
  const Memory a = varied(t, n * n), b = varied(t, n * n), c(n * n * itemsize(t)),
               workspace(kernels::gemm_workspace(t, t, 1, n, n, n));
  auto view = [&](const Memory& x) { return StridedView{x.data, t, shape, contiguous_strides(shape)}; };
  return best_rate(2.0 * static_cast<double>(n * n * n),
                   [&] { kernels::gemm(view(a), view(b), view(c), workspace.data); });
}

double gemm_rate(DType t) {
  const double small = gemm_rate(t, 512);
  return small < 2e10 ? small : std::max(small, gemm_rate(t, 1024));  // a slow kernel needs no larger product
}

// Operations of one multiprocessor per cycle (the architectures' white papers): f32 multiply-adds, and dense products
// of 16-bit operands on tensor cores, at the data sheet's clock. An H100 SXM at 1.83 GHz: 132 of them make 989 TFLOP/s.
Machine gpu_rates(const cuda::GpuProperties& p) {
  if (p.clock_khz <= 0 || p.memory_rate() <= 0) {  // the driver reports none
    Machine m = planned_machine(DeviceType::kCuda);
    m.reached = 1;
    m.launch = 0;
    return m;
  }
  const double khz = p.sm == 90 ? std::min(p.clock_khz, 1830000) : p.clock_khz;
  const double cycles = 1e3 * khz * p.multiprocessors;
  const double f32 = p.sm == 80 ? 128 : 256;
  const double bf16 = p.sm == 80 ? 2048 : p.sm == 90 ? 4096 : p.sm >= 100 && p.sm < 120 ? 8192 : 1024;
  return {.bytes = p.memory_rate(), .flops = cycles * f32, .products = cycles * f32, .products16 = cycles * bf16};
}

}  // namespace

Machine measured_cpu() {
  Machine m{.bytes = copy_rate(), .products = gemm_rate(kFloat32), .products16 = gemm_rate(kBFloat16)};
  m.flops = m.products / 2;
  return m;
}

Machine rates_of(Device device) {
  if (device.type == DeviceType::kCuda) return gpu_rates(cuda::gpu_properties(device.index));
  static const Machine cpu = measured_cpu();
  return cpu;
}

}  // namespace weft
