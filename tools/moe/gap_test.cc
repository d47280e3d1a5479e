// The causes of a gap add up, and launches count where they belong.
#include "tools/moe/gap.h"

#include <gtest/gtest.h>

namespace weft::moe_study {
namespace {

LaunchRecord launch(const char* scope, WorkClass kind, const Shape& shape, double us, Phase phase = Phase::kForward) {
  LaunchRecord l;
  l.scope = scope;
  l.kind = kind;
  l.results = {{kFloat32, Device::cpu(), shape}};
  l.measured_us = us;
  l.phase = phase;
  return l;
}

TEST(Gap, LaunchesCountByModuleAndShape) {
  profiler::TimedStep step{.host_us = 256};
  step.record.launches = {launch("blocks.0.moe.router", WorkClass::kContraction, {16, 8}, 1),
                          launch("blocks.0.moe", WorkClass::kNormalisation, {16, 2}, 2),
                          launch("blocks.0.moe", WorkClass::kMovement, {32, 64}, 4),
                          launch("blocks.0.moe", WorkClass::kContraction, {32, 128}, 8),
                          launch("blocks.0.moe", WorkClass::kElementwise, {32, 128}, 16),
                          launch("blocks.0.moe", WorkClass::kCollective, {32, 64}, 32),
                          launch("blocks.0.moe", WorkClass::kElementwise, {8, 64, 128}, 64, Phase::kUpdate),
                          launch("blocks.0", WorkClass::kElementwise, {16, 64}, 512),   // combine, and the residual
                          launch("blocks.1", WorkClass::kElementwise, {16, 64}, 1024),  // without experts
                          launch("blocks.0.attn", WorkClass::kContraction, {16, 64}, 128)};
  const Parts p = parts_of(step, 64, 128);
  EXPECT_DOUBLE_EQ(p.routing, 3e-3);
  EXPECT_DOUBLE_EQ(p.dispatch, 516e-3);
  EXPECT_DOUBLE_EQ(p.experts, 24e-3);
  EXPECT_DOUBLE_EQ(p.exchange, 32e-3);
  EXPECT_DOUBLE_EQ(p.update, 64e-3);
  EXPECT_DOUBLE_EQ(p.same, 1152e-3);
  EXPECT_DOUBLE_EQ(p.host, 256e-3);
  EXPECT_NEAR(p.sum(), 2.047, 1e-12);
}

TEST(Gap, LaunchesOfEqualWorkAreCompared) {
  profiler::TimedStep dense, step;
  dense.record.launches = {launch("blocks.0.attn", WorkClass::kContraction, {16, 64}, 100),
                           launch("blocks.0.norm2", WorkClass::kNormalisation, {16, 64}, 10),
                           launch("blocks.0.ffn", WorkClass::kContraction, {16, 64}, 50)};
  step.record.launches = {launch("blocks.0.attn", WorkClass::kContraction, {16, 64}, 103),
                          launch("blocks.0.norm2", WorkClass::kNormalisation, {16, 64}, 11),
                          launch("blocks.0.norm2", WorkClass::kNormalisation, {16, 64}, 12),  // one more: not equal
                          launch("blocks.0.moe", WorkClass::kContraction, {16, 64}, 90)};
  EXPECT_DOUBLE_EQ(slower_ms(dense, step, 64, 128), 3e-3);
}

TEST(Gap, CausesAndRestAddUp) {
  const Parts dense{.experts = 10, .update = 2, .same = 20, .host = 1};
  const Parts even{.routing = 1, .dispatch = 3, .experts = 16, .exchange = 2, .update = 6, .same = 20, .host = 4};
  const Parts step{.routing = 1, .dispatch = 4, .experts = 19, .exchange = 5, .update = 6, .same = 20.5, .host = 4};
  const Gap gap = gap_of(dense, even, step, 0.25, 0.4);
  EXPECT_DOUBLE_EQ(gap.ms, step.sum() - dense.sum());
  double sum = gap.rest;
  for (const Cause& c : gap.causes) sum += c.ms;
  EXPECT_NEAR(sum, gap.ms, 1e-12);
  EXPECT_NEAR(gap.rest, 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(gap.causes[2].ms, 4);  // padding
  EXPECT_DOUBLE_EQ(gap.causes[3].ms, 2);  // small products
  EXPECT_DOUBLE_EQ(gap.causes[5].ms, 7);  // imbalance
  EXPECT_DOUBLE_EQ(gap.causes[7].ms, 0.4);
  EXPECT_DOUBLE_EQ(gap.causes[8].ms, 3);  // host and gaps
}

}  // namespace
}  // namespace weft::moe_study
