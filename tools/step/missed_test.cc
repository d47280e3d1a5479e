// A program copies an argument and has two sums over different dims, which cannot be one kernel. The tools name its
// lines and bytes, and show the effect of a corrected program.
#include <gtest/gtest.h>

#include "framework/io/json.h"
#include "tools/graph/graph_json.h"
#include "tools/profile/diff.h"
#include "tools/profile/profile_text.h"
#include "weft.h"

namespace weft::tools {
namespace {

constexpr int kSoftmaxLine = __LINE__ + 5, kSliceLine = kSoftmaxLine + 1;

// Two softmaxes over different dims, and a part of the argument as a result; corrected: over one dim, without a copy.
std::vector<Tensor> program(const Tensor& x, bool mended) {
  const Tensor a = exp(x);
  const Tensor b = mended ? softmax(a, 1) * softmax(a, 1) : softmax(a, 0) * softmax(a, 1);
  const Tensor part = x.slice(0, 0, 100);
  return mended ? std::vector{b} : std::vector{b, part};
}

StepRecord record_of(bool mended, Ref<Graph>* scheduled = nullptr) {
  auto step = compile([=](Tensor x) { return program(x, mended); });
  const Tensor x = randn({512, 256});
  for (int i = 0; i < 5; ++i) step(x);
  if (scheduled) *scheduled = make_ref<Graph>(step.graph("scheduled"));
  return step.record();
}

std::string at(int line) { return str_cat("missed_test.cc:", line); }

TEST(Missed, BothToolsNameLinesAndBytes) {
  Ref<Graph> g;
  const auto record = std::make_shared<const StepRecord>(record_of(false, &g));
  const MissedRecord *copy = nullptr, *pair = nullptr;
  for (const MissedRecord& m : record->missed) (m.kind == MissedRecord::kCopy ? copy : pair) = &m;
  ASSERT_TRUE(copy && pair);
  EXPECT_EQ(copy->bytes, 2 * 100 * 256 * 4);
  EXPECT_NE(copy->from.find(at(kSliceLine)), copy->from.npos) << copy->from;
  EXPECT_GT(pair->bytes, 0);
  EXPECT_NE(pair->from.find(at(kSoftmaxLine)), pair->from.npos) << pair->from;
  EXPECT_NE(pair->to.find(at(kSoftmaxLine)), pair->to.npos) << pair->to;

  const std::string text = profiler::missed_text(*record);
  for (const MissedRecord* m : {copy, pair}) EXPECT_NE(text.find(m->to_string()), text.npos) << text;
  EXPECT_NE(text.find("205 KB  "), text.npos) << text;

  const ShownGraph shown{"scheduled", "", g, record, true};
  const io::Json graph = io::parse_json(graphs_json("program", {shown}), "graphs")["graphs"][0];
  EXPECT_EQ(graph["missed"].size(), record->missed.size());
  bool found = false;
  for (const io::Json& d : graph["details"])
    for (const io::Json& why : d.value("why", io::Json::array()))
      found |= why.get<std::string>().find(pair->reason) != std::string::npos;
  EXPECT_TRUE(found) << graph["details"];
}

TEST(Missed, TheDifferenceShowsTheGain) {
  const StepRecord before = record_of(false), after = record_of(true);
  EXPECT_TRUE(after.missed.empty()) << after.missed[0].to_string();
  const double saved = before.sum().work.bytes - after.sum().work.bytes;
  EXPECT_GE(saved, 2 * 100 * 256 * 4);  // the copy, and a pass over the argument
  const std::string text = profiler::diff_text(before, after, profiler::By::kLine);
  EXPECT_NE(text.find("traffic"), text.npos) << text;
  EXPECT_NE(text.find("gone"), text.npos) << text;
  const io::Json json = io::parse_json(profiler::diff_json(before, after, profiler::By::kLine), "diff");
  EXPECT_LT(json["bytes"][1], json["bytes"][0]);
}

}  // namespace
}  // namespace weft::tools
