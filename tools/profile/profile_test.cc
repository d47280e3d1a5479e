// Tables, shares and comparisons of handmade records.
#include <gtest/gtest.h>

#include <numeric>

#include "compiler/cost/roofline.h"
#include "framework/base/testing/error_of.h"
#include "framework/io/json.h"
#include "tools/profile/diff.h"
#include "tools/profile/pictures.h"
#include "tools/profile/profile_text.h"
#include "tools/profile/testing/made_record.h"

namespace weft::profiler {
namespace {

using testing::error_of;

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no '" << part << "' in\n" << text;
}

// The names of modules that ModuleFolds gives for cells of these names and sizes.
std::vector<std::string> folded(const std::vector<std::pair<std::string, int64_t>>& cells,
                                const std::vector<std::string>& modules) {
  StepRecord r;
  for (const auto& [name, bytes] : cells) r.buffers.push_back({.home = "cell", .owner = name, .bytes = bytes});
  for (const std::string& m : modules) r.launches.push_back(made_launch("k", m, 1, WorkClass::kElementwise, 1, 1, {}));
  const ModuleFolds folds(r);
  std::vector<std::string> names;
  for (const std::string& m : modules) names.push_back(folds(m));
  return names;
}

TEST(Profile, FoldsEqualSiblings) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(folded({{"blocks.0.w", 4}, {"blocks.1.w", 4}, {"blocks.10.w", 4}}, {"blocks.0.w", "blocks.10", ""}),
            (Names{"blocks.*.w", "blocks.*", "(no module)"}));
  // An nn::Sequential of a layer, an activation and another layer.
  EXPECT_EQ(folded({{"0.weight", 4}, {"2.weight", 8}}, {"0", "1", "2"}), (Names{"0", "1", "2"}));
  // A dense block before equal ones, and experts in each.
  EXPECT_EQ(folded({{"b.0.up", 8}, {"b.1.e.0.up", 4}, {"b.1.e.1.up", 4}, {"b.2.e.0.up", 4}, {"b.2.e.1.up", 4}},
                   {"b.0", "b.1.e.1", "b.2.e.0"}),
            (Names{"b.0", "b.1-2.e.*", "b.1-2.e.*"}));
  EXPECT_EQ(folded({}, {"layers.0/act", "layers.1/act"}), (Names{"layers.*/act", "layers.*/act"}));
}

TEST(Rows, SumTheLaunchesOfAName) {
  const StepRecord r = made_record();
  const std::vector<ProfileRow> rows = rows_of(r, By::kKernel);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "dot");
  EXPECT_EQ(rows[0].sum.launches, 2);
  EXPECT_EQ(rows[0].sum.measured_us, 600);
  EXPECT_EQ(rows[0].sum.work.flops, 48e6);
  EXPECT_EQ(rows[0].sum.work.bytes, 2e6);
  EXPECT_DOUBLE_EQ(rows[0].reached(), .8);
  EXPECT_EQ(rows[0].bound, Bound::kProducts);
  EXPECT_EQ(rows[1].bound, Bound::kMemory);
  for (By by : {By::kKernel, By::kModule, By::kClass, By::kLine}) {
    double us = 0;
    int launches = 0;
    for (const ProfileRow& row : rows_of(r, by)) us += row.sum.measured_us, launches += row.sum.launches;
    EXPECT_EQ(us, r.sum().measured_us) << to_string(by);
    EXPECT_EQ(launches, 5) << to_string(by);
  }
}

TEST(Rows, FoldEqualLayers) {
  const std::vector<ProfileRow> rows = rows_of(made_record(), By::kModule);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "blocks.*.up");
  EXPECT_EQ(rows[0].sum.launches, 2);
  EXPECT_EQ(rows[1].name, "blocks.*.norm");
  EXPECT_EQ(rows[2].name, "(no module)");
  EXPECT_EQ(rows_of(made_record(), By::kLine)[0].name, "model.cc:12, in blocks.*.up");
  EXPECT_EQ(rows_of(made_record(), By::kClass)[0].name, "contraction");
}

// One line of a model's loop over its layers stands for many modules, and a kernel's name for many places.
TEST(Rows, OfOneLineOrOneKernelSayModuleAndPhase) {
  StepRecord r = made_record();
  r.launches.push_back(r.launches[0]);
  r.launches.back().phase = Phase::kBackward;
  r.launches.push_back(
      made_launch("dot", "blocks.0.down", 12, WorkClass::kContraction, 10, 9, {.flops = 1e6, .products = 1e6}));
  std::vector<std::string> lines;
  for (const ProfileRow& row : rows_of(r, By::kLine)) lines.push_back(row.name);
  EXPECT_EQ(lines, (std::vector<std::string>{"model.cc:12, in blocks.*.up", "model.cc:12, in blocks.*.up, backward",
                                             "model.cc:14, in blocks.*.norm", "model.cc:20, (no module), update",
                                             "model.cc:12, in blocks.*.down"}));
  const ProfileRow dot = rows_of(r, By::kKernel)[0];
  EXPECT_EQ(dot.places, (std::vector<std::string>{"blocks.*.up", "blocks.*.up, backward", "blocks.*.down"}));
  const std::string text = rows_text(r, By::kKernel);
  expect_has(text, "products  blocks.*.up and 2 more");
  expect_has(text, "(no module), update");
  const io::Json j = io::parse_json(profile_json(r, By::kKernel, {}), "profile");
  EXPECT_EQ(j["rows"][0]["places"][1], "blocks.*.up, backward");
}

TEST(Rows, LaunchesAndOverheadAreTheStep) {
  StepRecord r = made_record();
  EXPECT_EQ(overhead_us(r), 200);
  const StepParts parts = parts_of(r);
  EXPECT_EQ(parts.compute, 600);
  EXPECT_EQ(parts.memory, 200);
  EXPECT_EQ(parts.overhead, 200);
  EXPECT_EQ(parts.sum(), r.step_us);
  const std::string text = rows_text(r, By::kKernel);
  // calls, ms, share of the step, MB, MFLOP, GB/s, GFLOP/s, share of the roofline
  expect_has(text, "dot               2  0.600   60.0%  2.00  48.00  3.33     80.0     80.0%  products");
  expect_has(text, "overhead             0.200   20.0%");
  expect_has(text, "step                 1.000  100.0%");
  expect_has(parts_text(r), "compute 0.600 ms (60.0%), memory 0.200 ms (20.0%), overhead 0.200 ms (20.0%)");
  // A step that was not timed has no overhead.
  r.step_us = 0;
  EXPECT_EQ(overhead_us(r), 0);
  EXPECT_EQ(rows_text(r, By::kKernel).find("overhead"), std::string::npos);
  expect_has(head_text(r), "no time of the whole step");
}

TEST(Rows, RecordsWithoutTimesHaveWorkOnly) {
  StepRecord r = made_record();
  for (LaunchRecord& l : r.launches) l.measured_us = 0;
  EXPECT_EQ(rows_of(r, By::kKernel)[0].name, "dot");  // sorted by predicted time
  expect_has(rows_text(r, By::kKernel),
             "dot               2   -      -  2.00  48.00     -        -         -  products");
  expect_has(head_text(r),
             "This record has no measured times, so shares of time are predicted. To measure, call the step four times "
             "before step.record(), or on a GPU once inside profile().\n");
  const std::string then = what_if_text(r, parse_what_if("contraction=2"));
  expect_has(then, "launches take 0.410 ms instead of 0.650; these times are predicted");
  EXPECT_EQ(then.find("the step"), std::string::npos);
  expect_has(error_of([&] { roofline_svg(r, By::kKernel); }),
             "roofline: the record has no measured times; call the step four times before step.record()");
}

// Data Movement Is All You Need (Ivanov et al. 2021), table 1: 99.80, 0.17 and 0.03 % of the FLOPs take 61.0, 25.5 and
// 13.5 % of the time. The machine and the intensities come from compiler/cost/roofline_test.cc.
TEST(Classes, V20FewOperationsTakeMuchOfTheTime) {
  StepRecord r;
  r.machine = {.bytes = 0.9e12, .flops = 14e12, .products = 125e12};
  const double all = 1e15;
  const Cost work[] = {{.flops = .998 * all, .bytes = .998 * all / 1000, .products = .998 * all},
                       {.flops = .0017 * all, .bytes = .0017 * all / .566},
                       {.flops = .0003 * all, .bytes = .0003 * all / .189}};
  for (int k = 0; k < 3; ++k) {
    const double us = 1e6 * roofline_seconds(r.machine, work[k]);
    r.launches.push_back(made_launch("k", "", 1, kClasses[k], us, us, work[k]));
  }
  const std::vector<ClassShare> shares = class_shares(r);
  ASSERT_EQ(shares.size(), 3u);
  const double flops[] = {.9980, .0017, .0003}, time[] = {.610, .255, .135};
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_NEAR(shares[k].flops, flops[k], 5e-5);
    EXPECT_NEAR(shares[k].time, time[k], 1e-3);
  }
  const std::string text = parts_text(r);
  expect_has(text, "contraction        1  99.8%  61.0%");
  expect_has(text, "normalisation      1   0.2%  25.5%");
  expect_has(text, "elementwise        1  0.03%  13.5%");
}

// Products that are ten times as fast make 15 % of the time 63.8 %.
TEST(WhatIf, V34TheRestGrowsWhenProductsBecomeFast) {
  StepRecord r;
  r.step_us = 1100;
  r.launches.push_back(made_launch("dot", "", 1, WorkClass::kContraction, 850, 850, {.flops = 1e6, .products = 1e6}));
  r.launches.push_back(made_launch("norm", "", 1, WorkClass::kNormalisation, 150, 150, {.flops = 1e3}));
  const FasterStep then = what_if(r, parse_what_if("products=10x"));
  EXPECT_DOUBLE_EQ(then.launches_us, 235);
  EXPECT_NEAR(then.shares[1].time, .638, .0005);
  EXPECT_NEAR(then.shares[0].time, 1 - .638, .0005);
  const std::string text = what_if_text(r, parse_what_if("products=10x"));
  expect_has(
      text,
      "if contraction were 10 times as fast: launches take 0.235 ms instead of 1.000, the step 0.335 instead of 1.100");
  expect_has(what_if_text(r, parse_what_if("contraction=0.5,normalisation=1.5")),
             "if contraction were 2 times as slow, normalisation were 1.5 times as fast: launches take 1.800");
  expect_has(text, "normalisation      1  0.10%  63.8%");
  // Both ten times as fast: the shares stay.
  EXPECT_DOUBLE_EQ(what_if(r, parse_what_if("products=10,normalisation=10x")).shares[1].time, .15);
}

// Launches that were timed on a busy machine may take longer than the step did.
TEST(Busy, TimesThatAreNotComparableAreReported) {
  StepRecord r = made_record();
  const std::string note = "the machine was busy, and these times are not comparable; measure again on an idle machine";
  r.step_us = 790;  // the launches take 800 us: noise
  EXPECT_EQ(rows_text(r, By::kKernel).find(note), std::string::npos);
  r.step_us = 400;
  expect_has(rows_text(r, By::kKernel), "The launches took 0.800 ms when they were timed, and the step 0.400 ms");
  expect_has(rows_text(r, By::kKernel), note);
  EXPECT_EQ(diff_text(made_record(), made_record(), By::kKernel).find(note), std::string::npos);
  expect_has(diff_text(made_record(), r, By::kKernel), "after: The launches took 0.800 ms");
  // The step changes like the launches: 600 us of 800 us are products.
  EXPECT_DOUBLE_EQ(what_if(r, parse_what_if("contraction=10")).step_us, 400 * .325);
  const io::Json j = io::parse_json(profile_json(r, By::kModule, parse_what_if("contraction=1e9")), "profile");
  EXPECT_EQ(j["comparable"], false);
  EXPECT_GT(j["what_if"]["step_us"], 0.0);
}

TEST(WhatIf, RefusesOtherTexts) {
  for (const char* bad : {"products", "products=", "products=0x", "products=-1", "products=x", "products=nan",
                          "products=1e400", "gemm=2x", "products=2x,", "=2", "products=2xx"})
    expect_has(error_of([&] { parse_what_if(bad); }),
               "need CLASS=FACTOR such as contraction=10x, with a factor above 0 and one of contraction (also called "
               "products), normalisation, elementwise, movement and collective");
  expect_has(error_of([] { parse_what_if("products=2,contraction=2"); }), "'contraction' twice");
  expect_has(error_of([] { parse_by("op"); }), "--by is 'op'; need kernel, module, class or line");
}

TEST(Diff, MatchesRowsAndNamesWhatIsNewAndGone) {
  const StepRecord before = made_record();
  StepRecord after = made_record();
  after.step_us = 700;
  after.launches.pop_back();  // without the update
  for (LaunchRecord& l : after.launches)
    if (l.name == "dot") l.measured_us = 200;
  after.launches.push_back(made_launch("copy", "", 31, WorkClass::kMovement, 60, 50, {.bytes = 5e5}));
  const std::vector<DiffRow> rows = diff_rows(before, after, By::kKernel);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].name, "dot");
  EXPECT_EQ(rows[0].change_us(), -200);
  EXPECT_EQ(rows[1].name, "update");
  EXPECT_EQ(rows[1].after.launches, 0);
  EXPECT_EQ(rows[2].name, "copy");
  EXPECT_EQ(rows[2].before.launches, 0);
  EXPECT_EQ(rows[3].change_us(), 0);
  const std::string text = diff_text(before, after, By::kKernel);
  const size_t faster = text.find("faster\n"), fresh = text.find("new\n"), gone = text.find("gone\n");
  EXPECT_LT(faster, text.find("  dot "));
  EXPECT_LT(text.find("  dot "), fresh);
  EXPECT_LT(fresh, text.find("  copy "));
  EXPECT_LT(text.find("  copy "), gone);
  EXPECT_LT(gone, text.find("  update "));
  expect_has(text, "the same: 1");
  expect_has(text, "-30.0%");  // the step
  expect_has(text, "\nTimes are single measurements: records have no spread.");
  EXPECT_EQ(text.find("slower"), std::string::npos);
  expect_has(diff_text(after, before, By::kKernel), "slower");
  after.step_us = 0;
  expect_has(diff_text(before, after, By::kKernel), "One record only has a time of the whole step");
  const io::Json j = io::parse_json(diff_json(before, after, By::kLine), "diff");
  EXPECT_EQ(j["rows"][0]["name"], "model.cc:12, in blocks.*.up");
  EXPECT_EQ(j["rows"][0]["us"], (io::Json{600.0, 400.0}));
}

TEST(Profile, IsJson) {
  const StepRecord r = made_record();
  const io::Json j = io::parse_json(profile_json(r, By::kModule, parse_what_if("contraction=2x")), "profile");
  EXPECT_EQ(j["title"], "made");
  EXPECT_EQ(j["overhead_us"], 200.0);
  EXPECT_EQ(j["rows"].size(), 3u);
  EXPECT_EQ(j["rows"][0]["name"], "blocks.*.up");
  EXPECT_EQ(j["classes"].size(), 3u);
  EXPECT_EQ(j["comparable"], true);
  EXPECT_EQ(j["what_if"]["launches_us"], 500.0);
  EXPECT_EQ(j["what_if"]["launches_before_us"], 800.0);
  EXPECT_EQ(j["what_if"]["step_us"], 700.0);
  EXPECT_EQ(j["what_if"]["step_before_us"], 1000.0);
  EXPECT_EQ(j["what_if"]["predicted"], false);
}

TEST(Roofline, DrawsTheRowsAndTheMachine) {
  const std::string svg = roofline_svg(made_record(), By::kKernel);
  for (const char* part : {"products of f32: 100 GFLOP/s", "elementwise: 50 GFLOP/s", "memory: 10.0 GB/s",
                           "bound by products", "bound by memory", "1 dot 75.0%", "GFLOP/s", "made"})
    expect_has(svg, part);
}

}  // namespace
}  // namespace weft::profiler
