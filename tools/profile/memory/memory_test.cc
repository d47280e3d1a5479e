// The holders of memory at the peak, their sums, and the timeline of a handmade record.
#include "tools/profile/memory/memory.h"

#include <gtest/gtest.h>

#include "tools/profile/pictures.h"
#include "tools/profile/testing/made_record.h"

namespace weft::profiler {
namespace {

// An arena of 700 bytes (640 live at launch 2), a cell with two buffers, its moment, and an output.
StepRecord with_memory() {
  StepRecord r = made_record();
  r.buffers = {{.home = "arena", .owner = "dot", .bytes = 384, .first = 0, .last = 3},
               {.home = "arena", .owner = "norm", .bytes = 128, .first = 1, .last = 1},
               {.home = "arena", .owner = "dot", .bytes = 256, .first = 2, .last = 2},
               {.home = "cell", .index = 4, .owner = "blocks.0.up.weight", .bytes = 1024, .first = 0, .last = 0},
               {.home = "cell", .index = 4, .owner = "blocks.0.up.weight", .bytes = 1024, .first = 4, .last = 4},
               {.home = "cell", .index = 5, .owner = "unused", .bytes = 4096},
               {.home = "cell", .index = 6, .owner = "blocks.0.up.weight.m", .bytes = 512, .first = 4, .last = 4},
               {.home = "output", .index = 0, .owner = "update", .bytes = 64, .first = 4, .last = 4},
               {.home = "argument", .index = 0, .owner = "argument 0", .bytes = 9999, .first = 0, .last = 0}};
  r.peak_launch = 2;
  r.at_peak = {0, 2};
  r.peak_bytes = r.measured_peak_bytes = 700 + 1024 + 512 + 64;
  return r;
}

TEST(Memory, HoldersAndGapsAreThePeak) {
  const MemoryUse use = memory_of(with_memory());
  EXPECT_EQ(use.gaps, 60);
  ASSERT_EQ(use.holders.size(), 5u);
  EXPECT_EQ(use.holders[0].name, "blocks.0.up.weight");
  EXPECT_EQ(use.holders[0].module, "blocks.0.up");
  EXPECT_EQ(use.holders[0].line, "model.cc:12");
  EXPECT_EQ(use.holders[1].name, "blocks.0.up.weight.m");
  EXPECT_EQ(use.holders[1].module, "blocks.0.up");
  EXPECT_EQ(use.holders[2].name, "dot");
  EXPECT_EQ(use.holders[2].bytes, 384);
  EXPECT_EQ(use.holders[2].module, "blocks.0.up");
  EXPECT_EQ(use.holders[2].phase, "forward");
  EXPECT_EQ(use.holders[3].module, "blocks.1.up");
  EXPECT_EQ(use.holders[4].phase, "update");
}

TEST(Memory, SumsByModuleAndLine) {
  const auto modules = bytes_by(memory_of(with_memory()), &Holder::module);
  ASSERT_EQ(modules.size(), 3u);  // only one of the blocks has cells, so they are not equal
  EXPECT_EQ(modules[0], (std::pair<std::string, int64_t>{"blocks.0.up", 1024 + 512 + 384}));
  EXPECT_EQ(modules[1], (std::pair<std::string, int64_t>{"blocks.1.up", 256}));
  EXPECT_EQ(bytes_by(memory_of(with_memory()), &Holder::line)[1],
            (std::pair<std::string, int64_t>{"model.cc:20", 512 + 64}));
}

TEST(Memory, TimelineHasWhatIsLiveDuringEachLaunch) {
  const std::vector<MemorySeries> all = memory_timeline(with_memory(), 1);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].bytes, std::vector<double>(5, 1024 + 512));
  EXPECT_EQ(all[1].bytes, std::vector<double>(5, 64));
  EXPECT_EQ(all[2].name, "blocks.0.up");
  EXPECT_EQ(all[2].bytes, (std::vector<double>{384, 384, 384, 384, 0}));
  EXPECT_EQ(all[3].bytes, (std::vector<double>{0, 128, 256, 0, 0}));
}

TEST(Memory, PagesNameTheHolders) {
  const std::string svg = memory_svg(with_memory()), html = memory_html(with_memory());
  for (const std::string* text : {&svg, &html})
    for (const char* part : {"blocks.0.up.weight", "blocks.0.up", "model.cc:12", "most is live: launch 2"})
      EXPECT_NE(text->find(part), std::string::npos) << part;
  EXPECT_NE(html.find("The 5 largest at the peak"), std::string::npos);
  EXPECT_EQ(html.find("http:"), html.find("http://www.w3.org/2000/svg"));
  EXPECT_EQ(html.find("https:"), std::string::npos);
}

}  // namespace
}  // namespace weft::profiler
