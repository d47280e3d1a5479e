#include "tools/profile/table.h"

#include <gtest/gtest.h>

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

TEST(TableText, AlignsTheFirstCellLeftAndOthersRight) {
  EXPECT_EQ(table_text({{"a", "long"}, {"bcd", "1"}, {"alone"}}), "a      long\nbcd       1\nalone\n");
}

}  // namespace
}  // namespace weft::profiler
