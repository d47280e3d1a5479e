#include "distributed/comm/testing/mismatches.h"

#include <gtest/gtest.h>

#include "distributed/comm/threads.h"

namespace weft::testing {

void check_mismatches(const MakeWorld& make) {
  static std::vector<float> f(6), g(6), h(40000), hh(40000);
  static std::vector<double> d(6);
  static const int64_t three[] = {1, 1, 1};
  auto wide = [](std::vector<float>& v, int64_t n) { return StridedView{v.data(), kFloat32, {n}, {1}}; };
  auto reduce = [=](int64_t n, ReduceOp op = ReduceOp::kSum, uint64_t site = 0) {
    return CommRequest{.kind = Collective::kAllReduce, .op = op, .in = wide(f, n), .out = wide(g, n), .site = site};
  };
  using C = Collective;
  const std::function<CommRequest(int rank)> rows[] = {
      {[=](int r) { return r ? CommRequest{.kind = C::kBarrier} : reduce(4, ReduceOp::kSum, 7); }},
      {[=](int r) { return reduce(r ? 6 : 4); }},
      {[=](int r) { return reduce(4, r ? ReduceOp::kMax : ReduceOp::kSum); }},
      {[=](int r) { return r ? CommRequest{.kind = C::kAllReduce, .in = view(d), .out = view(d)} : reduce(6); }},
      {[=](int r) { return CommRequest{.kind = C::kBroadcast, .in = view(f), .out = view(g), .peer = r}; }},
      {[=](int) { return CommRequest{.kind = C::kBroadcast, .in = view(f), .out = view(g), .peer = 5}; }},
      {[=](int r) { return CommRequest{.kind = C::kPermute, .in = view(f), .out = view(g), .shift = r}; }},
      {[=](int r) { return CommRequest{.kind = C::kAllGather, .in = view(f), .out = view(g), .out_dim = r ? 0 : 3}; }},
      {[=](int) { return CommRequest{.kind = C::kAllGather, .in = view(f), .out = view(g), .out_dim = 3}; }},
      {[=](int) { return CommRequest{.kind = C::kAllGather, .in = wide(f, 3), .out = wide(g, 5)}; }},
      {[=](int) {
        return CommRequest{.kind = C::kReduceScatter, .in = view(f), .out = wide(g, 3), .send_counts = three};
      }},
      {[=](int r) {
        return r ? CommRequest{.kind = C::kRecv, .out = view(d), .peer = 0}
                 : CommRequest{.kind = C::kSend, .in = view(f), .peer = 1};
      }},
      {[=](int r) {
        return r ? CommRequest{.kind = C::kRecv, .out = wide(f, 5), .peer = 0}
                 : CommRequest{.kind = C::kSend, .in = view(f), .peer = 1};
      }},
      // The operands are large enough to be divided among the ranks.
      {[=](int r) {
        return CommRequest{.kind = C::kAllReduce, .in = wide(h, r ? 40000 : 39999), .out = wide(hh, r ? 40000 : 39999)};
      }},
      {[](int) {
        static std::vector<int64_t> i(6);
        return CommRequest{.kind = C::kAllReduce, .op = ReduceOp::kAvg, .in = view(i), .out = view(i)};
      }},
  };
  Common<Times> times;
  for (const auto& request : rows) {
    auto c = dist::make_thread_communicators(2, "tp");
    auto a = c[0]->start(request(0)), b = c[1]->start(request(1));
    const std::string want = text(a->wait(in_a_minute())), later_want = text(c[0]->start({})->wait(in_a_minute()));
    const Code code = b->wait(in_a_minute())->code();
    EXPECT_NE(want, "");
    times->event = 0;
    times->ready = 0;
    const std::string ends = run_world(
        make, each(2),
        [&](Communicator& c, dist::ProcessWorld&) {
          const int rank = c.rank();
          if (rank == 1) {  // rank 0 starts first, and 15 ms are enough for its message
            while (times->ready == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(15));
            times->event = now();
          }
          auto work = c.start(request(rank));
          times->ready = 1;
          const auto error = work->wait(in_a_minute());
          times->longer(now() - times->event);
          EXPECT_EQ(text(error), want);
          if (!error) return;
          EXPECT_EQ(error->code(), code);
          for (int i = 0; i < 3; ++i) {
            const auto later = c.start({})->wait(in_a_minute());
            EXPECT_EQ(text(later), later_want);
            EXPECT_EQ(later->code(), Code::kAborted);
          }
        },
        "tp");
    EXPECT_EQ(ends, "0 0") << want;
  }
  std::printf("longest time from the second rank's start to an error: %.2f ms\n", times->longest * 1e-6);
}

}  // namespace weft::testing
