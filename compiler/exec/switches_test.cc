// Switches that the executor reads: traces, one line per launch, ways of running, dumps.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/exec/run/trace.h"
#include "compiler/exec/testing/test_programs.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::Switched;

std::string read_all(const std::string& path) {
  std::ifstream in(path);
  std::stringstream s;
  s << in.rdbuf();
  return s.str();
}

TEST(Switches, TraceHasOneEventPerLaunch) {
  const std::string path = str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/trace.json");
  Switched trace("WEFT_TRACE", path);
  auto step = compile([](Tensor x) {
    NameScope scope("block \"0\"");
    return exp(x) + x;
  });
  step(ones({4}));
  step(ones({4}));
  flush_trace();
  const std::string text = read_all(path);
  size_t events = 0;
  for (size_t at = 0; (at = text.find("\"ph\":\"X\"", at)) != std::string::npos; ++at) ++events;
  EXPECT_EQ(events, 2u) << text;  // exp and add are one kernel
  EXPECT_NE(text.find("\"name\":\"exp_add\""), std::string::npos);
  EXPECT_NE(text.find("block \\\"0\\\""), std::string::npos);
  set_switch("WEFT_TRACE", "/no/such/folder/x.json");
  EXPECT_NE(error_of([] { flush_trace(); }).find("cannot write '/no/such/folder/x.json'"), std::string::npos);
}

TEST(Switches, DebugPrintsOneLinePerLaunch) {
  Switched debug("WEFT_DEBUG", "1");
  auto step = compile([](Tensor x) { return exp(x).sum(); });
  ::testing::internal::CaptureStderr();
  step(ones({4}));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("exp_sum"), std::string::npos);
  EXPECT_NE(text.find("GB/s"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

// A step whose kernel after the product throws where an index is out of range.
Tensor fails(const Tensor& x, const Tensor& index) { return exp(index_select(matmul(x, x), 0, index)).sum(); }
Tensor indices(int64_t second) { return Tensor::from_vector<int64_t>({0, second}, {2}); }

TEST(Switches, DebugPrintsTheLaunchesOfAStepThatThrows) {
  Switched debug("WEFT_DEBUG", "1");
  auto step = compile(fails);
  step(ones({4, 4}), indices(1));
  for (int i = 0; i < 2; ++i) {
    ::testing::internal::CaptureStderr();
    const std::string error = error_of([&] { step(ones({4, 4}), indices(9)); });
    std::istringstream text(::testing::internal::GetCapturedStderr());
    EXPECT_NE(error.find("index 9"), std::string::npos) << error;
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    ASSERT_GE(lines.size(), 2u) << text.str();
    EXPECT_NE(lines[0].find("GB/s"), std::string::npos) << lines[0];
    for (size_t k = 0; k < lines.size(); ++k)
      EXPECT_EQ(lines[k].find(" failed at compiler/exec/switches_test.cc:") != std::string::npos, k + 1 == lines.size())
          << text.str();
  }
}

TEST(Switches, TraceHasTheLaunchesOfAStepThatThrows) {
  const std::string path = str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/failed.json");
  Switched trace("WEFT_TRACE", path);
  auto step = compile(fails);
  step(ones({4, 4}), indices(1));
  flush_trace();
  auto events = [&] {
    const std::string text = read_all(path);
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto before = events();
  EXPECT_NE(error_of([&] { step(ones({4, 4}), indices(9)); }), "");
  const std::string text = read_all(path);  // written when the step throws
  EXPECT_GE(events(), before + 2) << text;
  const size_t failed = text.find("\"failed\":true");
  ASSERT_NE(failed, std::string::npos) << text;
  EXPECT_EQ(text.find("\"name\"", failed), std::string::npos) << text;
}

TEST(Switches, DumpHoldsTheScheduledGraph) {
  const std::string folder = str_cat(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp", "/dump");
  Switched dump("WEFT_DUMP", folder);
  auto step = compile([](Tensor x) { return exp(x).sum(); });
  step(ones({4}));
  bool found = false;
  std::vector<StepRecord> records;
  for (const auto& e : std::filesystem::directory_iterator(folder)) {
    const std::string path = e.path().string();
    if (path.ends_with("scheduled_order.wir")) found = read_all(path) == step.graph("scheduled").to_string();
    if (path.ends_with(".record")) records.push_back(StepRecord::from_proto(read_all(path)));
  }
  EXPECT_TRUE(found);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].launches.size(), step.record().launches.size());
  EXPECT_EQ(records[0].kernels, step.record().kernels);
}

TEST(Switches, WaysOfRunning) {
  for (const char* way : {"eager", "interp", "compiled"}) {
    Switched exec("WEFT_EXEC", way);
    Buffer n(zeros({}));
    auto step = compile([&](Tensor x) {
      n.set(n.value() + 1.0);
      return x * n;
    });
    step(ones({2}));
    EXPECT_EQ(step(ones({2})).to_vector<float>(), (std::vector<float>{2, 2})) << way;
    EXPECT_EQ(step.stats().captures, std::string(way) == "eager" ? 0 : 1);
  }
  Switched exec("WEFT_EXEC", "quickly");
  EXPECT_NE(error_of([] { compile([](Tensor x) { return x; }); }).find("need compiled, interp or eager"),
            std::string::npos);
}

TEST(Switches, VerifyComparesEveryPlan) {
  Switched verify("WEFT_VERIFY", "1");
  auto step = compile([](Tensor x) { return exp(x); });
  step(ones({2}));
  EXPECT_NE(step.report().find("verified"), std::string::npos);
}

}  // namespace
}  // namespace weft
