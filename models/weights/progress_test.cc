#include "models/weights/progress.h"

#include <gtest/gtest.h>

namespace weft::weights {
namespace {

constexpr int64_t kSecond = 1'000'000'000, kMegabyte = 1'000'000;

TEST(Progress, LinesAfterOneSecondAndAfterTwiceTheTime) {
  constexpr int64_t kBegin = 77 * kSecond;
  Progress p("a.gguf", 100 * kMegabyte, kBegin);
  const auto line = [&](int64_t megabytes, double seconds) {
    return p.line(megabytes * kMegabyte, kBegin + static_cast<int64_t>(seconds * kSecond));
  };
  EXPECT_EQ(line(10, 0.99), "");
  EXPECT_EQ(line(11, 1.2), "a.gguf: loaded 11 MB of 100 MB after 1.2 s");
  EXPECT_EQ(line(20, 1.9), "");
  EXPECT_EQ(line(21, 2), "a.gguf: loaded 21 MB of 100 MB after 2 s");
  EXPECT_EQ(line(60, 9), "a.gguf: loaded 60 MB of 100 MB after 9 s");
  EXPECT_EQ(line(80, 15.9), "");
  EXPECT_EQ(line(90, 16), "a.gguf: loaded 90 MB of 100 MB after 16 s");
  EXPECT_EQ(line(100, 40), "");
}

TEST(Progress, AQuickLoadHasNoLine) {
  Progress p("a.gguf", 100, 0);
  for (int64_t done = 0; done <= 100; ++done) EXPECT_EQ(p.line(done, done * kSecond / 101), "");
}

}  // namespace
}  // namespace weft::weights
