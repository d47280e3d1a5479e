// gloo: all-reduce between processes of this host over TCP, by Weft's transport and by gloo::allreduce of the library,
// in turn.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <functional>

#include "absl/flags/flag.h"
#include "distributed/comm/gloo/world.h"
#include "framework/base/thread_pool.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/ranks.h"

ABSL_FLAG(int32_t, ranks, 2, "processes, each with one rank");
ABSL_FLAG(int32_t, rounds, 20, "turns of each side; the least time of one counts");

namespace weft::bench {
namespace {

struct Size {
  int64_t bytes;
  const char* name;
};
constexpr Size kSizes[] = {
    {4, "4 B"}, {1 << 10, "1 KiB"}, {16 << 10, "16 KiB"}, {256 << 10, "256 KiB"}, {4 << 20, "4 MiB"}};

class Rank {
 public:
  Rank(const std::string& folder, int rank, int n)
      : store_(folder + "/weft"),
        world_(store_, n, {rank}),
        gloo_(std::make_shared<::gloo::rendezvous::Context>(rank, n)) {
    std::vector<int> all;
    for (int i = 0; i < n; ++i) all.push_back(i);
    c_ = world_.communicators("world", all)[0];
    ::gloo::rendezvous::FileStore store(folder);
    std::shared_ptr<::gloo::transport::Device> device = ::gloo::transport::tcp::CreateDevice("127.0.0.1");
    gloo_->connectFullMesh(store, device);
  }

  void run(Report& report) {
    for (const auto& [bytes, name] : kSizes) {
      std::vector<float> v(static_cast<size_t>(bytes) / sizeof(float));
      const int calls = static_cast<int>(std::clamp<int64_t>((64 << 20) / (bytes + (64 << 10)), 5, 300));
      double own = 1e9, library = 1e9;
      for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
        own = std::min(own, time_of(calls, [&] { reduce(v); }));
        library = std::min(library, time_of(calls, [&] {
                             ::gloo::AllreduceOptions options(gloo_);
                             options.setOutput(v.data(), v.size());
                             options.setReduceFunction([](void* c, const void* a, const void* b, size_t n) {
                               ::gloo::sum<float>(c, a, b, n);
                             });
                             ::gloo::allreduce(options);
                           }));
      }
      report.add({std::string("all-reduce of ") + name + ", Weft", own * 1e6, "us"});
      report.add({std::string("all-reduce of ") + name + ", gloo::allreduce", library * 1e6, "us"});
      report.add({std::string("all-reduce of ") + name + ", Weft / gloo::allreduce", own / library, ""});
    }
  }

 private:
  void reduce(std::vector<float>& v) {
    const StridedView view{v.data(), kFloat32, {static_cast<int64_t>(v.size())}, {1}};
    const auto error = c_->start({.kind = Collective::kAllReduce, .in = view, .out = view})
                           ->wait(Clock::now() + std::chrono::minutes(1));
    if (error) throw *error;
  }
  double time_of(int calls, const std::function<void()>& call) {
    call();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return seconds_since(begin) / calls;
  }

  dist::FolderStore store_;
  dist::GlooWorld world_;
  Ref<Communicator> c_;
  std::shared_ptr<::gloo::rendezvous::Context> gloo_;
};

void run(Report& report) {
  const int n = absl::GetFlag(FLAGS_ranks);
  set_num_threads(1);
  run_ranks(n, report, [n](const std::string& folder, int rank, Report& to) { Rank(folder, rank, n).run(to); });
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "gloo", "all-reduce between processes over TCP, beside Gloo's own",
                                    weft::bench::run);
}
