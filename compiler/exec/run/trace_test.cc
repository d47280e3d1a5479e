// Profiles and trace files of one device: compiled and eager programs.
#include "compiler/exec/run/trace.h"

#include <algorithm>
#include <set>

#include "compiler/exec/record/profile.h"
#include "compiler/exec/testing/test_programs.h"
#include "compiler/exec/testing/trace_file.h"
#include "framework/autodiff/grad.h"
#include "framework/base/thread_pool.h"
#include "ops/composite/composite.h"

namespace weft {
namespace {

using testing::error_of;
using testing::TraceFile;

std::string file(const std::string& name) { return ::testing::TempDir() + "/" + name; }

std::vector<TraceEvent> of(const Profile& p, TraceEvent::TraceKind kind) {
  std::vector<TraceEvent> all;
  for (const TraceEvent& e : p.events())
    if (e.kind == kind) all.push_back(e);
  return all;
}

struct Training {
  Parameter w{ones({64, 64}), "w"};
  Tensor operator()(const Tensor& x) {
    NameScope scope("model \"a\"\n\xff");
    const Tensor loss = sum(exp(matmul(x, w.value()) * 1e-3));
    const Tensor g = grad(loss, {w.value()})[0];
    w.set(w.value() - g * 0.1);
    return loss;
  }
};

TEST(Profile, OfACompiledStep) {
  auto step = compile(Training());
  const Tensor x = ones({64, 64});
  step(x);
  const Profile p = profile([&] { step(x); }, 3);
  const StepRecord record = step.record();
  EXPECT_EQ(p.steps(), 3);
  EXPECT_EQ(p.trace().lost, 0);
  EXPECT_EQ(of(p, TraceEvent::kStep).size(), 6u);  // each call, and the compiled function in it
  const std::vector<TraceEvent> launches = of(p, TraceEvent::kLaunch);
  ASSERT_EQ(launches.size(), 3 * record.launches.size());
  int64_t most = 0;
  for (size_t i = 0; i < launches.size(); ++i) {
    const LaunchRecord& l = record.launches[i % record.launches.size()];
    EXPECT_EQ(launches[i].name, l.name);
    EXPECT_EQ(launches[i].scope, l.scope);
    EXPECT_EQ(launches[i].line.to_string(), l.line.to_string());
    EXPECT_STREQ(launches[i].phase, to_string(l.phase));
    int64_t live = 0;
    const auto t = static_cast<int32_t>(i % record.launches.size());
    for (const BufferRecord& b : record.buffers)
      if (b.home == "arena" && b.first >= 0 && b.first <= t && t <= b.last) live += b.bytes;
    EXPECT_EQ(launches[i].bytes, live);
    most = std::max(most, live);
  }
  EXPECT_GT(most, 0);
  EXPECT_EQ(of(p, TraceEvent::kHost).size(), 6u);  // bind and commit
  EXPECT_NE(p.summary().find("3 steps in "), std::string::npos);

  p.save(file("compiled.json"));
  const TraceFile trace(file("compiled.json"));
  trace.expect_sound();
  EXPECT_EQ(trace.lost, 0);
  EXPECT_EQ(trace.of("X", "launch").size(), launches.size());
  EXPECT_EQ(trace.of("X", "launch")[0].at("args").at("scope"), "model \"a\"\n?");
  const std::vector<io::Json> counters = trace.of("C");
  ASSERT_EQ(counters.size(), launches.size() + 3);  // 0 after each step
  EXPECT_EQ(counters[0].at("args").at("live bytes"), launches[0].bytes);
  EXPECT_EQ(counters.back().at("args").at("live bytes"), 0);
  EXPECT_TRUE(trace.of("s").empty());
}

TEST(Profile, OfAnEagerProgram) {
  const Tensor x = ones({8, 8});
  const uint32_t line = __LINE__ + 4;
  const Profile p = profile(
      [&] {
        NameScope scope("block");
        exp(x);
        softmax(x, -1);
      },
      2);
  const std::vector<TraceEvent> ops = of(p, TraceEvent::kOp);
  const auto found =
      std::find_if(ops.begin(), ops.end(), [](const TraceEvent& e) { return e.name == std::string("exp"); });
  ASSERT_NE(found, ops.end());
  EXPECT_STREQ(found->scope, "block");
  EXPECT_EQ(found->line.to_string(), str_cat("compiler/exec/run/trace_test.cc:", line));
  EXPECT_TRUE(of(p, TraceEvent::kLaunch).empty());
  p.save(file("eager.json"));
  TraceFile(file("eager.json")).expect_sound();
  EXPECT_TRUE(profile([] {}, 1).events().size() == 1);
}

// Each thread of a pool has its own track, and each compiled function its launches.
TEST(Profile, OfSeveralFunctionsAndThreads) {
  ThreadPool pool(3);
  const ScopedPool use(pool);
  auto f = compile([](Tensor x) { return exp(x) * 2.0; });
  auto g = compile([](Tensor x) { return matmul(x, x) + 1.0; });
  const Tensor x = ones({512, 512});
  const Profile p = profile([&] { g(f(x)); }, 2);  // captured inside
  std::set<std::string> launches, hosts;
  for (const TraceEvent& e : of(p, TraceEvent::kLaunch)) launches.insert(e.name);
  for (const TraceEvent& e : of(p, TraceEvent::kHost)) hosts.insert(e.name);
  EXPECT_GE(launches.size(), 2u);
  EXPECT_TRUE(hosts.contains("capture and plan"));
  std::set<std::string> workers;
  for (const TraceEvent& e : of(p, TraceEvent::kTasks)) {
    workers.insert(p.trace().threads[static_cast<size_t>(e.thread)]);
    EXPECT_STRNE(e.name, "tasks");
  }
  EXPECT_EQ(workers, (std::set<std::string>{"worker 1", "worker 2"}));
  p.save(file("threads.json"));
  TraceFile(file("threads.json")).expect_sound();
}

TEST(Profile, Refuses) {
  EXPECT_NE(error_of([] { profile([] {}, 0); }).find("profile: got 0 steps; need 1 or more"), std::string::npos);
  const std::string nested = error_of([] { profile([] { profile([] {}, 1); }, 1); });
  EXPECT_NE(nested.find("profile: another profile is running in this process; need one at a time"), std::string::npos)
      << nested;
  auto step = compile([](Tensor x) {
    profile([] {}, 1);
    return x + 1.0;
  });
  const std::string inside = error_of([&] { step(ones({2})); });
  EXPECT_NE(inside.find("profile: called inside a compiled function; need a call outside of it"), std::string::npos)
      << inside;
  EXPECT_NE(error_of([] {
              profile([] {}, 1).save("/no/such/folder/x.json");
            }).find("profile: cannot write '/no/such/folder/x.json': No such file"),
            std::string::npos);
  EXPECT_EQ(internal::traced_kinds.load(), 0u);  // the errors closed their windows
}

TEST(Profile, OfAStepThatThrowsEndsTheWindow) {
  auto step = compile([](Tensor x, Tensor i) { return index_select(exp(x), 0, i); });
  const Tensor x = ones({4, 4});
  step(x, Tensor::from_vector<int64_t>({1}, {1}));
  const auto fails = [&] { step(x, Tensor::from_vector<int64_t>({9}, {1})); };
  EXPECT_NE(error_of([&] { profile(fails, 1); }).find("index 9"), std::string::npos);
  EXPECT_EQ(internal::traced_kinds.load(), 0u);
  // Caught inside: the launch, the step around it and the op that failed are marked.
  const Profile p = profile([&] { error_of(fails); }, 1);
  const auto failed = [](const TraceEvent& e) { return e.failed; };
  for (const auto& events : {of(p, TraceEvent::kLaunch), of(p, TraceEvent::kStep)})
    EXPECT_EQ(std::count_if(events.begin(), events.end(), failed), 1);
  p.save(file("thrown.json"));
  TraceFile(file("thrown.json")).expect_sound();
}

TEST(Profile, BesideATraceFile) {
  testing::Switched trace("WEFT_TRACE", file("beside.json"));
  auto step = compile([](Tensor x) { return exp(x) + x; });
  const Tensor x = ones({4});
  step(x);
  EXPECT_EQ(of(profile([&] { step(x); }, 1), TraceEvent::kLaunch).size(), 1u);
  step(x);
  flush_trace();
  const TraceFile all(file("beside.json"));
  all.expect_sound();
  EXPECT_EQ(all.of("X", "launch").size(), 3u);
}

}  // namespace
}  // namespace weft
