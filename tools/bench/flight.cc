// flight: the cost of the flight recorder for a collective in a world of one rank (its three records, and the
// difference between a collective with and without the recorder), and the cost of a host phase.
#include "framework/dispatch/rank/flight.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "absl/flags/flag.h"
#include "distributed/comm/self.h"
#include "tools/bench/benchmark.h"

ABSL_FLAG(std::string, folder, "/dev/shm", "the file system of the records");
ABSL_FLAG(int32_t, rounds, 301, "repetitions");

namespace weft::bench {
namespace {

// Nanoseconds of a call of each function, measured in turn.
std::vector<double> times_of(const std::vector<std::function<void()>>& bodies) {
  constexpr int kCalls = 500;
  std::vector<std::vector<double>> times(bodies.size());
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i)
    for (size_t b = 0; b < bodies.size(); ++b) {
      const auto begin = std::chrono::steady_clock::now();
      for (int j = 0; j < kCalls; ++j) bodies[b]();
      times[b].push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kCalls);
    }
  std::vector<double> medians;
  for (std::vector<double>& t : times) {
    std::nth_element(t.begin(), t.begin() + static_cast<ptrdiff_t>(t.size() / 2), t.end());
    medians.push_back(t[t.size() / 2] * 1e9);
  }
  return medians;
}

void run(Report& report) {
  std::string folder = absl::GetFlag(FLAGS_folder) + "/weft-bench-XXXXXX";
  if (!mkdtemp(folder.data())) throw Error(Code::kUnavailable, "cannot make a folder in --folder");
  setenv(flight::kFolderVariable, folder.c_str(), 1);
  flight::RecordRing* const ring = flight::ring(0, 1);
  if (!ring) throw Error(Code::kUnavailable, "cannot make a ring in --folder");
  float in[1] = {1}, out[1];
  const CommRequest request{
      .kind = Collective::kAllReduce, .in = {in, kFloat32, {1}, {1}}, .out = {out, kFloat32, {1}, {1}}, .site = 1};
  const std::unique_ptr<RankContext> plain = dist::make_alone(), recorded = dist::make_alone();
  recorded->flight = ring;
  recorded->begin_step(1);
  const auto early = [&](RankContext& rank) {
    rank.start("dp", request);
    rank.finish(1);
  };
  const std::vector<double> t =
      times_of({[&] { plain->run("dp", request); }, [&] { recorded->run("dp", request); }, [&] { early(*plain); },
                [&] { early(*recorded); }, [&] { ring->write({.event = flight::Event::kWait}); },
                [] { const flight::HostPhase phase(flight::Phase::kLoader); }});
  report.add({"all_reduce of one rank", t[0], "ns"});
  report.add({"all_reduce of one rank, recorded", t[1], "ns"});
  report.add({"the recorder, a collective", t[1] - t[0], "ns", 1000});
  report.add({"the recorder, a collective that starts early", t[3] - t[2], "ns", 1000});
  report.add({"one record", t[4], "ns"});
  report.add({"a host phase", t[5], "ns"});
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "flight", "Measures the cost of the flight recorder for a collective.",
                                    weft::bench::run);
}
