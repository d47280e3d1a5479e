#include "distributed/comm/threads.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "distributed/comm/matching.h"
#include "framework/tensor/tensor.h"

namespace weft::dist {
namespace {

using Clock = std::chrono::steady_clock;
Work::Deadline in_a_minute() { return Clock::now() + std::chrono::minutes(1); }

// Runs fn(communicator) on one thread for each rank.
void on_ranks(int n, const std::function<void(Communicator&)>& fn) {
  auto all = make_thread_communicators(n);
  std::vector<std::thread> threads;
  for (auto& c : all) threads.emplace_back([&fn, c] { fn(*c); });
  for (auto& t : threads) t.join();
}

std::string text(const std::optional<Error>& e) { return e ? e->what() : ""; }

template <class T>
StridedView view(std::vector<T>& v, Shape shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(v.size())};
  return {v.data(), DTypeOf<T>::value, shape, contiguous_strides(shape)};
}

// Values that round differently in different orders.
template <class T>
std::vector<T> values(int rank, int64_t n) {
  std::vector<T> v;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = (i * 7919 + rank * 104729 + 17) % 1009;
    if constexpr (std::is_integral_v<T>) {
      v.push_back(static_cast<T>(k - 500));
    } else {
      v.push_back(T(static_cast<float>(k - 500) * 0.37f));
    }
  }
  return v;
}

template <class T>
using Acc =
    std::conditional_t<std::is_integral_v<T>, int64_t, std::conditional_t<std::is_same_v<T, double>, double, float>>;

template <class T>
std::vector<T> folded(int ranks, int64_t n, ReduceOp op) {
  std::vector<T> out;
  std::vector<std::vector<T>> in;
  for (int r = 0; r < ranks; ++r) in.push_back(values<T>(r, n));
  for (int64_t i = 0; i < n; ++i) {
    Acc<T> a = static_cast<Acc<T>>(in[0][i]);
    for (int r = 1; r < ranks; ++r) {
      const Acc<T> b = static_cast<Acc<T>>(in[r][i]);
      if (op == ReduceOp::kMax)
        a = std::max(a, b);
      else if (op == ReduceOp::kMin)
        a = std::min(a, b);
      else
        a = a + b;
    }
    if (op == ReduceOp::kAvg) a = a / static_cast<Acc<T>>(ranks);
    out.push_back(T(a));
  }
  return out;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

template <class T>
void check_reductions(int ranks, int64_t n) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin}) {
    if (op == ReduceOp::kAvg && std::is_integral_v<T>) continue;
    const std::vector<T> want = folded<T>(ranks, n, op);
    on_ranks(ranks, [&](Communicator& c) {
      std::vector<T> in = values<T>(c.rank(), n), out(n), part(n / ranks);
      auto a = c.start({.kind = Collective::kAllReduce, .op = op, .in = view(in), .out = view(out)});
      auto b = c.start({.kind = Collective::kReduceScatter, .op = op, .in = view(in), .out = view(part)});
      EXPECT_EQ(text(a->wait(in_a_minute())), "");
      EXPECT_EQ(text(b->wait(in_a_minute())), "");
      EXPECT_TRUE(a->done() && b->done());
      EXPECT_TRUE(same(out, want));
      const auto begin = want.begin() + c.rank() * (n / ranks);
      EXPECT_TRUE(same(part, std::vector<T>(begin, begin + n / ranks)));
      // The collective works in place.
      auto p = c.start({.kind = Collective::kAllReduce, .op = op, .in = view(in), .out = view(in)});
      EXPECT_EQ(text(p->wait(in_a_minute())), "");
      EXPECT_TRUE(same(in, want));
    });
  }
}

TEST(Threads, ReductionsFoldFromTheFirstRankInEveryDType) {
  for (int ranks : {1, 2, 3, 8}) {
    const int64_t n = 24 * 25;
    check_reductions<float>(ranks, n);
    check_reductions<double>(ranks, n);
    check_reductions<bfloat16>(ranks, n);
    check_reductions<float16>(ranks, n);
    check_reductions<int64_t>(ranks, n);
    check_reductions<int32_t>(ranks, n);
    check_reductions<uint8_t>(ranks, n);
  }
}

TEST(Threads, LargeReductionsAreCutWithoutChangingBits) {
  check_reductions<float>(2, 300000);
  check_reductions<bfloat16>(4, 400000);
}

TEST(Threads, GathersAlongAnyDimWithUnevenSizes) {
  const int64_t sizes[] = {2, 0, 3, 1};
  for (int dim : {0, 1, 2})
    on_ranks(4, [&](Communicator& c) {
      // Each element's value is its position in the whole tensor.
      Shape whole{4, 5, 3}, own = whole;
      whole[dim] = 6;
      own[dim] = sizes[c.rank()];
      int64_t begin = 0;
      for (int r = 0; r < c.rank(); ++r) begin += sizes[r];
      std::vector<int64_t> want(whole.numel()), out(whole.numel(), -1), in;
      for (size_t i = 0; i < want.size(); ++i) want[i] = static_cast<int64_t>(i);
      const Shape s = contiguous_strides(whole);
      for (int64_t i = 0; i < own[0]; ++i)
        for (int64_t j = 0; j < own[1]; ++j)
          for (int64_t k = 0; k < own[2]; ++k) in.push_back(i * s[0] + j * s[1] + k * s[2] + begin * s[dim]);
      auto g = c.start({.kind = Collective::kAllGather,
                        .in = view(in, own),
                        .out = view(out, whole),
                        .recv_counts = sizes,
                        .out_dim = dim});
      EXPECT_EQ(text(g->wait(in_a_minute())), "");
      EXPECT_EQ(out, want);
      // The reduce-scatter goes back, summed over ranks.
      std::vector<int64_t> part(in.size());
      auto b = c.start({.kind = Collective::kReduceScatter,
                        .in = view(out, whole),
                        .out = view(part, own),
                        .send_counts = sizes,
                        .in_dim = dim});
      EXPECT_EQ(text(b->wait(in_a_minute())), "");
      for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], 4 * in[i]);
    });
}

TEST(Threads, AllToAllMovesDims) {
  // [4n, 6] split by rows becomes [rows, 6n] split by columns.
  on_ranks(3, [&](Communicator& c) {
    const int r = c.rank();
    std::vector<float> in, out(4 * 6), want;
    for (int i = 0; i < 12; ++i)
      for (int j = 0; j < 2; ++j) in.push_back(static_cast<float>(100 * i + 10 * r + j));
    auto w = c.start(
        {.kind = Collective::kAllToAll, .in = view(in, {12, 2}), .out = view(out, {4, 6}), .in_dim = 0, .out_dim = 1});
    EXPECT_EQ(text(w->wait(in_a_minute())), "");
    for (int i = 0; i < 4; ++i)
      for (int p = 0; p < 3; ++p)
        for (int j = 0; j < 2; ++j) want.push_back(static_cast<float>(100 * (4 * r + i) + 10 * p + j));
    EXPECT_EQ(out, want);
  });
}

TEST(Threads, RaggedAllToAll) {
  const int64_t counts[3][3] = {{1, 0, 2}, {0, 0, 0}, {3, 1, 0}};  // from, to
  on_ranks(3, [&](Communicator& c) {
    const int r = c.rank();
    std::vector<int32_t> in, out(5, -1), want;
    std::vector<int64_t> send, recv;
    for (int p = 0; p < 3; ++p) {
      send.push_back(counts[r][p]);
      recv.push_back(counts[p][r]);
      for (int64_t i = 0; i < counts[r][p]; ++i) in.push_back(static_cast<int32_t>(100 * r + 10 * p + i));
      for (int64_t i = 0; i < counts[p][r]; ++i) want.push_back(static_cast<int32_t>(100 * p + 10 * r + i));
    }
    want.resize(5, -1);
    auto w = c.start(
        {.kind = Collective::kAllToAll, .in = view(in), .out = view(out), .send_counts = send, .recv_counts = recv});
    EXPECT_EQ(text(w->wait(in_a_minute())), "");
    EXPECT_EQ(out, want);
  });
}

TEST(Threads, BroadcastPermuteSendAndBarrier) {
  on_ranks(16, [&](Communicator& c) {
    const float r = static_cast<float>(c.rank());
    std::vector<float> in{r, r + 0.5f}, out(2);
    EXPECT_EQ(text(c.start({.kind = Collective::kBroadcast, .in = view(in), .out = view(out), .peer = 11})
                       ->wait(in_a_minute())),
              "");
    EXPECT_EQ(out, (std::vector<float>{11, 11.5}));
    for (int shift : {1, -1, 5, 17}) {
      EXPECT_EQ(text(c.start({.kind = Collective::kPermute, .in = view(in), .out = view(out), .shift = shift})
                         ->wait(in_a_minute())),
                "");
      EXPECT_EQ(out[0], static_cast<float>(((c.rank() - shift) % 16 + 16) % 16));
    }
    // Pairs exchange in their own order, between collectives.
    if (c.rank() < 2) {
      const int peer = 1 - c.rank();
      std::vector<float> a(2), b(2), second{-r, -r};
      auto s1 = c.start({.kind = Collective::kSend, .in = view(in), .peer = peer});
      auto s2 = c.start({.kind = Collective::kSend, .in = view(second), .peer = peer});
      auto r1 = c.start({.kind = Collective::kRecv, .out = view(a), .peer = peer});
      auto r2 = c.start({.kind = Collective::kRecv, .out = view(b), .peer = peer});
      for (auto& w : {r2, r1, s1, s2}) EXPECT_EQ(text(w->wait(in_a_minute())), "");
      EXPECT_EQ(a, (std::vector<float>{1 - r, 1.5f - r}));
      EXPECT_EQ(b[0], -(1 - r));
    }
    EXPECT_EQ(text(c.start({.kind = Collective::kBarrier})->wait(in_a_minute())), "");
  });
}

TEST(Threads, StridedOperands) {
  on_ranks(2, [&](Communicator& c) {
    std::vector<float> in(12), out(12, -1);
    for (int i = 0; i < 12; ++i) in[i] = static_cast<float>(i + 100 * c.rank());
    StridedView t{in.data(), kFloat32, {4, 3}, {1, 4}}, o{out.data(), kFloat32, {4, 3}, {1, 4}};
    EXPECT_EQ(text(c.start({.kind = Collective::kAllReduce, .in = t, .out = o})->wait(in_a_minute())), "");
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out[i], static_cast<float>(2 * i + 100));
    StridedView broadcast{in.data(), kFloat32, {2, 3}, {0, 1}};
    std::vector<float> all(12);
    EXPECT_EQ(
        text(c.start({.kind = Collective::kAllGather, .in = broadcast, .out = view(all, {4, 3})})->wait(in_a_minute())),
        "");
    EXPECT_EQ(all, (std::vector<float>{0, 1, 2, 0, 1, 2, 100, 101, 102, 100, 101, 102}));
  });
}

TEST(Threads, ManyUnderWayAtOnce) {
  on_ranks(4, [&](Communicator& c) {
    std::vector<std::vector<float>> in, out;
    std::vector<Ref<Work>> works;
    for (int i = 0; i < 50; ++i) {
      in.push_back(std::vector<float>(1000 * (i % 3) + 1, static_cast<float>(i)));
      out.push_back(std::vector<float>(in.back().size()));
    }
    for (int i = 0; i < 50; ++i)
      works.push_back(c.start({.kind = Collective::kAllReduce, .in = view(in[i]), .out = view(out[i])}));
    for (int i = 49; i >= 0; --i) {
      EXPECT_EQ(text(works[i]->wait(in_a_minute())), "");
      for (float x : out[i]) ASSERT_EQ(x, static_cast<float>(4 * i));
    }
  });
}

TEST(Threads, MismatchNamesBothSides) {
  struct Mismatch {
    CommRequest first, other;
    const char* need;
  };
  std::vector<float> f(4), g(4), h(6);
  std::vector<double> d(4);
  const Mismatch rows[] = {
      {{.kind = Collective::kAllReduce, .in = view(f), .out = view(g), .site = 7},
       {.kind = Collective::kBarrier},
       "all_reduce sum of f32[4] (site 7)"},
      {{.kind = Collective::kAllReduce, .in = view(f), .out = view(g)},
       {.kind = Collective::kAllReduce, .op = ReduceOp::kMax, .in = view(f), .out = view(g)},
       "all_reduce max of f32[4]"},
      {{.kind = Collective::kAllReduce, .in = view(f), .out = view(g)},
       {.kind = Collective::kAllReduce, .in = view(d), .out = view(d)},
       "f64[4]"},
      {{.kind = Collective::kAllReduce, .in = view(f), .out = view(g)},
       {.kind = Collective::kAllReduce, .in = view(h), .out = view(h)},
       "f32[6]"},
      {{.kind = Collective::kAllGather, .in = view(f), .out = view(g)},
       {.kind = Collective::kAllGather, .in = view(f), .out = view(g)},
       "expects f32[2]"},
      {{.kind = Collective::kPermute, .in = view(f), .out = view(g), .shift = 1},
       {.kind = Collective::kPermute, .in = view(f), .out = view(g), .shift = 2},
       "permute of f32[4] by 2"},
      {{.kind = Collective::kReduceScatter, .in = view(h), .out = view(h)},
       {.kind = Collective::kReduceScatter, .in = view(h), .out = view(h)},
       "f32[3]"},
      {{.kind = Collective::kAllReduce,
        .op = ReduceOp::kAvg,
        .in = {nullptr, kInt64, {0}, {1}},
        .out = {nullptr, kInt64, {0}, {1}}},
       {.kind = Collective::kAllReduce,
        .op = ReduceOp::kAvg,
        .in = {nullptr, kInt64, {0}, {1}},
        .out = {nullptr, kInt64, {0}, {1}}},
       "cannot take the avg of i64"},
  };
  for (const Mismatch& row : rows) {
    auto c = make_thread_communicators(2, "tp", {4, 6});
    auto a = c[0]->start(row.first), b = c[1]->start(row.other);
    const std::string first = text(a->wait(in_a_minute())), second = text(b->wait(in_a_minute()));
    EXPECT_EQ(first, second);
    EXPECT_NE(first.find(row.need), std::string::npos) << first;
    EXPECT_NE(first.find("over tp"), std::string::npos) << first;
    // Later collectives report the cause.
    auto later = c[0]->start({.kind = Collective::kBarrier})->wait(in_a_minute());
    EXPECT_EQ(later->code(), Code::kAborted);
    EXPECT_NE(text(later).find(row.need), std::string::npos) << text(later);
  }
}

TEST(Threads, DeadlineNamesTheMissing) {
  auto c = make_thread_communicators(3, "dp", {0, 2, 4});
  std::vector<float> v(4);
  auto b0 = c[0]->start({.kind = Collective::kBarrier}), b1 = c[1]->start({.kind = Collective::kBarrier});
  auto b2 = c[2]->start({.kind = Collective::kBarrier});
  auto a = c[0]->start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v), .site = 3});
  auto b = c[1]->start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v), .site = 3});
  EXPECT_FALSE(a->done());
  auto error = a->wait(Clock::now() + std::chrono::milliseconds(20));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(std::string(error->what()),
            "all_reduce #2 over dp: the deadline has passed; missing: rank 4 (last started barrier #1); waiting in "
            "all_reduce sum of "
            "f32[4] (site 3): rank 0, rank 2");
  EXPECT_TRUE(b->done());
  EXPECT_EQ(text(b->wait(in_a_minute())), error->what());
  // A rank that comes late gets the error at once.
  EXPECT_EQ(c[2]->start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)})->wait(in_a_minute())->code(),
            Code::kAborted);
}

TEST(Threads, AbortWakesAll) {
  auto c = make_thread_communicators(4);
  std::vector<std::thread> threads;
  std::atomic<int> woken{0};
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      std::vector<float> v(4);
      auto error = c[r]->start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)})->wait(in_a_minute());
      EXPECT_NE(text(error).find("rank 3: out of memory"), std::string::npos);
      ++woken;
    });
  c[3]->abort("rank 3: out of memory");
  for (auto& t : threads) t.join();
  EXPECT_EQ(woken, 3);
}

// An error that follows from one that follows names the cause alone.
TEST(Threads, AbortsNameTheirCauseOnce) {
  const std::string once = text(internal::aborted_by("rank 3: out of memory"));
  EXPECT_EQ(once, "collective aborted: rank 3: out of memory");
  EXPECT_EQ(text(internal::aborted_by(once)), once);
}

TEST(Threads, LeavingWithoutWaitingFailsTheOthers) {
  auto c = make_thread_communicators(2);
  std::vector<float> v(4), w(4);
  { auto dropped = c[0]->start({.kind = Collective::kAllReduce, .in = view(v), .out = view(v)}); }
  EXPECT_NE(text(c[1]->start({.kind = Collective::kAllReduce, .in = view(w), .out = view(w)})->wait(in_a_minute()))
                .find("dropped it without waiting"),
            std::string::npos);
}

TEST(Threads, Split) {
  on_ranks(6, [&](Communicator& c) {
    auto part = c.split(c.rank() == 5 ? -1 : c.rank() % 2, -c.rank(), in_a_minute());
    EXPECT_EQ(static_cast<bool>(part), c.rank() != 5);
    if (!part) return;
    EXPECT_EQ(part->size(), c.rank() % 2 ? 2 : 3);
    EXPECT_EQ(part->rank(), part->size() - 1 - c.rank() / 2);  // the keys reverse the order of ranks
    std::vector<int64_t> in{c.rank()}, out(1);
    EXPECT_EQ(
        text(part->start({.kind = Collective::kAllReduce, .in = view(in), .out = view(out)})->wait(in_a_minute())), "");
    EXPECT_EQ(out[0], c.rank() % 2 ? 1 + 3 : 0 + 2 + 4);
  });
}

TEST(Threads, SplitHasADeadline) {
  auto c = make_thread_communicators(2);
  try {
    c[0]->split(0, 0, Clock::now() + std::chrono::milliseconds(20));
    ADD_FAILURE() << "split returned without rank 1";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kDeadlineExceeded);
    EXPECT_NE(std::string(e.what()).find("missing: rank 1"), std::string::npos) << e.what();
  }
}

// A page whose first reader stops until continue_reader().
struct SlowPage {
  static inline char* page = nullptr;
  static inline int stopped[2], go_on[2];  // pipes
  static inline struct sigaction before;
  static size_t bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
  static void stop(int signal, siginfo_t* info, void*) {
    char* at = static_cast<char*>(info->si_addr);
    char byte;
    if (at < page || at >= page + bytes() || write(stopped[1], "x", 1) != 1 || read(go_on[0], &byte, 1) != 1) {
      sigaction(signal, &before, nullptr);
      return;
    }
    mprotect(page, bytes(), PROT_READ | PROT_WRITE);
  }
  SlowPage() {
    page = static_cast<char*>(mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(pipe(stopped) | pipe(go_on), 0);
    struct sigaction action = {};
    action.sa_sigaction = stop;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before);
  }
  ~SlowPage() {
    sigaction(SIGSEGV, &before, nullptr);
    munmap(page, bytes());
    for (int end : {stopped[0], stopped[1], go_on[0], go_on[1]}) close(end);
  }
  void wait_for_reader() {
    char byte;
    EXPECT_EQ(read(stopped[0], &byte, 1), 1);
  }
  void continue_reader() { EXPECT_EQ(write(go_on[1], "x", 1), 1); }
};

TEST(Threads, ARankThatStopsWhileItCopiesMeetsTheDeadline) {
  SlowPage slow;
  auto c = make_thread_communicators(2);
  std::vector<float> a{1, 2}, out_a(2), out_b(2);
  StridedView b = view(a);
  b.data = slow.page;
  auto first = c[0]->start({.kind = Collective::kAllReduce, .in = view(a), .out = view(out_a)});
  std::thread late([&] {  // the last thread does the work, and stops at the page
    auto work = c[1]->start({.kind = Collective::kAllReduce, .in = b, .out = view(out_b)});
    EXPECT_NE(text(work->wait(in_a_minute())).find("the deadline has passed"), std::string::npos);
  });
  slow.wait_for_reader();
  const auto error = first->wait(Clock::now() + std::chrono::milliseconds(20));
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(text(error),
            "all_reduce #1: the deadline has passed; all ranks (rank 0, rank 1) have started it, and 1 of 1 parts are "
            "not copied yet");
  slow.continue_reader();
  late.join();
}

}  // namespace
}  // namespace weft::dist
