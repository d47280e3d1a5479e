#include "tools/measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <dnnl.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "third_party/openmp/openmp.h"
#include "tools/machine.h"

namespace weft::tools {
namespace {

// The median seconds of `body`, repeated for about 0.4 s after one call that is not counted.
template <typename F>
double median_seconds(F body) {
  using Clock = std::chrono::steady_clock;
  body();
  std::vector<double> times;
  for (double total = 0; total < 0.4 || times.size() < 3; total += times.back()) {
    auto begin = Clock::now();
    body();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

double copy_rate(int threads) {
  // Large against any cache, small against memory.
  auto bytes = static_cast<size_t>(std::min(512.0 * (1 << 20), usable_memory() / 8)) / 4096 * 4096;
  std::unique_ptr<char[]> from(new char[bytes]), to(new char[bytes]);
  std::memset(from.get(), 1, bytes);
  std::memset(to.get(), 2, bytes);
  double seconds = median_seconds([&] {
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      size_t begin = bytes / threads * i, end = i + 1 == threads ? bytes : bytes / threads * (i + 1);
      workers.emplace_back([&, begin, end] { std::memcpy(to.get() + begin, from.get() + begin, end - begin); });
    }
    for (std::thread& worker : workers) worker.join();
  });
  return 2.0 * static_cast<double>(bytes) / seconds * 1e-9;
}

// GFLOP/s of C[n, n] = A[n, n] B[n, n] with f32 sums, B packed as oneDNN likes it best; throws dnnl::error.
double gemm_rate(dnnl::memory::data_type type, int64_t n, int threads) {
  using dnnl::memory;
  using Tag = memory::format_tag;
  omp_set_num_threads(threads);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  memory::desc a({n, n}, type, Tag::ab), b_any({n, n}, type, Tag::any), c({n, n}, memory::data_type::f32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc plan(engine, a, b_any, c);
#else
  dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(a, b_any, c), engine);
#endif
  dnnl::matmul multiply(plan);
  memory x(a, engine), w(plan.weights_desc(), engine), y(c, engine);
  // 1.0 in either dtype: zeros would cost less power and flatter the rate.
  for (const memory& m : {x, w}) {
    if (type == memory::data_type::f32)
      std::fill_n(static_cast<float*>(m.get_data_handle()), m.get_desc().get_size() / 4, 1.0f);
    else
      std::fill_n(static_cast<uint16_t*>(m.get_data_handle()), m.get_desc().get_size() / 2, uint16_t{0x3f80});
  }
  double seconds = median_seconds([&] {
    multiply.execute(stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}});
    stream.wait();
  });
  return 2e-9 * static_cast<double>(n * n * n) / seconds;
}

}  // namespace

void add_measured(Facts& facts) {
  int cores = usable_cores();
  std::vector<int> counts = {1};
  if (cores > 1) counts.push_back(cores);
  auto suffix = [](int threads) { return threads == 1 ? std::string("_1_thread") : std::string("_all_cores"); };
  for (int threads : counts) facts.add("measured", "copy" + suffix(threads), copy_rate(threads), "GB/s");
  for (auto [name, type] : {std::pair("f32", dnnl::memory::data_type::f32), {"bf16", dnnl::memory::data_type::bf16}}) {
    for (int threads : counts) {
      std::string key = "gemm_" + std::string(name) + suffix(threads);
      try {
        double rate = gemm_rate(type, 512, threads);
        // A slow path would take minutes at full size.
        if (rate > 20) rate = gemm_rate(type, 2048, threads);
        facts.add("measured", key, rate, "GFLOP/s");
      } catch (const dnnl::error& error) {
        facts.add_absent("measured", key, std::string("oneDNN: ") + error.what());
      }
    }
  }
}

}  // namespace weft::tools
