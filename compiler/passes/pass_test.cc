// The runner: disabling by name, reports, dumps and verification, on passes and ops made for these tests.
#include "compiler/passes/pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "framework/base/switches.h"
#include "framework/base/testing/error_of.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

/// Sets a switch for one test.
struct Switched {
  Switched(const char* name, std::string value) : name_(name), was_(switch_value(name)) {
    set_switch(name, std::move(value));
  }
  ~Switched() { set_switch(name_, was_); }
  const char* name_;
  std::string was_;
};

Ref<Graph> start() {
  return parse_graph(R"(graph captured (%0: f32[2]) {
    %1 = neg %0
    debug_print %1
    return %1
  })",
                     weft::testing::test_ops());
}

Ref<Graph> add_one(const Graph& g) {  // a dead node
  auto now = make_ref<Graph>(g);
  Node n;
  n.op = &weft::testing::neg_op;
  n.inputs = {now->inputs[0]};
  n.outputs = {now->type(now->inputs[0])};
  now->add(std::move(n));
  return now;
}
Ref<Graph> to_joint(const Graph& g) {
  auto now = make_ref<Graph>(g);
  now->stage = "joint";
  return now;
}
Ref<Graph> nothing(const Graph&) { return nullptr; }
Ref<Graph> copy(const Graph& g) { return make_ref<Graph>(g); }
Ref<Graph> drop_output(const Graph& g) {
  auto now = make_ref<Graph>(g);
  now->outputs.clear();
  return now;
}
Ref<Graph> drop_effect(const Graph& g) {
  Rewriter r(g);
  for (int32_t id = 0; id < g.size(); ++id)
    if (!g.node(id).op->is(kSideEffect)) r.copy(id);
  return r.finish();
}
Ref<Graph> wrong_type(const Graph& g) {
  auto now = add_one(g);
  Node n = now->node(now->size() - 1);
  n.outputs[0].shape = {3};
  now->add(std::move(n));
  return now;
}
Ref<Graph> throws(const Graph&) { internal::fail(Code::kUnimplemented, "cannot"); }

constexpr Pass kList[] = {{"add_one", add_one, "first"},
                          {"nothing", nothing, "to see"},
                          {"joint", to_joint, "must", true},
                          {"copy", copy, "last"}};

std::string error_of(std::span<const Pass> passes, const PassOptions& options = {}) {
  return testing::error_of([&] { run_passes(start(), passes, options); });
}

TEST(RunPasses, ReportsWhatEachDid) {
  std::vector<PassReport> report;
  Ref<Graph> g = run_passes(start(), kList, {.report = &report});
  EXPECT_EQ(g->stage, "joint");
  EXPECT_EQ(g->size(), 4);
  ASSERT_EQ(report.size(), 4u);
  EXPECT_TRUE(report[0].changed);
  EXPECT_EQ(report[0].nodes_before, 3);
  EXPECT_EQ(report[0].nodes_after, 4);
  EXPECT_FALSE(report[1].changed);
  EXPECT_FALSE(report[3].changed);  // an equal copy is no change
  EXPECT_THAT(report[0].to_string(), HasSubstr("ms  3 -> 4 nodes"));
  EXPECT_THAT(report[1].to_string(), HasSubstr("ms  unchanged"));
}

// Adds a node, unless its part is disabled; notes its facts about the step.
Ref<Graph> with_context(const Graph& g, PassContext& context) {
  context.note(str_cat("low_memory ", context.facts.low_memory));
  return context.enabled("part") ? add_one(g) : nullptr;
}

TEST(RunPasses, GivesEachPassItsContext) {
  constexpr Pass list[] = {{"with_context", with_context, ""}, {"part", nullptr, ""}, {"last", with_context, ""}};
  std::vector<PassReport> report;
  EXPECT_EQ(run_passes(start(), list, {.report = &report, .facts = {.low_memory = true}})->size(), 5);
  ASSERT_EQ(report.size(), 2u);  // "part" is no pass
  for (const PassReport& r : report) EXPECT_EQ(r.notes, std::vector<std::string>{"low_memory true"});
  EXPECT_EQ(run_passes(start(), list, {.disable = {"part"}})->size(), 3);
}

TEST(PassSteps, AreDisabledAndReportedAsPassesAre) {
  constexpr Pass known[] = {{"one", nullptr, ""}, {"two", nullptr, ""}, {"must", nullptr, "", true}};
  std::vector<PassReport> report;
  PassSteps steps({.disable = {"two"}, .known = known, .report = &report});
  int ran = 0;
  EXPECT_TRUE(steps.run("one", [&] { ++ran; }));
  EXPECT_FALSE(steps.run("two", [&] { ++ran; }));
  EXPECT_EQ(ran, 1);
  ASSERT_EQ(report.size(), 2u);
  EXPECT_TRUE(report[0].to_string().starts_with("one  ") && report[0].to_string().ends_with(" ms"));
  EXPECT_EQ(report[1].to_string(), "two  disabled");
  PassSteps none({.disable = {"all"}, .known = known});
  EXPECT_FALSE(none.run("one", [&] { ++ran; }));
  EXPECT_TRUE(none.run("must", [&] { ++ran; }));
  EXPECT_EQ(ran, 2);
  EXPECT_THROW(PassSteps({.disable = {"three"}, .known = known}), Error);
}

TEST(RunPasses, LeavesOutByName) {
  std::vector<PassReport> report;
  EXPECT_EQ(run_passes(start(), kList, {.disable = {"add_one"}, .report = &report})->size(), 3);
  EXPECT_EQ(report[0].to_string(), "add_one  disabled");
  Ref<Graph> g = run_passes(start(), kList, {.disable = {"all"}});
  EXPECT_EQ(g->size(), 3);
  EXPECT_EQ(g->stage, "joint");  // a required pass runs anyway
  Switched off("WEFT_DISABLE", "copy,add_one");
  EXPECT_EQ(run_passes(start(), kList)->size(), 3);
}

TEST(RunPasses, UnknownNamesAreErrorsThatListTheKnown) {
  EXPECT_EQ(error_of(kList, {.disable = {"fuze"}}),
            "disable: got 'fuze'; need all or some of [add_one, copy, nothing]");
  EXPECT_EQ(error_of(kList, {.disable = {"joint"}}),
            "disable: got 'joint', which later stages need; need all or some of [add_one, copy, nothing]");
  EXPECT_EQ(error_of(std::span(kList).first(1), {.disable = {"nothing"}, .known = kList}), "");
  Switched off("WEFT_DISABLE", "nothing,fuze");
  EXPECT_THAT(error_of(kList), HasSubstr("WEFT_DISABLE: got 'fuze'"));
}

TEST(RunPasses, VerifiesAndNamesThePass) {
  Switched level("WEFT_VERIFY_IR", "2");
  constexpr Pass wrong[] = {{"wrong_type", wrong_type, ""}}, output[] = {{"drop_output", drop_output, ""}},
                 effect[] = {{"drop_effect", drop_effect, ""}}, error[] = {{"throws", throws, ""}};
  EXPECT_EQ(error_of(wrong), "pass wrong_type: verify: node %4 (neg): types: got f32[3]; need f32[2]");
  EXPECT_THAT(error_of(output), HasSubstr("outputs: got 0; need 1, as before the pass"));
  EXPECT_THAT(error_of(effect), HasSubstr("side effects: got 0; need at least 1"));
  EXPECT_EQ(error_of(error), "cannot");  // the error of an op, as an eager call reports it
  {
    Switched ends("WEFT_VERIFY_IR", "1");
    EXPECT_THAT(error_of(wrong), HasSubstr("verify: node %4"));
  }
  Switched off("WEFT_VERIFY_IR", "0");
  EXPECT_EQ(error_of(wrong), "");
}

TEST(RunPasses, DumpsOnlyWhatChanged) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "/tmp") / "pass_dump" / "deep";
  fs::remove_all(folder);
  Switched dump("WEFT_DUMP", folder.string());
  run_passes(start(), kList);
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(folder)) names.push_back(e.path().filename());
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names.size(), 4u);
  EXPECT_EQ(names[0], ".weft_dump");
  EXPECT_THAT(names[1], HasSubstr("_captured_start.wir"));
  EXPECT_THAT(names[2], HasSubstr("_captured_add_one.wir"));
  EXPECT_THAT(names[3], HasSubstr("_joint_joint.wir"));
  std::ifstream in(folder / names[3]);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(parse_graph(text.str(), weft::testing::test_ops())->stage, "joint");
  Switched bad("WEFT_DUMP", "/proc/no/such");
  EXPECT_THAT(error_of(kList), HasSubstr("WEFT_DUMP: cannot make folder '/proc/no/such'"));
}

TEST(RunPasses, DumpsRemoveAndReplaceOnlyFilesOfTheirIndex) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "pass_dump_index";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto write = [&](const std::string& name, const std::string& text) { std::ofstream(folder / name) << text; };
  const auto text = [&](const std::string& name) {
    std::stringstream all;
    all << std::ifstream(folder / name).rdbuf();
    return all.str();
  };
  write(".weft_dump", "files of WEFT_DUMP; the next run removes them\n02_scheduled_order\n../pass_dump_index/notes\n");
  std::vector<std::string> own{"02_my_song.record", "03_take.wir", "notes.wir"};
  // A name that the run would write, whatever its number.
  for (int n = 0; n < 64; ++n) own.push_back(str_cat(n < 10 ? "0" : "", n, "_captured_start.wir"));
  for (const std::string& name : own) write(name, "mine");
  for (const char* name : {"02_scheduled_order.wir", "02_scheduled_order.record"}) write(name, "of an earlier run");
  Switched dump("WEFT_DUMP", folder.string());
  run_passes(start(), kList);
  for (const std::string& name : own) EXPECT_EQ(text(name), "mine") << name;
  EXPECT_FALSE(fs::exists(folder / "02_scheduled_order.wir"));
  EXPECT_FALSE(fs::exists(folder / "02_scheduled_order.record"));
  size_t wir = 0;
  for (const auto& e : fs::directory_iterator(folder)) wir += e.path().extension() == ".wir";
  EXPECT_EQ(wir, own.size() - 1 + 3);

  const fs::path foreign = folder / "foreign";
  fs::create_directories(foreign);
  std::ofstream(foreign / ".weft_dump") << "mine\n";
  Switched other("WEFT_DUMP", foreign.string());
  EXPECT_THAT(error_of(kList), HasSubstr("is not the list of earlier files; need another folder"));
}

}  // namespace
}  // namespace weft
