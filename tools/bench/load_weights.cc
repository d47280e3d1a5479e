// load_weights: the time to set cells from files in the system's cache, beside copies of the same bytes in the same
// run, and how much memory the process needs.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "absl/flags/flag.h"
#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "framework/io/safetensors.h"
#include "models/weights/gguf.h"
#include "models/weights/load.h"
#include "tools/bench/benchmark.h"
#include "weft.h"

ABSL_FLAG(int32_t, megabytes, 1024, "size of the file of bf16");
ABSL_FLAG(int32_t, repetitions, 7, "repetitions of each case beside copies; the least time is reported");

namespace weft::bench {
namespace {

using weights::Layout;
using weights::Values;
using Source = std::shared_ptr<const weights::WeightSource>;

constexpr int64_t kRows = 4096, kColumns = 4096, kElements = kRows * kColumns;
constexpr double kGoal = 1.5;           // the goal for bf16 to f32, as a multiple of the time of copies
constexpr double kGgufGoal = 0.25;      // seconds
constexpr int64_t kGgufMatrices = 8;    // 134 million elements, as SmolLM2-135M
constexpr int64_t kCopied = 256 << 20;  // bytes

// peak_resident_bytes() is now the peak since this call.
void reset_peak() {
  if (std::FILE* f = std::fopen("/proc/self/clear_refs", "w")) {
    std::fputs("5", f);
    std::fclose(f);
  }
}

double seconds_of(const std::function<void()>& body) {
  const int64_t begin = internal::now_ns();
  body();
  return 1e-9 * static_cast<double>(internal::now_ns() - begin);
}

// Files of matrices.
struct File {
  std::string path;
  double bytes = 0;  // the bytes of a matrix
  std::vector<std::string> names;
  Source open() const {
    return io::is_gguf(path) ? weights::gguf_source(io::GgufFile(path)) : weights::open_safetensors(path);
  }
};

File write_bf16(const std::string& path, int64_t matrices) {
  const Tensor matrix = randn({kRows, kColumns}).to(kBFloat16);
  File file{.path = path, .bytes = 2.0 * kElements};
  std::vector<io::NamedView> tensors;
  for (int64_t i = 0; i < matrices; ++i) file.names.push_back("w" + std::to_string(i));
  for (const std::string& name : file.names) tensors.push_back({name, matrix.view_for_kernel()});
  io::write_safetensors(path, tensors);
  return file;
}

// Blocks of any bits, but for scales that are finite.
File write_blocks(const std::string& path, uint32_t number, int64_t scales) {
  const io::GgufFormat& format = *io::gguf_format(number);
  std::vector<std::byte> data(static_cast<size_t>(kElements / format.block * format.block_bytes));
  uint32_t state = 1;
  for (std::byte& b : data) b = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  for (size_t at = 0; at < data.size(); at += static_cast<size_t>(format.block_bytes))
    for (int64_t i = 0; i < scales; ++i) data[at + static_cast<size_t>(2 * i) + 1] &= std::byte{0xbf};
  File file{.path = path, .bytes = static_cast<double>(data.size())};
  std::vector<io::GgufData> tensors;
  for (int64_t i = 0; i < kGgufMatrices; ++i) file.names.push_back("w" + std::to_string(i));
  for (const std::string& name : file.names) tensors.push_back({name, number, {kRows, kColumns}, data});
  io::write_gguf(path, {}, tensors);
  return file;
}

struct Case {
  const char* name;
  const File& file;
  Layout layout;
  DType dtype;
  Values values;
  double goal = kNone;  // as a multiple of the time of copies
  double seconds_goal = kNone;
  double seconds = INFINITY, megabytes = 0;
  // Bytes that are read and written.
  double traffic() const {
    const double matrices = static_cast<double>(file.names.size());
    return values == Values::kInPlace ? 0 : matrices * (file.bytes + static_cast<double>(kElements * itemsize(dtype)));
  }
};

// Loads the file of a case into new cells; keeps the least time and the most memory.
void load(Case& c) {
  const weights::Sizes sizes({{"heads", "1"}, {"dim", "2"}});
  const Shape shape{kRows, kColumns};
  std::vector<weights::CellPlan> plans;
  weights::NamedCells cells;
  for (const std::string& name : c.file.names) {
    weights::Piece piece = weights::piece_of(c.layout, shape, sizes);
    piece.source = name;
    plans.push_back({.cell = name, .shape = shape, .pieces = {piece}});
    cells.emplace_back(name, Buffer({c.dtype, Device::cpu(), shape}, [&] { return zeros(shape, {.dtype = c.dtype}); }));
  }
  Allocator::of(Device::cpu()).empty_cache();
  reset_peak();
  const double before = peak_resident_bytes();
  c.seconds = std::min(c.seconds, seconds_of([&] { weights::set_cells(c.file.open(), plans, cells, c.values); }));
  const auto model = static_cast<double>(std::ssize(cells) * kElements * itemsize(c.dtype));
  c.megabytes = std::max(c.megabytes, (peak_resident_bytes() - before - model) / 1e6);
}

void run(Report& report) {
  NoGrad guard;
  const char* const tmp = std::getenv("TMPDIR");
  const std::string prefix = std::string(tmp ? tmp : "/tmp") + "/load_weights.";
  const int64_t matrices = std::max<int64_t>(1, (int64_t{absl::GetFlag(FLAGS_megabytes)} << 20) / (2 * kElements));
  const File bf16 = write_bf16(prefix + "bf16.safetensors", matrices),
             q8_0 = write_blocks(prefix + "q8_0.gguf", io::kGgufQ8_0, 1),
             q4_k = write_blocks(prefix + "q4_k.gguf", 12, 2);
  Case cases[] = {{"bf16 to f32", bf16, Layout::kSame, kFloat32, Values::kCopied, kGoal},
                  {"bf16 to f32, transposed", bf16, Layout::kTransposed, kFloat32, Values::kCopied},
                  {"bf16, copied", bf16, Layout::kSame, kBFloat16, Values::kCopied},
                  {"bf16, in place", bf16, Layout::kSame, kBFloat16, Values::kInPlace},
                  {"Q8_0 to bf16", q8_0, Layout::kSame, kBFloat16, Values::kCopied, kNone, kGgufGoal},
                  {"Q4_K to bf16", q4_k, Layout::kSame, kBFloat16, Values::kCopied, kNone, kGgufGoal}};
  const auto memory = [] { return Tensor::empty({kUInt8, Device::cpu(), {kCopied}}); };
  const Tensor from = memory(), used = memory();
  for (const Tensor& t : {from, used}) std::memset(t.view_for_kernel().data, 1, size_t{kCopied});
  const auto copy_to = [&](const Tensor& to) {
    const int64_t threads = num_threads(), part = kCopied / threads;
    parallel_for(threads, [&](int64_t t) {
      std::memcpy(static_cast<std::byte*>(to.view_for_kernel().data) + t * part,
                  static_cast<const std::byte*>(from.view_for_kernel().data) + t * part, static_cast<size_t>(part));
    });
  };
  double copy = INFINITY, fresh = INFINITY;
  // Each case by itself: memory that one repetition has freed is soon used again, and a host of virtual machines that
  // takes back free memory does so after seconds.
  for (Case& c : cases)
    for (int i = 0; i < absl::GetFlag(FLAGS_repetitions); ++i) {
      copy = std::min(copy, seconds_of([&] { copy_to(used); }));
      Allocator::of(Device::cpu()).empty_cache();
      fresh = std::min(fresh, seconds_of([&] { copy_to(memory()); }));
      load(c);
    }
  const double rate = 2.0 * kCopied / copy, fresh_rate = 2.0 * kCopied / fresh;
  report.add({"copy to memory in use", rate / 1e9, "GB/s"});
  report.add({"copy to new memory, which the system clears first", fresh_rate / 1e9, "GB/s"});
  for (const Case& c : cases) {
    const double bound = c.traffic() / rate;
    report.add({c.name, c.seconds, "s", bound, std::isnan(c.goal) ? c.seconds_goal : c.goal * bound});
    if (bound > 0)
      report.add({std::string(c.name) + ": beside copies to new memory", c.seconds, "s", c.traffic() / fresh_rate});
    report.add({std::string(c.name) + ": memory beside the cells", c.megabytes, "MB"});
  }
  for (const File* f : {&bf16, &q8_0, &q4_k}) io::remove_all(f->path);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "load_weights", "Times the loading of weights.", weft::bench::run);
}
