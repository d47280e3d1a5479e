// Lists of changes become workloads: each value alone, all combinations, and one sentence for text that is no change.
#include "tools/plan/report/what_if.h"

#include <gmock/gmock.h>

#include "framework/base/testing/error_of.h"

namespace weft::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Workload base() {
  return {.model = preset_shape("llama-8b"),
          .machine = machine_preset("h100-sxm"),
          .gpus = 64,
          .batch = 512,
          .sequence = 4096};
}

std::vector<std::string> changes_of(const std::string& text) {
  std::vector<std::string> names;
  for (const WhatIf& w : what_if(base(), text)) names.push_back(w.change);
  return names;
}

// The last workload, which has all changes.
Workload changed(const std::string& text, bool fit_batch = false) {
  return what_if(base(), text, fit_batch).back().workload;
}

TEST(WhatIf, HasEachValueAloneAndAllCombinations) {
  EXPECT_THAT(changes_of("network=0.1x,0.5x"), ElementsAre("as it is", "network=0.1x", "network=0.5x"));
  EXPECT_THAT(changes_of("gpus=2x,network=0.1x,0.5x"),
              ElementsAre("as it is", "gpus=2x", "network=0.1x", "network=0.5x", "gpus=2x,network=0.1x",
                          "gpus=2x,network=0.5x"));
  const std::vector<WhatIf> all = what_if(base(), "gpus=2x,memory=0.5x");
  EXPECT_EQ(all[0].workload.gpus, 64);
  EXPECT_EQ(all[0].workload.machine.memory, 80e9);
  EXPECT_EQ(all[1].workload.gpus, 128);
  EXPECT_EQ(all[1].workload.machine.memory, 80e9);
  EXPECT_EQ(all[2].workload.gpus, 64);
  EXPECT_EQ(all[2].workload.machine.memory, 40e9);
  EXPECT_EQ(all[3].workload.gpus, 128);
  EXPECT_EQ(all[3].workload.machine.memory, 40e9);
}

TEST(WhatIf, TheOrderOfChangesDoesNotMatter) {
  for (const char* changes : {"batch=1000,seq=8192", "seq=8192,batch=1000"}) {
    const Workload w = changed(changes);
    EXPECT_EQ(w.batch, 1000) << changes;
    EXPECT_EQ(w.sequence, 8192) << changes;
  }
  EXPECT_EQ(changed("seq=8192").batch, 256);
  EXPECT_EQ(changed("batch=2x,seq=8192").batch, 512);
}

TEST(WhatIf, OtherGpusGetABatchThatSuitsThemUnlessItIsGiven) {
  EXPECT_EQ(changed("gpus=500,batch=990", true).batch, 990);
  EXPECT_EQ(changed("gpus=500", true).batch, 500);
  EXPECT_EQ(changed("gpus=500").batch, 512);
}

TEST(WhatIf, BandwidthIsThatOfEveryWorkingSet) {
  Workload w = base();
  w.machine.memory_rates = {{1e6, 1e12, 2e12, 3e12}};
  const Machine m = what_if(w, "bandwidth=2x")[1].workload.machine;
  EXPECT_EQ(m.bytes, 2 * w.machine.bytes);
  EXPECT_EQ(m.memory_rates[0].read, 2e12);
  EXPECT_EQ(m.memory_rates[0].write, 4e12);
  EXPECT_EQ(m.memory_rates[0].copy, 6e12);
}

TEST(WhatIf, OtherTextGetsOneSentence) {
  std::string many = "batch=1";
  for (int i = 2; i <= 64; ++i) many += str_cat(",", i);
  const std::pair<std::string, const char*> cases[] = {
      {"gpus=2x,gpus=2x", "what_if: got 'gpus=2x', the second gpus; need each name once, with all its values"},
      {"gpus=2x,2x", "what_if: got '2x', the second one of gpus; need each value once"},
      {"gpus=2x,", "what_if: got ''; need gpu_flops, network"},
      {",gpus=2x", "what_if: got ''; need gpu_flops, network"},
      {"gpus=", "what_if: got 'gpus='; need gpu_flops, network"},
      {"2x", "what_if: got '2x'; need gpu_flops, network"},
      {"speed=2x", "what_if: got 'speed=2x'; need gpu_flops, network"},
      {"gpus=2x,fast", "what_if: got 'gpus=fast'; need gpu_flops, network"},
      {"memory=0", "what_if: got 'memory=0'; need gpu_flops, network"},
      {"memory=1e400", "what_if: got 'memory=1e400'; need gpu_flops, network"},
      {"network=0.5", "what_if: got 'network=0.5'; need a factor such as network=0.1x"},
      {"batch=0.0001x", "what_if: batch becomes 0.0512; need 1 to"},
      {"gpus=1e9x", "what_if: gpus becomes 6.4e+10; need 1 to"},
      {"memory=\x1b[31m", R"(what_if: got 'memory=\x1b[31m')"},
      {many, "more than 64 workloads; need fewer values"},
      {"batch=1,2,3,4,5,6,7,8,seq=1,2,3,4,5,6,7,8", "more than 64 workloads; need fewer values"},
  };
  for (const auto& [text, error] : cases)
    EXPECT_THAT(weft::testing::error_of([&, &text = text] { what_if(base(), text); }), HasSubstr(error)) << text;
}

}  // namespace
}  // namespace weft::planner
