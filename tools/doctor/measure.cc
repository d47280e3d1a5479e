#include "tools/doctor/measure.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "compiler/cost/machine/best_of_runs.h"
#include "compiler/cost/machine/kept_rates.h"
#include "compiler/cost/machine/rates.h"
#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/base/thread_pool.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_error.h"
#include "framework/cuda/transfer/copy.h"
#include "framework/cuda/transfer/pinned_pool.h"
#include "framework/tensor/view.h"
#include "tools/doctor/machine.h"

namespace weft::tools {
namespace {

constexpr int kRepetitions = 10;
constexpr double kGiga = 1e9;

void add_rate(FactList& facts, const std::string& name, double rate, const char* unit) {
  facts.add("measured", name, rate / kGiga, unit);
}

// Adds the rate, its limit by the hardware's clock, and the reached share of the limit.
void add_rate(FactList& facts, const std::string& name, double rate, double theoretical, const char* unit) {
  add_rate(facts, name, rate, unit);
  if (theoretical <= 0) return;
  add_rate(facts, name + "_theoretical", theoretical, unit);
  facts.add("measured", name + "_share", 100 * rate / theoretical, "%");
}

// f32 operations of a core in a cycle: two units for multiply-adds of the widest vectors (Intel since Skylake-SP, AMD
// since Zen 5; others have half of it with AVX-512).
double f32_of_cycle() {
  constexpr double kUnits = 2, kOperations = 2;
  const double lanes = selected_isa() == Isa::avx512 ? 16 : selected_isa() == Isa::avx2 ? 8 : 4;
  return kUnits * kOperations * lanes;
}

// bf16 operations of a core in a cycle: a tile unit's products of 16 x 32 by 32 x 16 take 16 cycles; without a tile
// unit, the vectors' products of pairs, or the operations in f32.
double bf16_of_cycle() {
  const CpuFeatures& f = cpu_features();
  return f.amx_bf16 ? 2.0 * 16 * 16 * 32 / 16 : f.avx512_bf16 ? 2 * f32_of_cycle() : f32_of_cycle();
}

Machine add_rates(FactList& facts, const std::string& threads) {
  const Machine m = measured_cpu(kRepetitions);
  for (const MemoryRate& r : m.memory_rates) {
    const std::string of = str_cat("_", static_cast<int64_t>(r.bytes) >> 10, "KiB_", threads);
    add_rate(facts, "read" + of, r.read, "GB/s");
    add_rate(facts, "write" + of, r.write, "GB/s");
    add_rate(facts, "copy" + of, r.copy, "GB/s");
  }
  const double cycles = clock_hz() * ThreadPool::current().size();
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t n : {128, 256, 512, 1024, 2048})
      add_rate(facts, str_cat("gemm_", t, "_", n, "_", threads), gemm_rate(t, n, n, n),
               cycles * (t == kFloat32 ? f32_of_cycle() : bf16_of_cycle()), "GFLOP/s");
  facts.add("measured", "parallel_loop_" + threads, 1e6 * m.launch, "us");
  return m;
}

// Bytes per second of the fastest of a few runs of a copy.
double copy_rate(int64_t bytes, const std::function<void()>& run) {
  return static_cast<double>(bytes) / internal::best_seconds(kRepetitions, run);
}

// Memory of a GPU.
struct OnGpu {
  OnGpu(cuda::Gpu& on, int64_t n) : gpu(on), bytes(n), data(gpu.allocator().allocate(n)) {}
  ~OnGpu() { gpu.allocator().deallocate(data, bytes); }
  OnGpu(const OnGpu&) = delete;
  cuda::Gpu& gpu;
  int64_t bytes;
  void* data;
};

void add_rates(FactList& facts, cuda::Gpu& gpu, int devices) {
  const int64_t n = std::min<int64_t>(int64_t{64} << 20, gpu.properties().memory / 16);
  const Shape shape{n};
  const auto view = [&](void* p) { return StridedView{p, kUInt8, shape, contiguous_strides(shape)}; };
  const std::unique_ptr<char[]> pageable(new char[n]());
  const OnGpu there(gpu, n), other(gpu, n);
  void* const block = gpu.pinned().take(n);
  const auto name = [&](const char* what) { return str_cat("gpu_", gpu.index(), "_", what); };
  const auto rate = [&](const char* what, auto&& copy) {
    add_rate(facts, name(what),
             copy_rate(n,
                       [&] {
                         copy();
                         gpu.synchronize();
                       }),
             "GB/s");
  };
  const StridedView paged = view(pageable.get()), here = view(there.data);
  const cuda::CUstream stream = gpu.stream().handle();
  const auto at = reinterpret_cast<cuda::CUdeviceptr>(here.data);
  const size_t bytes = static_cast<size_t>(n);
  rate("to_device_pinned",
       [&] { cuda::check(cuda::driver().cuMemcpyHtoDAsync_v2(at, block, bytes, stream), "copying"); });
  rate("to_device_pageable", [&] { cuda::copy_to_device(paged, here, gpu.stream()); });
  rate("to_host_pinned",
       [&] { cuda::check(cuda::driver().cuMemcpyDtoHAsync_v2(block, at, bytes, stream), "copying"); });
  rate("to_host_pageable", [&] { cuda::copy_to_host(here, paged, gpu.stream()); });
  gpu.pinned().give_back(block);
  const double copied = copy_rate(2 * n, [&] {
    cuda::copy_on_device(here, view(other.data), gpu.stream());
    gpu.synchronize();
  });
  add_rate(facts, name("copy"), copied, gpu.properties().memory_rate(), "GB/s");
  for (int i = 0; i < devices; ++i) {
    if (i == gpu.index()) continue;
    cuda::Gpu& peer = cuda::Gpu::get(i);
    const OnGpu remote(peer, n);
    rate(str_cat("to_gpu_", i).c_str(), [&] {
      cuda::copy_between_devices(here, gpu, view(remote.data), peer);
      peer.synchronize();
    });
  }
}

}  // namespace

Machine add_cpu_rates(FactList& facts) {
  {
    ThreadPool one(1);
    const ScopedPool pool(one);
    add_rates(facts, "1_thread");
  }
  const internal::Disturbance others;
  Machine all = add_rates(facts, "all_cores");
  internal::keep_rates({all, others.seen(num_threads())}, num_threads());
  all.name = cpu_features().brand;
  all.memory = usable_memory();
  all.product_shares = measured_product_shares(all.launch, kRepetitions);
  for (const ProductShare& p : all.product_shares) {
    facts.add("measured", str_cat("linear_f32_", p.side, "_share"), 100 * p.f32, "%");
    facts.add("measured", str_cat("linear_bf16_", p.side, "_share"), 100 * p.bits16, "%");
  }
  return all;
}

void add_gpu_rates(FactList& facts) {
  const cuda::Availability& driver = cuda::availability();
  for (int i = 0; driver.ok && i < driver.devices; ++i) {
    try {
      add_rates(facts, cuda::Gpu::get(i), driver.devices);
    } catch (const Error& e) {
      facts.add_absent("measured", str_cat("gpu_", i), e.what());
    }
  }
}

}  // namespace weft::tools
