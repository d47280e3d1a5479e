#include "tools/profile/table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft::profiler {
namespace {

TEST(NumberText, HasTheDigitsAndWholeNumbersInFull) {
  const struct {
    double value;
    int digits;
    const char* text;
  } rows[] = {{625, 3, "625"},
              {999999, 3, "999999"},
              {1386000, 3, "1.39e+06"},
              {0.0014296, 3, "0.00143"},
              {14.4444, 3, "14.4"},
              {-12345, 3, "-12345"},
              {0, 3, "0"},
              {1e-9, 3, "1e-09"},
              {14.44444, 4, "14.44"},
              {12345, 4, "12345"},
              {0.25, 7, "0.25"},
              {1234.56789, 7, "1234.568"},
              {3.40282347e38, 6, "3.40282e+38"}};
  for (const auto& r : rows) EXPECT_EQ(number_text(r.value, r.digits), r.text);
}

TEST(Fixed, HasAllDigitsOrAnExponent) {
  EXPECT_EQ(fixed(1234.5678, 2), "1234.57");
  EXPECT_EQ(fixed(999999999999999., 2), "999999999999999.00");
  EXPECT_EQ(fixed(5e299, 2), "5e+299");  // 300 digits did not fit
  EXPECT_EQ(fixed(-1e100, 0), "-1e+100");
  EXPECT_EQ(fixed(-1e-9, 2), "0.00");
  EXPECT_EQ(fixed(-0.25, 1), "-0.2");
  EXPECT_EQ(fixed(HUGE_VAL, 1), "inf");
  EXPECT_EQ(percent(-1e-8), "0.00%");
  EXPECT_EQ(percent(-5e298), "-5e+300%");
}

TEST(CountText, OneHasNoPlural) {
  EXPECT_EQ(count_text(1, "node"), "1 node");
  EXPECT_EQ(count_text(625, "replica"), "625 replicas");
  EXPECT_EQ(count_text(8, "microbatch", "es"), "8 microbatches");
}

TEST(TableText, AlignsTheFirstCellLeftAndOthersRight) {
  EXPECT_EQ(table_text({{"a", "long"}, {"bcd", "1"}, {"alone"}}), "a      long\nbcd       1\nalone\n");
}

}  // namespace
}  // namespace weft::profiler
