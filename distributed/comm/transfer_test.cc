#include "distributed/comm/transfer.h"

#include <gtest/gtest.h>

#include <cstring>

namespace weft::dist::internal {
namespace {

// Results larger than the caches are streamed: at any alignment, and beside a result that is also an operand.
template <class T>
void check_large(DType type, int64_t skip) {
  const int64_t n = (int64_t{9} << 20) / static_cast<int64_t>(sizeof(T));
  std::vector<T> a(n), b(n), out(n + skip + 7, T(-1)), want(n);
  for (int64_t i = 0; i < n; ++i) {
    a[i] = static_cast<T>(i % 1009) * T(3);
    b[i] = static_cast<T>(i % 757) / T(7);
    want[i] = a[i] + b[i];
  }
  auto view = [&](T* p) { return StridedView{p, type, {n}, {1}}; };
  Transfer t;
  t.from = {view(a.data()), view(b.data())};
  t.to = {view(a.data()), view(out.data() + skip)};
  std::vector<Box> boxes;
  cut(t, 0, (256 << 10) + 40, boxes);
  EXPECT_GT(boxes.size(), 30);
  for (const Box& box : boxes) run(t, box);
  EXPECT_EQ(std::memcmp(a.data(), want.data(), n * sizeof(T)), 0);
  EXPECT_EQ(std::memcmp(out.data() + skip, want.data(), n * sizeof(T)), 0);
  for (int64_t i = 0; i < skip; ++i) EXPECT_EQ(out[i], T(-1));
  for (int64_t i = n + skip; i < n + skip + 7; ++i) EXPECT_EQ(out[i], T(-1));
}

TEST(Transfer, LargeResultsAtAnyAlignment) {
  for (int64_t skip : {0, 1, 3}) {
    check_large<float>(kFloat32, skip);
    check_large<double>(kFloat64, skip);
    check_large<int64_t>(kInt64, skip);
  }
}

}  // namespace
}  // namespace weft::dist::internal
