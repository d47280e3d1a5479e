// Damaged files of plans: each is refused, or gives a mesh with placements along its dimensions.
#include <gtest/gtest.h>

#include "distributed/plan/plan_text.h"
#include "framework/base/error.h"
#include "framework/testing/fuzz.h"

namespace weft::dist {
namespace {

constexpr const char* kPlan = R"(weft plan 1
mesh dp2,tp2
zero 2
cp allgather
cp_layout auto
wire bf16
sequence on
expert_room 2.5
hash 0123456789abcdef
split blocks.0.attn.qkv.weight tp 0
split blocks.0.attn.proj.weight tp 1
whole tok.weight tp
# a comment
end
)";

TEST(PlanTextFuzz, DamagedFiles) {
  weft::testing::FuzzFile file(::testing::TempDir() + "/fuzz_damaged.plan");
  const std::vector<std::string_view> words = {
      "weft plan 1", "weft",    "mesh",      "one",        "dp2", "ep4(dp,tp)", "zero", "cp",
      "ring",        "ulysses", "cp_layout", "headtail",   "off", "on",         "hash", "ffffffffffffffffff",
      "split",       "whole",   "*",         "tok.weight", " ",   "-1",         "end"};
  auto read = [&](const std::string& text) {
    file.set(text);
    const SavedPlan saved = load_plan(file.path());
    EXPECT_GE(saved.mesh.size(), 1);
    for (const PlanRule& rule : saved.plan.rules)
      for (const auto& [dimension, placement] : rule.placements) EXPECT_TRUE(saved.mesh.find(dimension)) << dimension;
  };
  weft::testing::fuzz(
      {.seeds = {kPlan, "weft plan 1\nmesh one\nend\n",
                 "weft plan 1\r\nmesh fsdp4,cp2,ep2(fsdp)\r\ncp ring\r\nzero 3\r\nend\r\n"},
       .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
       .read = read,
       .names = file.path()});
}

}  // namespace
}  // namespace weft::dist
