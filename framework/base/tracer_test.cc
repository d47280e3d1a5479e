#include "framework/base/tracer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "framework/base/thread_pool.h"

namespace weft::internal {
namespace {

constexpr TraceWindow kProfile = TraceWindow::kProfile, kFile = TraceWindow::kFile;

void op(const char* name) { TraceScope trace(TraceEvent::kOp, name); }

// The trace of fn().
template <class F>
Trace traced_by(F&& fn, uint32_t kinds = kAllKinds) {
  EXPECT_TRUE(open_trace(kProfile, kinds));
  fn();
  Trace trace = collect_trace(kProfile);
  close_trace(kProfile);
  return trace;
}

std::vector<std::string> names(const Trace& trace) {
  std::vector<std::string> all;
  for (const TraceEvent& e : trace.events) all.push_back(e.name);
  return all;
}
using Names = std::vector<std::string>;

TEST(Tracer, OffRecordsNothing) {
  EXPECT_EQ(traced_kinds.load(), 0u);
  TraceScope trace(TraceEvent::kOp, "before");
  EXPECT_EQ(trace.event(), nullptr);
  const Trace all = traced_by([] {});
  EXPECT_TRUE(all.events.empty());
  EXPECT_TRUE(collect_trace(kProfile).events.empty());  // it is closed
}

TEST(Tracer, AnEventBelongsToTheWindowsThatAreOpen) {
  op("before");
  const Trace inner = traced_by([] {
    op("a");
    EXPECT_FALSE(open_trace(kProfile, kAllKinds));
    EXPECT_TRUE(open_trace(kFile, bit_of(TraceEvent::kOp)));
    TraceScope host(TraceEvent::kHost, "b");
    op("b");
  });
  EXPECT_EQ(names(inner), (Names{"a", "b", "b"}));
  op("c");
  EXPECT_EQ(names(collect_trace(kFile)), (Names{"b", "c"}));
  close_trace(kFile);
  op("after");
  EXPECT_EQ(names(traced_by([] { op("d"); })), Names{"d"});
}

TEST(Tracer, OnlyTheKindsOfTheWindow) {
  const Trace trace = traced_by(
      [] {
        op("op");
        TraceScope host(TraceEvent::kHost, "host");
      },
      bit_of(TraceEvent::kHost));
  EXPECT_EQ(names(trace), Names{"host"});
}

TEST(Tracer, SlicesAreSortedWithTheOuterOneFirst) {
  const Trace trace = traced_by([] {
    TraceScope outer(TraceEvent::kStep, "outer", {"model.cc", 3});
    try {
      TraceScope failing(TraceEvent::kHost, "failing");
      op("inner");
      throw std::runtime_error("no");
    } catch (const std::runtime_error&) {
      op("handler");
    }
  });
  ASSERT_EQ(names(trace), (Names{"outer", "failing", "inner", "handler"}));
  const auto& e = trace.events;
  EXPECT_EQ(e[0].line.to_string(), "model.cc:3");
  EXPECT_EQ(trace.threads[e[0].thread], "main");
  for (int i : {0, 2, 3}) EXPECT_FALSE(e[i].failed) << i;
  EXPECT_TRUE(e[1].failed);
  EXPECT_LE(e[0].begin_ns, e[1].begin_ns);
  EXPECT_LE(e[1].end_ns, e[0].end_ns);
}

TEST(Tracer, ARingKeepsTheNewestAndCountsTheRest) {
  const Trace trace = traced_by([] {
    for (int64_t i = 0; i < kTraceRing + 100; ++i)
      record({.name = "e", .begin_ns = i, .end_ns = i, .bytes = i, .kind = TraceEvent::kHost});
  });
  ASSERT_EQ(static_cast<int64_t>(trace.events.size()), kTraceRing);
  EXPECT_EQ(trace.lost, 100);
  EXPECT_EQ(trace.events.front().bytes, 100);
  EXPECT_EQ(trace.events.back().bytes, kTraceRing + 99);
  const Trace next = traced_by([] { op("next"); });
  EXPECT_EQ(next.lost, 0);
  EXPECT_EQ(names(next), Names{"next"});
}

TEST(Tracer, EventsOutliveTheirThread) {
  const Trace trace = traced_by([] {
    op("mine");
    std::thread([] { op("other"); }).join();
    std::thread([] { op("third"); }).join();
  });
  EXPECT_EQ(names(trace), (Names{"mine", "other", "third"}));
  std::set<int32_t> threads;
  for (const TraceEvent& e : trace.events) threads.insert(e.thread);
  EXPECT_EQ(threads.size(), 3u);
  std::thread([] { op("off"); }).join();
  EXPECT_TRUE(traced_by([] {}).events.empty());
}

TEST(Tracer, ThreadsThatEndAreBoundedToo) {
  const int64_t each = kTraceRing, threads = 10;
  const Trace trace = traced_by([&] {
    for (int64_t t = 0; t < threads; ++t)
      std::thread([&] {
        for (int64_t i = 0; i < each; ++i) record({.name = "e", .begin_ns = t, .end_ns = t, .kind = TraceEvent::kHost});
      }).join();
  });
  EXPECT_EQ(static_cast<int64_t>(trace.events.size()) + trace.lost, each * threads);
  EXPECT_EQ(static_cast<int64_t>(trace.events.size()), int64_t{1} << 19);
  EXPECT_EQ(trace.events.back().begin_ns, threads - 1);
}

TEST(Tracer, WorkersAreNamedAndNameWhatRuns) {
  ThreadPool pool(3);
  const ScopedPool use(pool);
  const Trace trace = traced_by([] {
    TraceScope trace(TraceEvent::kOp, "exp");
    traced_thread.rank = 2;
    parallel_for(9, [](int64_t) {});
    traced_thread.rank = -1;
  });
  std::map<std::string, int> workers;
  for (const TraceEvent& e : trace.events) {
    EXPECT_STREQ(e.name, "exp");
    if (e.kind != TraceEvent::kTasks) continue;
    EXPECT_EQ(e.rank, 2);
    ++workers[trace.threads[e.thread]];
  }
  EXPECT_EQ(workers, (std::map<std::string, int>{{"worker 1", 1}, {"worker 2", 1}}));
}

// Under the thread sanitizer: a reader and writers at the same time.
TEST(Tracer, ReadsWhileThreadsWrite) {
  ASSERT_TRUE(open_trace(kProfile, kAllKinds));
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (int t = 0; t < 2; ++t)
    writers.emplace_back([&] {
      for (int64_t i = 0; !stop.load(); ++i)
        record({.name = "e", .begin_ns = i, .end_ns = i + 1, .bytes = 2 * i, .kind = TraceEvent::kHost});
    });
  for (int64_t lost = 0; lost < 4 * kTraceRing;) {
    const Trace trace = collect_trace(kProfile);
    lost = trace.lost;
    for (const TraceEvent& e : trace.events) {
      ASSERT_STREQ(e.name, "e");
      ASSERT_EQ(e.end_ns, e.begin_ns + 1);
      ASSERT_EQ(e.bytes, 2 * e.begin_ns);
    }
  }
  stop = true;
  for (std::thread& t : writers) t.join();
  close_trace(kProfile);
}

}  // namespace
}  // namespace weft::internal
