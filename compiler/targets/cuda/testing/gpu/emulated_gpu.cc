#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "compiler/targets/cuda/run/operation_blas.h"
#include "compiler/targets/cuda/run/operation_load.h"
#include "compiler/targets/cuda/run/target.h"
#include "framework/base/error.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_error.h"

namespace weft::cuda::testing {

ScopedEmulatedGpu::ScopedEmulatedGpu(EmulatedGpuOptions options) : options_(std::move(options)), driver_(options_.gpu) {
  in_place_.emplace(driver_.table());
  driver_.set_resolver([this](const void* image, const std::string& symbol) { return find(image, symbol); });
  internal::set_cublaslt(&blas_.table());
  internal::set_kernel_compiler([this](std::span<const Kernel> kernels, Arch) { return images_of(kernels); });
  register_target(DeviceType::kCuda, &cuda_target());
  DeviceAllocator& allocator = Gpu::get(0).allocator();
  allocator.set_poison(true);  // freed memory reads as NaN
  driver_.set_live_memory([&allocator](CUdeviceptr p) -> std::optional<FakeRange> {
    auto [begin, bytes] = allocator.holding(reinterpret_cast<const void*>(p));
    if (!begin) return std::nullopt;
    return FakeRange{reinterpret_cast<CUdeviceptr>(begin), static_cast<size_t>(bytes)};
  });
}

ScopedEmulatedGpu::~ScopedEmulatedGpu() {
  in_place_.reset();
  internal::set_kernel_compiler(nullptr);
  internal::set_cublaslt(nullptr);
  for (const std::string& fault : take_faults()) ADD_FAILURE() << fault;
  if (options_.no_leaks) {
    EXPECT_EQ(driver_.leaks(), "");
    EXPECT_EQ(blas_.alive(), 0);
  }
}

std::vector<std::string> ScopedEmulatedGpu::take_faults() {
  std::vector<std::string> all = driver_.take_complaints();
  for (; faults_seen_ < blas_.faults().size(); ++faults_seen_)
    all.push_back(str_cat("cublaslt: ", blas_.faults()[faults_seen_]));
  return all;
}

// Kernels of one request are built together, except kernels of the same name.
std::vector<std::string> ScopedEmulatedGpu::images_of(std::span<const Kernel> kernels) {
  std::vector<std::string> images(kernels.size());
  std::vector<size_t> left;
  for (size_t i = 0; i < kernels.size(); ++i) left.push_back(i);
  while (!left.empty()) {
    std::vector<Kernel> batch;
    std::vector<size_t> of, later;
    std::set<std::string> names;
    for (size_t i : left) {
      if (names.insert(kernels[i].symbol).second) {
        batch.push_back(kernels[i]);
        of.push_back(i);
      } else {
        later.push_back(i);
      }
    }
    EmulatedOptions o;
    o.races = options_.races;
    auto emulated = std::make_shared<Emulated>(batch, o);
    for (size_t i : of) {
      images[i] = str_cat("emulated ", kernels_.size());
      images[i].push_back('\0');
      kernels_.push_back({emulated, kernels[i]});
    }
    left = std::move(later);
  }
  return images;
}

std::optional<FakeKernel> ScopedEmulatedGpu::find(const void* image, const std::string& symbol) {
  const std::string text = static_cast<const char*>(image);
  FakeKernel k;
  if (text.rfind("emulated ", 0) != 0) return std::nullopt;
  const Entry& e = kernels_[std::strtoull(text.c_str() + 9, nullptr, 10)];
  if (symbol != e.kernel.symbol) return std::nullopt;
  k.parameter_bytes = e.emulated->parameter_bytes(symbol);
  k.max_threads = e.kernel.threads;
  k.run = [&emulated = *e.emulated, kernel = e.kernel](const FakeLaunch& l) {
    WEFT_CHECK(static_cast<int>(l.block[0]) == kernel.threads, "kernel ", kernel.symbol, ": launched with ", l.block[0],
               " threads; made for ", kernel.threads);
    WEFT_CHECK(static_cast<int>(l.shared_bytes) == kernel.shared_bytes, "kernel ", kernel.symbol, ": launched with ",
               l.shared_bytes, " bytes of shared memory; made for ", kernel.shared_bytes);
    emulated.forget_ranges();  // only memory that was live at the launch
    for (const FakeRange& block : l.pointed)
      emulated.allow(str_cat("a block of ", block.bytes, " bytes"), reinterpret_cast<const void*>(block.address),
                     block.bytes);
    emulated.launch(kernel.symbol, {l.grid[0], l.grid[1], l.grid[2]}, std::span<const std::byte>(l.parameters));
  };
  return k;
}

}  // namespace weft::cuda::testing
