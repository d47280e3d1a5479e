// shared_memory: all-reduce between processes of this host through shared memory, beside copies by the same processes
// at once. The bound of an all-reduce is dist::shared_memory_floor; a copy of S bytes moves 2 S.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "distributed/comm/shared/world.h"
#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/ranks.h"
#include "tools/plan/limits.h"

ABSL_FLAG(int32_t, ranks, 2, "processes, each with one rank");
ABSL_FLAG(int64_t, mib, 64, "size of a large operand");
ABSL_FLAG(int32_t, rounds, 15, "repetitions of a large collective");
ABSL_FLAG(int64_t, piece_kib, 512, "size of the pieces in which operands pass");
ABSL_FLAG(bool, progress_thread, true, "a thread of each process works while its rank computes");

namespace weft::bench {
namespace {

using dist::SharedWorld;

Work::Deadline in_a_minute() { return Clock::now() + std::chrono::minutes(1); }

class Rank {
 public:
  Rank(const std::string& folder, int rank, int n)
      : n_(n),
        store_(folder),
        world_(store_, n, {rank},
               {.piece_bytes = absl::GetFlag(FLAGS_piece_kib) << 10,
                .progress_thread = absl::GetFlag(FLAGS_progress_thread)}) {
    std::vector<int> all;
    for (int i = 0; i < n; ++i) all.push_back(i);
    c_ = world_.communicators("world", all)[0];
    bytes_ = absl::GetFlag(FLAGS_mib) << 20;
    for (auto& v : data_) v.assign(bytes_, 0);
  }

  /// Measures; the rows of rank 0 are reported.
  void run(Report& report) {
    char *const in = data_[0].data(), *const out = data_[1].data();
    const double copy = large([&] { std::memcpy(out, in, bytes_); });
    // All ranks copy at once.
    const double rate = 2.0 * n_ * static_cast<double>(bytes_) / copy;
    const double bound = planner::shared_memory_floor(n_, static_cast<double>(bytes_), rate);
    const std::string size = std::to_string(absl::GetFlag(FLAGS_mib)) + " MiB";
    report.add({"memcpy of " + size + " in each process", copy * 1e3, "ms"});
    report.add({"memcpy, bytes read and written in all", rate * 1e-9, "GB/s"});
    auto reduce = [&](void* in, void* out, int64_t bytes) { wait(start(in, out, bytes)); };
    report.add({"all_reduce " + size, large([&] { reduce(in, out, bytes_); }) * 1e3, "ms", bound * 1e3});
    report.add({"all_reduce " + size + ", in place", large([&] { reduce(in, in, bytes_); }) * 1e3, "ms"});
    report.add({"all_gather to " + size,
                large([&] { move(Collective::kAllGather, in, bytes_ / n_, out, bytes_); }) * 1e3, "ms"});
    report.add({"reduce_scatter of " + size,
                large([&] { move(Collective::kReduceScatter, in, bytes_, out, bytes_ / n_); }) * 1e3, "ms"});
    for (const int64_t b : {4, 256, 4096, 65536})
      report.add({"all_reduce " + std::to_string(b) + " B", small([&] { reduce(in, out, b); }) * 1e6, "us"});
    report.add({"barrier", small([&] { wait(c_->start({})); }) * 1e6, "us"});
    // Between start and wait, the rank computes for the duration of the collective.
    const double alone = large([&] { reduce(in, out, bytes_); });
    const double both = large([&] {
      auto w = start(in, out, bytes_);
      compute(alone);
      wait(w);
    });
    report.add(
        {"all_reduce " + size + ", while ranks compute " + std::to_string(alone * 1e3) + " ms", both * 1e3, "ms"});
  }

 private:
  void wait(const Ref<Work>& w) {
    if (const auto e = w->wait(in_a_minute())) throw *e;
  }
  Ref<Work> start(void* in, void* out, int64_t bytes) {
    const Shape shape{bytes / 4};
    return c_->start(
        {.kind = Collective::kAllReduce, .in = {in, kFloat32, shape, {1}}, .out = {out, kFloat32, shape, {1}}});
  }
  void move(Collective kind, void* in, int64_t in_bytes, void* out, int64_t out_bytes) {
    wait(c_->start({.kind = kind,
                    .in = {in, kFloat32, Shape{in_bytes / 4}, {1}},
                    .out = {out, kFloat32, Shape{out_bytes / 4}, {1}}}));
  }
  // Processor time, because a thread that shares its core needs more elapsed time.
  static void compute(double seconds) {
    timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while (static_cast<double>(now.tv_sec - begin.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec - begin.tv_nsec) <
           seconds);
  }
  static constexpr int kWarmup = 10;  // until the transport has chosen its method to write pieces (piece_writes.h)
  double large(const std::function<void()>& body) {
    std::vector<double> times;
    for (int i = 0; i < absl::GetFlag(FLAGS_rounds) + kWarmup; ++i) {
      wait(c_->start({}));
      const auto begin = Clock::now();
      body();
      wait(c_->start({}));
      if (i >= kWarmup) times.push_back(seconds_since(begin));
    }
    return median(std::move(times));
  }
  double small(const std::function<void()>& body) {
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      wait(c_->start({}));
      const auto begin = Clock::now();
      for (int j = 0; j < 500; ++j) body();
      times.push_back(seconds_since(begin) / 500);
    }
    return median(std::move(times));
  }

  const int n_;
  dist::FolderStore store_;
  SharedWorld world_;
  Ref<Communicator> c_;
  int64_t bytes_;
  std::vector<char> data_[2];
};

void run(Report& report) {
  const int n = absl::GetFlag(FLAGS_ranks);
  run_ranks(n, report, [n](const std::string& folder, int rank, Report& to) {
    set_num_threads(std::max(1, static_cast<int>(switch_int("WEFT_THREADS"))));
    Rank(folder, rank, n).run(to);
  });
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "shared_memory", "all-reduce between processes of this host",
                                    weft::bench::run);
}
