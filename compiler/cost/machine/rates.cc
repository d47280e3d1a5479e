#include "compiler/cost/machine/rates.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "compiler/cost/machine/best_of_runs.h"
#include "compiler/cost/machine/kept_rates.h"
#include "compiler/cost/machine/machine_file.h"
#include "compiler/cost/machine/memory_rates.h"
#include "framework/base/error.h"
#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/cuda/gpu.h"
#include "framework/tensor/view.h"
#include "ops/kernels/products/gemm.h"

namespace weft {
namespace {

using internal::AlignedMemory;
using internal::best_seconds;

// Values in [-1, 1) whose bits vary: with zeros a processor takes less power and may run faster.
AlignedMemory varied(DType t, int64_t elements) {
  AlignedMemory m(elements * itemsize(t));
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

// Seconds until all threads have begun and ended a task.
double fork_join_seconds() {
  constexpr int kTasks = 64;
  const auto run = [] {
    for (int i = 0; i < kTasks; ++i) parallel_for(ThreadPool::current().size(), [](int64_t) {});
  };
  run();  // wakes the threads
  return best_seconds(8, run) / kTasks;
}

double best_gemm_rate(DType t, int repetitions) {
  const auto square = [&](int64_t n) { return gemm_rate(t, n, n, n, repetitions); };
  const double small = square(512);
  return small < 2e10 ? small : std::max(small, square(1024));  // a slow kernel needs no larger one
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
  return {.bytes = p.memory_rate(),
          .flops = cycles * f32,
          .products = cycles * f32,
          .products_tf32 = cycles * bf16 / 2,
          .products16 = cycles * bf16};
}

}  // namespace

double gemm_rate(DType t, int64_t m, int64_t n, int64_t k, int repetitions) {
  const AlignedMemory a = varied(t, m * k), b = varied(t, k * n), c(m * n * itemsize(t)),
                      workspace(kernels::gemm_workspace(t, t, 1, m, n, k));
  auto view = [&](const AlignedMemory& x, int64_t rows, int64_t columns) {
    const Shape shape{1, rows, columns};
    return StridedView{x.data, t, shape, contiguous_strides(shape)};
  };
  const auto run = [&] { kernels::gemm(view(a, m, k), view(b, k, n), view(c, m, n), workspace.data); };
  run();  // touches the memory
  return 2.0 * static_cast<double>(m * n * k) / best_seconds(repetitions, run);
}

std::vector<ProductShare> measured_product_shares(double launch, int repetitions) {
  constexpr int64_t kRows = 2048, kSides[] = {16, 32, 64, 128, 256, 512};
  std::vector<ProductShare> shares;
  for (int64_t side : kSides) shares.push_back({.side = static_cast<double>(side)});
  for (const DType t : {kFloat32, kBFloat16}) {
    double most = best_gemm_rate(t, repetitions);
    std::vector<double> rates;
    for (int64_t side : kSides) {
      const double operations = 4.0 * static_cast<double>(kRows * side * side);
      double seconds = 0;
      // Forward, and backward's gradients of the input and of the weight.
      for (auto [m, n, k] : {std::array{kRows, 2 * side, side}, {kRows, side, 2 * side}, {side, 2 * side, kRows}}) {
        // A small product may not start other threads, and then a launch adds less.
        const double whole = operations / gemm_rate(t, m, n, k, repetitions);
        seconds += std::max(whole - launch, whole / 2);
      }
      most = std::max(most, rates.emplace_back(3 * operations / seconds));
    }
    for (size_t i = 0; i < shares.size(); ++i) (t == kFloat32 ? shares[i].f32 : shares[i].bits16) = rates[i] / most;
  }
  return shares;
}

Machine measured_cpu(int repetitions) {
  Machine m{.products = best_gemm_rate(kFloat32, repetitions),
            .products16 = best_gemm_rate(kBFloat16, repetitions),
            .launch = fork_join_seconds()};
  m.flops = m.products / 2;
  m.memory_rates = measured_memory_rates(repetitions);
  m.bytes = m.memory_rates.back().copy;
  return m;
}

Machine faster_of(Machine a, const Machine& b) {
  for (double Machine::*rate : {&Machine::bytes, &Machine::flops, &Machine::products, &Machine::products16})
    a.*rate = std::max(a.*rate, b.*rate);
  a.launch = std::min(a.launch, b.launch);
  const bool same = std::equal(a.memory_rates.begin(), a.memory_rates.end(), b.memory_rates.begin(),
                               b.memory_rates.end(), [](auto& x, auto& y) { return x.bytes == y.bytes; });
  WEFT_CHECK(same, "faster_of: got rates of ", a.memory_rates.size(), " and ", b.memory_rates.size(),
             " working sets; need the same sets");
  for (size_t i = 0; i < a.memory_rates.size(); ++i)
    for (double MemoryRate::*rate : {&MemoryRate::read, &MemoryRate::write, &MemoryRate::copy})
      a.memory_rates[i].*rate = std::max(a.memory_rates[i].*rate, b.memory_rates[i].*rate);
  return a;
}

Machine rates_of(Device device) {
  if (device.type == DeviceType::kCuda) return gpu_rates(cuda::gpu_properties(device.index));
  const std::string file = switch_value("WEFT_MACHINE");
  if (!file.empty()) try {
      Machine m = read_machine(file);
      m.reached = 1;
      m.product_shares.clear();
      m.attention_shares.clear();
      return m;
    } catch (const Error& e) {
      throw Error(e.code(), str_cat("WEFT_MACHINE needs a file of doctor --measure --out: ", e.what()));
    }
  static const Machine cpu = [] {
    const int threads = num_threads();
    return internal::kept_or_measured(threads, [&] {
      const internal::Disturbance others;
      const Machine measured = measured_cpu();
      return internal::KeptRates{measured, others.seen(threads)};
    });
  }();
  return cpu;
}

std::optional<Machine> known_rates(Device device) {
  if (device.type == DeviceType::kCuda || !switch_value("WEFT_MACHINE").empty()) return rates_of(device);
  const std::optional<internal::KeptRates> kept = internal::kept_rates(threads_alone());
  return kept ? std::optional(kept->rates) : std::nullopt;
}

int threads_alone() {
  const auto asked = static_cast<int>(switch_int("WEFT_THREADS"));
  return asked > 0 ? asked : max_threads();
}

}  // namespace weft
