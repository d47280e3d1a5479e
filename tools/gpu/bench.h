// The benchmarks that check.sh runs on a GPU, as a function, so that a test can run a small version.
#pragma once
#include <string>

namespace weft::bench {

struct GpuBenchOptions {
  std::string json;  // also write the results to this file, row by row
  std::string only;  // run only the parts whose name contains this: products, flex, steps, memory, chains
  int device = 0;
  bool compile = false;  // only compile the kernels: run each case twice, without timing and without rows
};

/// Measures, prints and writes the results. Returns 0, 1 if a part failed, 77 without a GPU.
int run_gpu_bench(const GpuBenchOptions& options);

}  // namespace weft::bench
