// load_weights: the time to set cells in f32 from a file of bf16 beside copies of the same bytes at the machine's rate,
// and how much memory the process needs. The file is in the system's cache.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "absl/flags/flag.h"
#include "compiler/cost/machine/rates.h"
#include "framework/base/clock.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "models/weights/load.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(int32_t, megabytes, 1024, "size of the file");
ABSL_FLAG(int32_t, repetitions, 5, "repetitions of each case; the median is reported");

namespace weft::bench {
namespace {

constexpr int64_t kRows = 4096, kColumns = 4096;

// peak_resident_bytes() is now the peak since this call.
void reset_peak() {
  if (std::FILE* f = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", f);
    std::fclose(f);
  }
}

// Writes a file of matrices; returns their names.
std::vector<std::string> write_file(const std::string& path, int64_t bytes) {
  const Tensor matrix = randn({kRows, kColumns}).to(kBFloat16);
  std::vector<io::NamedView> tensors;
  std::vector<std::string> names;
  for (int64_t i = 0; i * matrix.type().nbytes() < bytes; ++i) {
    names.push_back("w" + std::to_string(i));
    tensors.push_back({names.back(), matrix.view_for_kernel()});
  }
  io::write_safetensors(path, tensors);
  return names;
}

struct Case {
  const char* name;
  weights::Layout layout;
  DType dtype;
  weights::Values values;
};
const Case kCases[] = {{"bf16 to f32", weights::Layout::kSame, kFloat32, weights::Values::kCopied},
                       {"bf16 to f32, transposed", weights::Layout::kTransposed, kFloat32, weights::Values::kCopied},
                       {"bf16, copied", weights::Layout::kSame, kBFloat16, weights::Values::kCopied},
                       {"bf16, in place", weights::Layout::kSame, kBFloat16, weights::Values::kInPlace}};

void run(Report& report) {
  NoGrad guard;
  const int64_t bytes = int64_t{absl::GetFlag(FLAGS_megabytes)} << 20;
  const char* const tmp = std::getenv("TMPDIR");
  const std::string path = std::string(tmp ? tmp : "/tmp") + "/load_weights.safetensors";
  const std::vector<std::string> names = write_file(path, bytes);
  const Machine machine = rates_of(Device::cpu());
  report.add({"copy", machine.bytes / 1e9, "GB/s"});
  const weights::Sizes sizes({{"heads", "1"}, {"dim", "2"}});
  const Shape shape{kRows, kColumns};
  for (const Case& c : kCases) {
    std::vector<weights::CellPlan> plans;
    for (const std::string& name : names) {
      weights::Piece piece = weights::piece_of(c.layout, shape, sizes);
      piece.source = name;
      plans.push_back({.cell = name, .shape = shape, .pieces = {piece}});
    }
    double mb = 0, model_mb = 0;
    const auto load = [&] {
      weights::NamedCells cells;
      for (const std::string& name : names)
        cells.emplace_back(name,
                           Buffer({c.dtype, Device::cpu(), shape}, [&] { return zeros(shape, {.dtype = c.dtype}); }));
      Allocator::of(Device::cpu()).empty_cache();
      reset_peak();
      const double before = peak_resident_bytes();
      const int64_t begin = internal::now_ns();
      weights::set_cells(weights::open_safetensors(path), plans, cells, c.values);
      const double seconds = 1e-9 * static_cast<double>(internal::now_ns() - begin);
      mb = (peak_resident_bytes() - before) / 1e6;
      model_mb = static_cast<double>(names.size()) * static_cast<double>(shape.numel() * itemsize(c.dtype)) / 1e6;
      return seconds;
    };
    std::vector<double> seconds;
    for (int i = 0; i < absl::GetFlag(FLAGS_repetitions); ++i) seconds.push_back(load());
    const double elements = static_cast<double>(names.size()) * static_cast<double>(shape.numel());
    const double traffic =
        c.values == weights::Values::kInPlace ? 0 : elements * static_cast<double>(2 + itemsize(c.dtype));
    report.add({c.name, median(seconds), "s", traffic / machine.bytes});
    report.add({std::string(c.name) + ": memory beside the cells", mb - model_mb, "MB"});
  }
  io::remove_all(path);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "load_weights", "Times the loading of weights.", weft::bench::run);
}
