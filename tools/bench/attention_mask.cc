// attention_mask: the time to make a block mask, by mask and length, beside the time to evaluate every point, as
// PyTorch's create_block_mask does (estimated from the time of one tile).
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/cli/cli.h"
#include "ops/attention/masks/masks.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(int32_t, repetitions, 5, "repetitions of each measurement; the median is reported");
ABSL_FLAG(int64_t, longest, 1 << 20, "lengths from 2048 up to this one");
ABSL_FLAG(std::string, only, "", "only rows whose name contains this");

namespace {

using namespace weft;

Tensor documents(int64_t n) {
  std::vector<int64_t> ids(n);
  uint64_t state = 1;
  int64_t id = 0, left = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (left-- == 0) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      left = 200 + static_cast<int64_t>(state >> 54);  // up to 1223 tokens
      ++id;
    }
    ids[i] = id;
  }
  return Tensor::from_vector<int64_t>(ids, {n});
}

void run(bench::Report& report) {
  if (absl::GetFlag(FLAGS_longest) < 2048)
    usage_error(str_cat("--longest is ", absl::GetFlag(FLAGS_longest), "; need 2048 or more"));
  const int repetitions = absl::GetFlag(FLAGS_repetitions);
  const std::string only = absl::GetFlag(FLAGS_only);
  const auto wanted = [&](const std::string& name) { return name.find(only) != std::string::npos; };
  struct MaskCase {
    std::string name;
    std::function<MaskMod(int64_t)> mask;
  };
  const std::vector<MaskCase> cases{
      {"causal", [](int64_t) { return attention::causal(); }},
      {"sliding_window(4096)", [](int64_t) { return attention::sliding_window(4096); }},
      {"documents & causal", [](int64_t n) { return attention::document(documents(n)) & attention::causal(); }},
      {"neighborhood_2d(W = 128, 13 x 13)",
       [](int64_t n) {
         return attention::neighborhood_2d({n / 128, 128}, {13, 13});
       }},
  };
  for (const MaskCase& c : cases)
    for (int64_t n = 2048; n <= absl::GetFlag(FLAGS_longest); n *= 8) {
      const std::string name = str_cat(c.name, " ", n);
      if (!wanted(name)) continue;
      const MaskMod mask = c.mask(n);
      BlockMask m;
      const double s = bench::median_seconds([&] { m = create_block_mask(mask, 1, 1, n, n); }, repetitions, 0.01);
      // A lower bound for evaluating every point: the bits of all tiles of 128 x 128.
      const kernels::MaskFill fill = m.fill();
      std::vector<uint8_t> bits(128 * 16);
      const double tile =
          bench::median_seconds([&] { fill.run(fill.context, 0, 0, 256, 256, 128, 128, bits.data(), 16); }, 3, 0.005);
      const double tiles = static_cast<double>(n) / 128 * static_cast<double>(n) / 128, dense = tile * tiles;
      report.add({name, s * 1e3, "ms", bench::kNone, n == 1 << 20 && c.name == "causal" ? 10 : bench::kNone});
      report.add({name + ", every point (estimated)", dense * 1e3, "ms"});
      report.add({name + ", bytes", static_cast<double>(m.bytes()), "B"});
    }
  // The bits of one block, as computed for partial blocks and in kernels.
  for (const MaskCase& c : cases) {
    const std::string name = c.name + ", one tile of 128 x 128";
    if (!wanted(name)) continue;
    const BlockMask m = create_block_mask(c.mask(16384), 1, 1, 16384, 16384);
    const kernels::MaskFill fill = m.fill();
    std::vector<uint8_t> bits(128 * 16);
    const double s = bench::median_seconds([&] { fill.run(fill.context, 0, 0, 256, 256, 128, 128, bits.data(), 16); },
                                           repetitions, 0.005);
    report.add({name, s * 1e6, "us", bench::kNone, c.name == "documents & causal" ? 10 : bench::kNone});
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_benchmark(argc, argv, "attention_mask", "Times the construction of attention's block masks.", run);
}
