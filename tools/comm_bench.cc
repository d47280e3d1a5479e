// comm_bench: time and bandwidth of collectives by size, between threads, processes that share memory, and processes
// that use TCP. The columns equal the columns of nccl-tests. comm_bench starts its own processes. --against adds the
// time of gloo::allreduce, or of a copy. A copy is the bound of an all_reduce through shared memory, because each
// operand is read once and each result written once.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>

#include "distributed/comm/gloo/world.h"
#include "distributed/comm/shared/world.h"
#include "distributed/comm/threads.h"
#include "distributed/launch/launcher.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

struct CommBenchFlags {
  int64_t ranks = 2, least = 4, most = 64 << 20, factor = 4;
  double seconds = 0.05, skew = 0;
  std::string against;
  std::vector<std::string> transports{"threads", "shared", "gloo"};
  std::vector<std::string> collectives{"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                                       "broadcast",  "permute",    "sendrecv",       "barrier"};
};

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

Collective collective_of(const std::string& name) {
  if (name == "sendrecv") return Collective::kSend;  // kSend and kRecv: to the next rank and from the previous rank
  for (int k = 0; k < kNumCollectives; ++k)
    if (to_string_view(static_cast<Collective>(k)) == name) return static_cast<Collective>(k);
  usage_error(str_cat("--collectives: got '", name, "'; need names such as all_reduce, or sendrecv"));
}

// Bytes that cross a rank's link for each byte of the operand.
double bus_factor(Collective c, double n) {
  if (c == Collective::kAllReduce) return 2 * (n - 1) / n;
  if (c == Collective::kAllGather || c == Collective::kReduceScatter || c == Collective::kAllToAll) return (n - 1) / n;
  return 1;
}

// gloo::allreduce of the library between the processes of the job.
class GlooLibrary {
 public:
  GlooLibrary(int rank, int ranks) : context_(std::make_shared<gloo::rendezvous::Context>(rank, ranks)) {
    const auto folder = std::filesystem::path(std::getenv("JOB_STORE")) / "library";
    std::filesystem::create_directories(folder);
    gloo::rendezvous::FileStore store(folder);
    std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice("127.0.0.1");
    context_->connectFullMesh(store, device);
  }
  void all_reduce(std::vector<float>& v) {
    gloo::AllreduceOptions options(context_);
    options.setOutput(v.data(), v.size());
    options.setReduceFunction([](void* c, const void* a, const void* b, size_t n) { gloo::sum<float>(c, a, b, n); });
    gloo::allreduce(options);
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
};

// The value of an element of a rank's input: sums of them are exact.
float value(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 101); }

class Bench {
 public:
  Bench(const CommBenchFlags& o, const std::string& transport, Communicator& c, bool prints)
      : o_(o), transport_(transport), c_(c), n_(c.size()), rank_(c.rank()), prints_(prints) {
    if (o.against == "gloo" && transport != "threads") library_.emplace(rank_, n_);
  }

  void run() {
    for (const std::string& name : o_.collectives) {
      const Collective kind = collective_of(name);
      if (prints_)
        std::printf("# %s, %s, %d ranks%s\n#%11s %12s %6s %6s %11s %13s %14s %8s%s\n", name.c_str(), transport_.c_str(),
                    n_, kind == Collective::kAllToAll && o_.skew > 0 ? str_cat(", skew ", o_.skew).c_str() : "",
                    "size (B)", "count", "type", "redop", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "#wrong",
                    o_.against.empty() ? "" : str_cat("   ", o_.against, " (us)   ratio").c_str());
      for (int64_t bytes = o_.least; bytes <= o_.most; bytes *= o_.factor) {
        row(kind, bytes);
        if (kind == Collective::kBarrier) break;
      }
    }
  }

 private:
  // The elements that rank p sends to rank q: equal, or with a skew more to rank 0.
  int64_t part(int64_t count, int q) const {
    const int64_t even = count / n_;
    const auto less = static_cast<int64_t>(static_cast<double>(even) * o_.skew);
    return q == 0 ? even + less * (n_ - 1) : even - less;
  }

  void row(Collective kind, int64_t bytes) {
    int64_t count = kind == Collective::kBarrier ? 0 : std::max<int64_t>(1, bytes / 4);
    const bool divided =
        kind == Collective::kAllGather || kind == Collective::kReduceScatter || kind == Collective::kAllToAll;
    if (divided) count = std::max<int64_t>(1, count / n_) * n_;
    const int64_t share = divided ? count / n_ : count;  // the elements of one rank, the column `count` of nccl-tests
    int64_t ins = kind == Collective::kAllGather ? share : count, outs = count;
    if (kind == Collective::kReduceScatter) outs = share;
    const bool skewed = kind == Collective::kAllToAll && o_.skew > 0;
    std::vector<int64_t> send, recv;
    if (skewed) {
      for (int q = 0; q < n_; ++q) send.push_back(part(count, q));
      ins = std::accumulate(send.begin(), send.end(), int64_t{0});
      recv.assign(n_, part(count, rank_));
      outs = n_ * recv[0];
    }
    std::vector<float> in(ins), out(outs, -1.0f);
    for (int64_t i = 0; i < ins; ++i) in[i] = value(rank_, i);
    CommRequest r{.kind = kind, .send_counts = send, .recv_counts = recv};
    if (kind != Collective::kBarrier) {
      r.in = {in.data(), kFloat32, {ins}, {1}};
      r.out = {out.data(), kFloat32, {outs}, {1}};
    }
    if (kind == Collective::kPermute) r.shift = 1;
    if (kind == Collective::kSend) r = {.kind = kind, .in = r.in, .peer = (rank_ + 1) % n_};
    const CommRequest receive{
        .kind = Collective::kRecv, .out = {out.data(), kFloat32, {outs}, {1}}, .peer = (rank_ + n_ - 1) % n_};
    const auto call = [&] {
      const Ref<Work> work = c_.start(r);
      if (kind == Collective::kSend) wait(c_.start(receive));
      wait(work);
    };
    double time = measure(call);
    const int64_t wrong = total(wrong_in(kind, out, share, count, skewed));
    // Both sides take turns, and the least time of each counts.
    double other = 0;
    const bool copies = o_.against == "copy" && kind != Collective::kBarrier;
    if (copies || (library_ && kind == Collective::kAllReduce))
      for (int round = 0; round < kRounds; ++round) {
        const double now = measure([&] {
          if (library_) return library_->all_reduce(out);
          std::memcpy(out.data(), in.data(), static_cast<size_t>(std::min(ins, outs)) * sizeof(float));
        });
        other = round == 0 ? now : std::min(other, now);
        time = std::min(time, measure(call));
      }
    if (!prints_) return;
    const double rate = static_cast<double>(count) * 4 / time * 1e-9;
    const bool sums = kind == Collective::kAllReduce || kind == Collective::kReduceScatter;
    std::printf(" %11ld %12ld %6s %6s %11.2f %13.3f %14.3f %8ld", static_cast<long>(count * 4),
                static_cast<long>(share), "float", sums ? "sum" : "none", time * 1e6, rate, rate * bus_factor(kind, n_),
                static_cast<long>(wrong));
    if (other > 0) {
      // Three digits at least: on a busy machine, the library may need 1000 times as long as shared memory.
      const double ratio = time / other;
      const int decimals = std::max(2, 2 - static_cast<int>(std::floor(std::log10(ratio))));
      std::printf(" %11.2f %7.*f", other * 1e6, decimals, ratio);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  // Number of wrong elements of this rank's result.
  int64_t wrong_in(Collective kind, const std::vector<float>& out, int64_t share, int64_t count, bool skewed) const {
    const auto sum = [&](int64_t i) {
      float s = 0;
      for (int p = 0; p < n_; ++p) s += value(p, i);
      return s;
    };
    int64_t wrong = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
      float want = 0;
      if (kind == Collective::kAllReduce) want = sum(i);
      if (kind == Collective::kReduceScatter) want = sum(rank_ * share + i);
      if (kind == Collective::kAllGather) want = value(static_cast<int>(i / share), i % share);
      if (kind == Collective::kBroadcast) want = value(0, i);
      if (kind == Collective::kPermute || kind == Collective::kSend) want = value((rank_ + n_ - 1) % n_, i);
      if (kind == Collective::kAllToAll) {
        const int64_t each = skewed ? part(count, rank_) : share;
        int64_t begin = 0;
        for (int q = 0; q < rank_; ++q) begin += skewed ? part(count, q) : share;
        want = value(static_cast<int>(i / each), begin + i % each);
      }
      wrong += out[i] != want;
    }
    return wrong;
  }

  int64_t total(int64_t mine) {
    int64_t all = 0;
    wait(c_.start({.kind = Collective::kAllReduce, .in = {&mine, kInt64, {1}, {1}}, .out = {&all, kInt64, {1}, {1}}}));
    return all;
  }

  // Seconds of one call, on the slowest rank.
  double measure(const std::function<void()>& call) {
    for (int i = 0; i < 2; ++i) call();
    auto begin = Clock::now();
    call();
    double once = slowest(seconds_since(begin));
    const int calls = static_cast<int>(std::clamp(o_.seconds / std::max(once, 1e-9), 3.0, 5000.0));
    wait(c_.start({}));
    begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return slowest(seconds_since(begin) / calls);
  }
  double slowest(double mine) {
    double all = 0;
    wait(c_.start({.kind = Collective::kAllReduce,
                   .op = ReduceOp::kMax,
                   .in = {&mine, kFloat64, {1}, {1}},
                   .out = {&all, kFloat64, {1}, {1}}}));
    return all;
  }
  static void wait(const Ref<Work>& w) {
    if (const auto e = w->wait(Clock::now() + std::chrono::minutes(1))) throw *e;
  }

  static constexpr int kRounds = 10;
  const CommBenchFlags& o_;
  const std::string transport_;
  Communicator& c_;
  const int n_, rank_;
  const bool prints_;
  std::optional<GlooLibrary> library_;
};

void print_copy_rate() {
  std::vector<char> from(64 << 20, 1), to(from.size());
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    std::memcpy(to.data(), from.data(), from.size());
    best = std::min(best, seconds_since(begin));
  }
  std::printf("# copy of 64 MiB by one thread of this machine: %.2f GB/s\n",
              static_cast<double>(from.size()) / best * 1e-9);
  std::fflush(stdout);
}

// Runs in a process that this program has started.
int run_rank(const CommBenchFlags& o, const std::string& transport) {
  const int n = static_cast<int>(o.ranks), rank = std::atoi(std::getenv("RANK"));
  std::vector<int> all(n);
  std::iota(all.begin(), all.end(), 0);
  set_num_threads(1);
  if (transport == "threads") {
    const auto c = dist::make_thread_communicators(n);
    std::vector<std::thread> threads;
    for (int r = 1; r < n; ++r) threads.emplace_back([&, r] { Bench(o, transport, *c[r], false).run(); });
    Bench(o, transport, *c[0], true).run();
    for (std::thread& t : threads) t.join();
    return 0;
  }
  dist::FolderStore store(std::getenv("JOB_STORE"));
  const auto world =
      transport == "shared" ? dist::make_shared_world(store, n, {rank}) : dist::make_gloo_world(store, n, {rank});
  const auto c = world->communicators("world", all);
  Bench(o, transport, *c[0], rank == 0).run();
  return 0;
}

int run(const CommBenchFlags& o, char** argv) {
  check_flag("max_bytes", o.most >= o.least, std::to_string(o.most),
             "at least --min_bytes, " + std::to_string(o.least));
  for (const std::string& c : o.collectives) collective_of(c);
  for (const std::string& t : o.transports)
    check_flag("transports", t == "threads" || t == "shared" || t == "gloo", "'" + t + "'", "threads, shared or gloo");
  check_flag("against", o.against.empty() || o.against == "copy" || o.against == "gloo", "'" + o.against + "'",
             "copy or gloo");
  if (std::getenv("JOB_STORE") && std::getenv("RANK")) return run_rank(o, o.transports.at(0));
  print_copy_rate();
  std::vector<std::string> command;
  for (char** a = argv; *a; ++a) command.emplace_back(*a);
  command.push_back("");
  for (const std::string& t : o.transports) {
    command.back() = "--transports=" + t;
    const int code = dist::launch({.processes = t == "threads" ? 1 : static_cast<int>(o.ranks),
                                   .command = command,
                                   .program = std::filesystem::read_symlink("/proc/self/exe").string(),
                                   .name = "comm_bench"})
                         .code;
    if (code != 0) return code;
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::CommBenchFlags o;
  const weft::Flags flags{
      {"ranks", &o.ranks, "ranks of each transport", {2, 64}},
      {"transports", &o.transports, "threads, shared (memory of one host), gloo (TCP)"},
      {"collectives", &o.collectives, "names of collectives"},
      {"min_bytes", &o.least, "smallest operand in bytes", {4, 1 << 30}},
      {"max_bytes", &o.most, "largest operand in bytes", {4, int64_t{1} << 32}},
      {"factor", &o.factor, "ratio of each size to the size before", {2, 1024}},
      {"seconds", &o.seconds, "time of each measurement", {0, 60}},
      {"against", &o.against,
       "copy: compare with a copy of the operand on all ranks at once; gloo: compare all_reduce with gloo::allreduce"},
      {"skew", &o.skew, "all_to_all: the part of its elements that each other rank gives to rank 0; 0: equal", {0, 1}},
  };
  return weft::run_program(argc, argv,
                           "Times collectives between ranks of this host by size, with the columns of nccl-tests.",
                           flags, [&] { return weft::run(o, argv); });
}
