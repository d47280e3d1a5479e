// ops: memory-bound work beside a copy of the same number of bytes, and matrix products beside the machine's rate. A
// case and the copy are timed in turn, under equal conditions. pytorch/ops.py does the same work. --serve: each line of
// standard input names a case to time now (versus_pytorch.py).
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "compiler/cost/machine/rates.h"
#include "framework/base/thread_pool.h"
#include "framework/io/json.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(std::string, only, "", "run only the cases whose name contains this");
ABSL_FLAG(bool, compile, false, "capture each case and replay its plan");
ABSL_FLAG(int32_t, repetitions, 7, "repetitions of each case; the median is reported");
ABSL_FLAG(bool, serve, false, "time the cases read from standard input");

namespace weft::bench {
namespace {

struct OpCase {
  std::string name;
  double bytes;  // least traffic of the case: each operand read once, each result written once
  double flops;  // FLOPs of a product; 0: bound by memory
  DType dtype;
  double goal;  // times the bound
  std::function<std::vector<Tensor>()> make;
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

OpCase scaled(int times) {
  return {"mul_x" + std::to_string(times),
          2.0 * 4 * (32 << 20),
          0,
          kFloat32,
          times <= 16 ? 1.15 : kNone,
          [] { return std::vector{randn({32 << 20})}; },
          [times](const std::vector<Tensor>& in) {
            Tensor x = in[0];
            for (int i = 0; i < times; ++i) x = x * 1.0001;
            return x;
          }};
}

OpCase square(const char* name, int matrices, double goal, std::function<Tensor(const std::vector<Tensor>&)> run) {
  return {name,
          matrices * 4.0 * 4096 * 4096,
          0,
          kFloat32,
          goal,
          [] {
            return std::vector{randn({4096, 4096}), randn({4096, 4096}), randn({4096}), randn({4096})};
          },
          std::move(run)};
}

OpCase product(DType dtype, int64_t n) {
  return {"matmul_" + std::string(to_string_view(dtype)) + "_" + std::to_string(n),
          0,
          2.0 * n * n * n,
          dtype,
          kNone,
          [=] {
            return std::vector{randn({n, n}).to(dtype), randn({n, n}).to(dtype)};
          },
          [](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); }};
}

std::vector<OpCase> all_cases() {
  using OpInputs = const std::vector<Tensor>&;
  std::vector<OpCase> cases = {scaled(1), scaled(4), scaled(16)};
  cases.push_back(square("gelu_mul", 3, 1.3, [](OpInputs in) { return gelu(in[0], "tanh") * in[1]; }));
  cases.push_back(square("softmax", 2, 1.3, [](OpInputs in) { return softmax(in[0], -1); }));
  cases.push_back(square("layer_norm", 2, 1.3, [](OpInputs in) { return layer_norm(in[0], {4096}, in[2], in[3]); }));
  cases.push_back(
      square("rms_norm_residual", 3, 1.3, [](OpInputs in) { return rms_norm(in[0] + in[1], {4096}, in[2], 1e-5); }));
  cases.push_back(square("logsumexp", 1, 1.3, [](OpInputs in) { return logsumexp(in[0], -1); }));
  cases.push_back(square("sum_over_rows", 1, 1.1, [](OpInputs in) { return in[0].sum({0}); }));
  cases.push_back(square("transpose_add", 3, 1.5, [](OpInputs in) { return in[0].t() + in[1]; }));
  // A move or a reduction of windows, whose goal is PyTorch's time.
  const auto layout = [](const char* name, double elements, std::function<Tensor(OpInputs)> op) {
    return OpCase{name,
                  4.0 * elements,
                  0,
                  kFloat32,
                  kNone,
                  [] {
                  return std::vector{randn({4096, 4096}), randperm(4096), randn({64, 64, 64, 64})}; },
                  std::move(op)};
  };
  const double square_elements = 4096.0 * 4096, images = 64.0 * 64 * 64 * 64;
  cases.push_back(layout("pool_by_amax", images * 1.25, [](OpInputs in) {
    return in[2].reshape({64, 64, 32, 2, 32, 2}).amax({3, 5});
  }));
  cases.push_back(layout("max_pool2d", images * 1.25, [](OpInputs in) { return max_pool2d(in[2], 2); }));
  cases.push_back(layout("avg_pool2d", images * 1.25, [](OpInputs in) { return avg_pool2d(in[2], 2); }));
  cases.push_back(
      layout("index_select_last", square_elements * 2, [](OpInputs in) { return index_select(in[0], 1, in[1]); }));
  cases.push_back(
      layout("index_select_first", square_elements * 2, [](OpInputs in) { return index_select(in[0], 0, in[1]); }));
  cases.push_back(layout("flip", square_elements * 2, [](OpInputs in) { return flip(in[0], 1); }));
  cases.push_back(layout("roll", square_elements * 2, [](OpInputs in) { return roll(in[0], 5, 1); }));
  cases.push_back(layout("transpose", square_elements * 2, [](OpInputs in) { return contiguous(in[0].t()); }));
  cases.push_back(layout("columns_by_2", square_elements, [](OpInputs in) { return slice(in[0], 1, 0, 4096, 2) * 2; }));
  cases.push_back(layout("heads_to_front", images * 2, [](OpInputs in) {
    return contiguous(in[2].permute({0, 2, 1, 3}));
  }));
  cases.push_back(layout("sum_over_columns", square_elements, [](OpInputs in) { return in[0].sum({1}); }));
  cases.push_back(layout("cumsum", square_elements * 2, [](OpInputs in) { return cumsum(in[0], 1); }));
  cases.push_back(layout("randn", square_elements, [](OpInputs) { return randn({4096, 4096}); }));
  for (DType t : {kFloat32, kBFloat16})
    for (int64_t n : {256, 512, 1024, 2048}) cases.push_back(product(t, n));
  return cases;
}

// Seconds of copying `bytes` (read plus written) with all threads.
class CopyTimer {
 public:
  explicit CopyTimer(double bytes) : bytes_(static_cast<size_t>(bytes / 2)), from_(bytes_, 1), to_(bytes_, 2) {}
  double seconds() {
    const auto begin = Clock::now();
    const int64_t n = num_threads();
    parallel_for(n, [&](int64_t i) {
      const size_t a = bytes_ * i / n, b = bytes_ * (i + 1) / n;
      std::memcpy(to_.data() + a, from_.data() + a, b - a);
    });
    return seconds_since(begin);
  }

 private:
  size_t bytes_;
  std::vector<char> from_, to_;
};

// A case ready to be timed.
class TimedOp {
 public:
  explicit TimedOp(const OpCase& c) : in_(c.make()), run_(compile(c.run, {.enabled = absl::GetFlag(FLAGS_compile)})) {
    (void)seconds();
  }
  /// Seconds of one call, or the mean over about 10 ms. Reads no value back.
  double seconds() {
    int calls = 0;
    const auto begin = Clock::now();
    do {
      result_ = Tensor();
      result_ = run_(in_);
      ++calls;
    } while (seconds_since(begin) < 0.01);
    return seconds_since(begin) / calls;
  }

 private:
  std::vector<Tensor> in_;
  Compiled<std::function<Tensor(const std::vector<Tensor>&)>> run_;
  Tensor result_;
};

void serve(const std::vector<OpCase>& cases) {
  for (std::string name; std::getline(std::cin, name);) {
    for (const OpCase& c : cases) {
      if (c.name != name) continue;
      TimedOp timed(c);
      std::vector<double> times;
      for (int r = 0; r < absl::GetFlag(FLAGS_repetitions); ++r) times.push_back(timed.seconds());
      std::cout << io::write_json(io::OrderedJson{{"name", name}, {"ms", median(times) * 1e3}}) << std::endl;
    }
  }
}

void run(Report& report) {
  manual_seed(0);
  NoGrad guard;
  const std::vector<OpCase> cases = all_cases();
  if (absl::GetFlag(FLAGS_serve)) {
    serve(cases);
    return;
  }
  const std::string only = absl::GetFlag(FLAGS_only);
  report.fact("compile", absl::GetFlag(FLAGS_compile) ? "true" : "false");
  const Machine machine = rates_of(Device::cpu());
  report.add({"copy", machine.bytes / 1e9, "GB/s"});
  for (const OpCase& c : cases) {
    if (c.name.find(only) == std::string::npos) continue;
    TimedOp timed(c);
    std::vector<double> times, copies;
    if (c.flops > 0) {
      for (int r = 0; r < absl::GetFlag(FLAGS_repetitions); ++r) times.push_back(timed.seconds());
      const double rate = machine.products_of(c.dtype) / 1e9;
      report.add({c.name, c.flops / median(times) * 1e-9, "GFLOP/s", rate});
    } else {
      CopyTimer copy(c.bytes);
      (void)copy.seconds();
      for (int r = 0; r < absl::GetFlag(FLAGS_repetitions); ++r) {
        times.push_back(timed.seconds());
        copies.push_back(copy.seconds());
      }
      const double bound = median(copies) * 1e3;
      report.add({c.name, median(times) * 1e3, "ms", bound, bound * c.goal});
    }
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(
      argc, argv, "ops", "Times memory-bound ops and matrix products beside their bounds.", weft::bench::run);
}
