// Runs a tiny model's step: its rows, its overhead and its memory.
#include "tools/profile/measure.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/json.h"
#include "tools/profile/memory/memory.h"
#include "tools/profile/pictures.h"
#include "tools/profile/profile_text.h"
#include "tools/profile/timeline.h"

namespace weft::profiler {
namespace {

const StepRecord& record() {
  static const StepRecord r =
      measure({.model = "gpt", .config = "gpt_tiny", .batch_size = 2, .seq_len = 16}, /*steps=*/5);
  return r;
}

TEST(Measure, LaunchesAndOverheadAreTheStep) {
  const StepRecord& r = record();
  EXPECT_GT(r.step_us, 0);
  for (const LaunchRecord& l : r.launches) EXPECT_GT(l.measured_us, 0) << l.name;
  for (By by : {By::kKernel, By::kModule, By::kClass, By::kLine}) {
    double us = overhead_us(r);
    for (const ProfileRow& row : rows_of(r, by)) us += row.sum.measured_us;
    EXPECT_NEAR(us, r.step_us, 1e-6 * r.step_us) << to_string(by);
  }
  EXPECT_NEAR(parts_of(r).sum(), r.step_us, 1e-6 * r.step_us);
  EXPECT_EQ(r.title, "gpt gpt_tiny, batch 2 of 16 tokens, f32");
}

TEST(Measure, ThePeakIsTheMeasuredOneAndHasOwners) {
  const StepRecord& r = record();
  ASSERT_GT(r.measured_peak_bytes, 0);
  const MemoryUse use = memory_of(r);
  EXPECT_EQ(r.peak_bytes, r.measured_peak_bytes);
  // Bytes without an owner are the arena's gaps between buffers.
  EXPECT_GE(use.gaps, 0);
  EXPECT_LE(use.gaps, r.measured_peak_bytes / 10);
  for (size_t i = 0; i < 10; ++i) {
    const Holder& h = use.holders[i];
    EXPECT_FALSE(h.name.empty());
    EXPECT_FALSE(h.line.empty()) << h.name;
  }
  // The timeline's maximum is at the plan's peak launch and equals the peak without the gaps.
  std::vector<double> live(r.launches.size());
  for (const MemorySeries& s : memory_timeline(r, 4))
    for (size_t t = 0; t < live.size(); ++t) live[t] += s.bytes[t];
  EXPECT_EQ(static_cast<int64_t>(live[static_cast<size_t>(r.peak_launch)]), r.peak_bytes - use.gaps);
  EXPECT_EQ(*std::max_element(live.begin(), live.end()), live[static_cast<size_t>(r.peak_launch)]);
}

TEST(Measure, StepsOnMeshesHaveCollectives) {
  const tools::StepChoice choice{.model = "gpt", .config = "gpt_tiny", .batch_size = 2, .seq_len = 16, .mesh = "dp2"};
  const StepRecord r = measure(choice, /*steps=*/2, /*rank=*/1);
  EXPECT_EQ(r.rank, 1);
  EXPECT_GT(r.sum(WorkClass::kCollective).measured_us, 0);
  EXPECT_NE(rows_text(r, By::kClass).find("collective"), std::string::npos);
}

TEST(Measure, TimelinesHaveARowForEachRank) {
  const Profile one = trace({.model = "gpt", .config = "gpt_tiny", .batch_size = 2, .seq_len = 16, .mesh = "dp2"});
  const std::string svg = timeline_svg(one, "One step");
  for (const char* text : {"One step", ">rank 0<", ">rank 1<", "forward", "backward", "update", "collective", ">ms<"})
    EXPECT_NE(svg.find(text), svg.npos) << text;
  EXPECT_LT(svg.size(), 400u << 10);
  EXPECT_EQ(testing::error_of([] { timeline_svg(Profile(weft::internal::Trace(), 1), ""); }),
            "timeline: the profile has no events; need one of a step that ran");
}

TEST(Measure, LayersAreFolded) {
  std::string modules;
  for (const ProfileRow& row : rows_of(record(), By::kModule)) modules += row.name + "\n";
  EXPECT_NE(modules.find("blocks.*."), std::string::npos) << modules;
  EXPECT_EQ(modules.find("blocks.0"), std::string::npos) << modules;
  EXPECT_NE(memory_html(record()).find("blocks.*."), std::string::npos);
  EXPECT_NE(roofline_svg(record(), By::kModule).find("blocks.*."), std::string::npos);
  const io::Json j = io::parse_json(profile_json(record(), By::kLine, {}), "profile");
  EXPECT_EQ(j["memory"]["measured_peak_bytes"], record().measured_peak_bytes);
}

}  // namespace
}  // namespace weft::profiler
