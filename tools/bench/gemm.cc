// gemm: rates of the kernels of matrix products by shape and dtype, each beside the rate of a large square product
// timed in turn; and the effect of the operands' values on the rate. The shapes come from gpt_tiny (768 tokens),
// gpt_base (4096) and moe_small: for each linear layer the forward product and the products for the gradients of its
// input (dx) and its weight (dw); attention's batched products; the experts' grouped products; and products of a few
// rows, which decoding has.
#include "ops/kernels/products/gemm.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/base/thread_pool.h"
#include "ops/kernels/kernels.h"
#include "tools/bench/benchmark.h"

ABSL_FLAG(std::string, only, "", "run only the cases whose name contains this");
ABSL_FLAG(int32_t, repetitions, 5, "repetitions of each case; the median is reported");

namespace weft::bench {
namespace {

struct ProductMatrix {
  std::vector<char> memory;
  StridedView view;

  // data: normal, uniform (0 to 1), zeros.
  ProductMatrix(DType dtype, const Shape& shape, const Shape& strides, const std::string& data = "normal")
      : memory(shape.numel() * itemsize(dtype) + 64) {
    void* p = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
    view = {p, dtype, shape, strides};
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    std::vector<float> sample(65521);  // a prime, so that rows differ
    for (float& v : sample) v = data == "normal" ? normal(random) : data == "uniform" ? uniform(random) : 0;
    const auto n = static_cast<int64_t>(sample.size());
    for (int64_t i = 0; i < shape.numel(); i += n) {
      const int64_t m = std::min(n, shape.numel() - i);
      kernels::cast_copy({sample.data(), kFloat32, {m}, {1}},
                         {static_cast<char*>(p) + i * itemsize(dtype), dtype, {m}, {1}});
    }
  }
  ProductMatrix(DType dtype, const Shape& shape) : ProductMatrix(dtype, shape, contiguous_strides(shape)) {}
};

class ProductMemory {
 public:
  explicit ProductMemory(int64_t bytes) : memory_(bytes + 64) {}
  void* get() { return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64; }

 private:
  std::vector<char> memory_;
};

// N: row-major, T: column-major, for a and b.
struct GemmSize {
  std::string what;
  int64_t batch, m, k, n;
  std::string layout;
};

std::string name_of(const GemmSize& s) {
  return s.what + " " + (s.batch > 1 ? std::to_string(s.batch) + " x " : "") + std::to_string(s.m) + "x" +
         std::to_string(s.k) + "x" + std::to_string(s.n) + " " + s.layout;
}

// Seconds of one call: the mean over about 10 ms.
double time_calls(const std::function<void()>& call) {
  int calls = 0;
  const auto begin = Clock::now();
  do {
    call();
    ++calls;
  } while (seconds_since(begin) < 0.01);
  return seconds_since(begin) / calls;
}

struct TimedProduct {
  std::function<void()> call;
  double flops;
};

TimedProduct product(const GemmSize& s, DType t, const std::string& data = "normal") {
  const Shape sa{s.batch, s.m, s.k}, sb{s.batch, s.k, s.n};
  auto a = std::make_shared<ProductMatrix>(
      t, sa, s.layout[0] == 'N' ? contiguous_strides(sa) : Shape{s.m * s.k, 1, s.m}, data);
  auto b = std::make_shared<ProductMatrix>(
      t, sb, s.layout[1] == 'N' ? contiguous_strides(sb) : Shape{s.k * s.n, 1, s.k}, data);
  auto c = std::make_shared<ProductMatrix>(t, Shape{s.batch, s.m, s.n});
  auto w = std::make_shared<ProductMemory>(kernels::gemm_workspace(t, t, s.batch, s.m, s.n, s.k));
  return {[=] { kernels::gemm(a->view, b->view, c->view, w->get()); },
          2.0 * static_cast<double>(s.batch * s.m * s.n) * static_cast<double>(s.k)};
}

// T rows in uneven groups.
TimedProduct grouped(kernels::GroupedMode mode, DType t, int64_t k, int64_t n, bool transposed) {
  const int64_t rows = 8192, groups = 8;
  const bool by_rows = mode == kernels::GroupedMode::rows;
  auto offsets =
      std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 700, 1900, 2700, 3900, 4500, 6100, 7000, rows});
  auto a = std::make_shared<ProductMatrix>(t, Shape{rows, k});
  auto b = by_rows ? std::make_shared<ProductMatrix>(t, Shape{groups, k, n},
                                                     transposed ? Shape{k * n, 1, k} : Shape{k * n, n, 1})
                   : std::make_shared<ProductMatrix>(t, Shape{rows, n});
  auto c = std::make_shared<ProductMatrix>(t, by_rows ? Shape{rows, n} : Shape{groups, k, n});
  auto w = std::make_shared<ProductMemory>(kernels::grouped_gemm_workspace(mode, t, t, groups, rows, k, n));
  return {
      [=] {
        kernels::grouped_gemm(mode, a->view, b->view, {offsets->data(), kInt64, {groups + 1}, {1}}, c->view, w->get());
      },
      2.0 * static_cast<double>(rows * k) * static_cast<double>(n)};
}

std::vector<GemmSize> sizes() {
  std::vector<GemmSize> all;
  for (int64_t n : {8, 16, 32, 64, 128, 256, 512, 1024, 2048}) all.push_back({"square", 1, n, n, n, "NN"});
  // Decoding a few sequences with the linear layers of a small and of a large model.
  for (auto [in, out] : {std::pair(576, 576), {576, 1536}, {1536, 576}, {4096, 4096}})
    for (int64_t rows : {1, 4, 8, 16, 32})
      for (const char* layout : {"NT", "NN"}) all.push_back({"decode", 1, rows, in, out, layout});
  auto linear = [&](const std::string& model, int64_t tokens, int64_t in, int64_t out) {
    all.push_back({model + " forward", 1, tokens, in, out, "NT"});
    all.push_back({model + " dx", 1, tokens, out, in, "NN"});
    all.push_back({model + " dw", 1, out, tokens, in, "TN"});
  };
  for (auto [in, out] : {std::pair(128, 384), {128, 128}, {128, 512}, {512, 128}, {128, 96}})
    linear("tiny", 768, in, out);
  for (auto [in, out] : {std::pair(384, 1152), {384, 384}, {384, 1536}, {1536, 384}, {384, 96}})
    linear("base", 4096, in, out);
  for (auto [in, out] : {std::pair(256, 768), {256, 256}, {256, 96}, {256, 8}}) linear("moe", 4096, in, out);
  auto attention = [&](const std::string& model, int64_t batch, int64_t s, int64_t d) {
    all.push_back({model + " scores", batch, s, d, s, "NT"});
    all.push_back({model + " values", batch, s, s, d, "NN"});
    all.push_back({model + " values^T", batch, s, s, d, "TN"});
  };
  attention("tiny", 48, 64, 32);
  attention("base", 96, 256, 64);
  attention("moe", 128, 256, 32);
  return all;
}

void run(Report& report) {
  const std::string only = absl::GetFlag(FLAGS_only);
  for (DType t : {kFloat32, kBFloat16}) {
    const std::string type(to_string_view(t));
    const TimedProduct large = product({"", 1, 2048, 2048, 2048, "NN"}, t);
    auto add = [&](const std::string& name, const TimedProduct& timed) {
      if ((type + " " + name).find(only) == std::string::npos) return;
      timed.call();
      std::vector<double> times, peak;
      for (int r = 0; r < absl::GetFlag(FLAGS_repetitions); ++r) {
        times.push_back(time_calls(timed.call));
        peak.push_back(time_calls(large.call));
      }
      report.add({type + " " + name, timed.flops / median(times) * 1e-9, "GFLOP/s", large.flops / median(peak) * 1e-9});
    };
    for (const GemmSize& s : sizes()) add(name_of(s), product(s, t));
    using kernels::GroupedMode;
    add("grouped forward 8192x256x512 NN", grouped(GroupedMode::rows, t, 256, 512, false));
    add("grouped forward 8192x512x256 NN", grouped(GroupedMode::rows, t, 512, 256, false));
    add("grouped dx 8192x512x256 NT", grouped(GroupedMode::rows, t, 512, 256, true));
    add("grouped dx 8192x256x512 NT", grouped(GroupedMode::rows, t, 256, 512, true));
    add("grouped dw 256x8192x512", grouped(GroupedMode::contraction, t, 256, 512, false));
    add("grouped dw 512x8192x256", grouped(GroupedMode::contraction, t, 512, 256, false));
    for (const char* data : {"zeros", "uniform", "normal"})
      add(std::string("data ") + data + " 1024x1024x1024", product({"", 1, 1024, 1024, 1024, "NN"}, t, data));
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "gemm", "Rates of matrix products by shape and dtype.",
                                    weft::bench::run);
}
