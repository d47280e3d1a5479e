// Micro benchmarks of the kernels: ./bazelw run //ops/kernels:bench. Bytes count every operand once.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/products/gemm.h"

namespace weft::kernels {
namespace {

// Normal data: arithmetic on zeros is unrealistically fast.
struct NormalData {
  std::vector<char> memory;
  StridedView view;
  NormalData(DType dtype, const Shape& shape, const Shape& strides) : memory(shape.numel() * itemsize(dtype) + 64) {
    void* p = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    view = {p, dtype, shape, strides};
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> sample(4096);
    for (float& v : sample) v = normal(random);
    for (int64_t i = 0, n = shape.numel(); i < n; i += 4096) {
      const int64_t m = std::min<int64_t>(4096, n - i);
      cast_copy({sample.data(), kFloat32, {m}, {1}}, {static_cast<char*>(p) + i * itemsize(dtype), dtype, {m}, {1}});
    }
  }
  NormalData(DType dtype, const Shape& shape) : NormalData(dtype, shape, contiguous_strides(shape)) {}
};

void rate(benchmark::State& state, int64_t bytes) { state.SetBytesProcessed(state.iterations() * bytes); }

void BM_Add16(benchmark::State& state) {
  NormalData a(kFloat32, {16}), b(kFloat32, {16}), c(kFloat32, {16});
  const StridedView in[] = {a.view, b.view};
  for (auto _ : state) pointwise(Pw::add, in, c.view);
}
BENCHMARK(BM_Add16);

void BM_Add16Direct(benchmark::State& state) {
  NormalData a(kFloat32, {16}), b(kFloat32, {16}), c(kFloat32, {16});
  const PwFn fn = pointwise_contiguous_fn(Pw::add, kFloat32);
  const void* in[] = {a.view.data, b.view.data};
  for (auto _ : state) {
    fn(in, c.view.data, 16, 0);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_Add16Direct);

// Slices of a [2048, 1024] matrix along dim, in an irregular order or backwards (flip).
void select(benchmark::State& state, int dim, bool backwards, DType t) {
  const Shape shape{2048, 1024};
  NormalData x(t, shape), y(t, shape), index(kInt64, {shape[dim]});
  for (int64_t i = 0; i < shape[dim]; ++i)
    static_cast<int64_t*>(index.view.data)[i] = (backwards ? shape[dim] - 1 - i : i * 389) % shape[dim];
  for (auto _ : state) index_select(x.view, index.view, dim, y.view);
  rate(state, 2 * shape.numel() * itemsize(t));
}
BENCHMARK_CAPTURE(select, rows_f32, 0, false, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(select, columns_f32, 1, false, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(select, flip_rows_f32, 0, true, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(select, flip_columns_f32, 1, true, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(select, flip_columns_bf16, 1, true, kBFloat16)->UseRealTime()->Unit(benchmark::kMillisecond);

constexpr int64_t kN = 4096;
void unary(benchmark::State& state, Pw op, DType t) {
  NormalData a(t, {kN, kN}), c(t, {kN, kN});
  for (auto _ : state) pointwise(op, {&a.view, 1}, c.view);
  rate(state, 2 * kN * kN * itemsize(t));
}
BENCHMARK_CAPTURE(unary, exp_f32, Pw::exp, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(unary, tanh_f32, Pw::tanh, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(unary, exp_bf16, Pw::exp, kBFloat16)->UseRealTime()->Unit(benchmark::kMillisecond);

void binary(benchmark::State& state, const Shape& a_strides, const Shape& b_strides) {
  NormalData a(kFloat32, {kN, kN}, a_strides), b(kFloat32, {kN, kN}, b_strides), c(kFloat32, {kN, kN});
  const StridedView in[] = {a.view, b.view};
  int64_t bytes = kN * kN * 4;
  for (const Shape& s : {a_strides, b_strides}) bytes += s[0] && s[1] ? kN * kN * 4 : 0;
  for (auto _ : state) pointwise(Pw::add, in, c.view);
  rate(state, bytes);
}
BENCHMARK_CAPTURE(binary, add, {kN, 1}, {kN, 1})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(binary, add_row, {kN, 1}, {0, 1})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(binary, add_column, {kN, 1}, {1, 0})->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(binary, add_transposed, {1, kN}, {kN, 1})->UseRealTime()->Unit(benchmark::kMillisecond);

void copy(benchmark::State& state, const Shape& strides, DType to) {
  NormalData a(kFloat32, {kN, kN}, strides), c(to, {kN, kN});
  for (auto _ : state) cast_copy(a.view, c.view);
  rate(state, kN * kN * (4 + itemsize(to)));
}
BENCHMARK_CAPTURE(copy, f32, {kN, 1}, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(copy, transpose_f32, {1, kN}, kFloat32)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(copy, to_bf16, {kN, 1}, kBFloat16)->UseRealTime()->Unit(benchmark::kMillisecond);

void reduction(benchmark::State& state, Rd op, const Shape& shape, uint32_t mask, DType t) {
  NormalData a(t, shape);
  Shape kept;
  for (int d = 0; d < shape.size(); ++d)
    if (!(mask >> d & 1)) kept.push_back(shape[d]);
  NormalData c(op == Rd::argmax ? kInt64 : kFloat32, kept);
  std::vector<char> workspace(reduce_workspace(op, t, shape, mask) + 64);
  void* ws = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  for (auto _ : state) reduce(op, a.view, mask, c.view, ws);
  rate(state, shape.numel() * itemsize(t));
}
#define REDUCE(name, op, shape, mask, t) \
  BENCHMARK_CAPTURE(reduction, name, op, shape, mask, t)->UseRealTime()->Unit(benchmark::kMillisecond)
REDUCE(sum_rows, Rd::sum, (Shape{kN, kN}), 2, kFloat32);
REDUCE(sum_columns, Rd::sum, (Shape{kN, kN}), 1, kFloat32);
REDUCE(sum_all, Rd::sum, (Shape{kN, kN}), 3, kFloat32);
REDUCE(sum_rows_bf16, Rd::sum, (Shape{kN, kN}), 2, kBFloat16);
REDUCE(max_rows, Rd::max, (Shape{kN, kN}), 2, kFloat32);
REDUCE(argmax_rows, Rd::argmax, (Shape{kN, kN}), 2, kFloat32);
REDUCE(sum_short_rows, Rd::sum, (Shape{kN * 64, 64}), 2, kFloat32);
REDUCE(sum_middle, Rd::sum, (Shape{64, 512, 512}), 2, kFloat32);

void matmul(benchmark::State& state, DType t, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  NormalData a(t, {batch, m, k}, ta ? Shape{m * k, 1, m} : Shape{m * k, k, 1});
  NormalData b(t, {batch, k, n}, tb ? Shape{n * k, 1, k} : Shape{n * k, n, 1}), c(t, {batch, m, n});
  std::vector<char> workspace(gemm_workspace(t, t, batch, m, n, k) + 64);
  void* ws = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  gemm(a.view, b.view, c.view, ws);
  for (auto _ : state) gemm(a.view, b.view, c.view, ws);
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * batch * m * n * k * state.iterations(), benchmark::Counter::kIsRate);
}
void sizes(const std::string& type, DType t) {
  struct ProductSize {
    const char* name;
    int64_t batch, m, n, k;
    bool ta, tb;
  };
  const ProductSize all[] = {{"4096x1536x384 NT", 1, 4096, 1536, 384, false, true},
                             {"4096x384x1536 NT", 1, 4096, 384, 1536, false, true},
                             {"4096x384x1536 NN", 1, 4096, 384, 1536, false, false},
                             {"1536x384x4096 TN", 1, 1536, 384, 4096, true, false},
                             {"96 of 256x256x64 NT", 96, 256, 256, 64, false, true},
                             {"96 of 256x64x256 NN", 96, 256, 64, 256, false, false},
                             {"768x512x128 NT", 1, 768, 512, 128, false, true},
                             {"2048x2048x2048 NN", 1, 2048, 2048, 2048, false, false},
                             {"64x64x64 NT", 1, 64, 64, 64, false, true},
                             {"8x8x8 NN", 1, 8, 8, 8, false, false},
                             {"1x1536x576 NT", 1, 1, 1536, 576, false, true},
                             {"1x49152x576 NT", 1, 1, 49152, 576, false, true}};
  for (const ProductSize& s : all)
    benchmark::RegisterBenchmark(
        ("matmul " + type + " " + s.name).c_str(),
        [t, s](benchmark::State& state) { matmul(state, t, s.batch, s.m, s.n, s.k, s.ta, s.tb); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}
const bool registered = (sizes("f32", kFloat32), sizes("bf16", kBFloat16), true);

}  // namespace
}  // namespace weft::kernels
