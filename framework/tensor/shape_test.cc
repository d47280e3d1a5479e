// Tests shapes, broadcasting, and which views need no copy, against elements moved one by one.
#include "framework/tensor/shape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "framework/base/testing/error_of.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Shape, Edits) {
  Shape s{2, 3};
  s.insert(1, 7);
  EXPECT_EQ(s, (Shape{2, 7, 3}));
  s.erase(0);
  EXPECT_EQ(s, (Shape{7, 3}));
  EXPECT_EQ(s.to_string(), "[7, 3]");
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ((Shape{3, 0, 2}).numel(), 0);
  EXPECT_EQ(error_of([] { Shape::filled(9, 1); }), "shape: got more than 8 dimensions; need at most 8");
  EXPECT_THROW(Shape(std::vector<int64_t>(9, 1)), Error);
}

TEST(Shape, Broadcasting) {
  EXPECT_EQ(broadcast_shapes({2, 1, 3}, {5, 1}, "add"), (Shape{2, 5, 3}));
  EXPECT_EQ(broadcast_shapes({}, {4}, "add"), (Shape{4}));
  EXPECT_EQ(broadcast_shapes({0}, {1}, "add"), (Shape{0}));
  EXPECT_EQ(error_of([] {
              broadcast_shapes({2, 3}, {4}, "add");
            }),
            "add: shapes [2, 3] and [4] do not broadcast: dimension 1 has 3 and 4; need equal extents or 1");
  EXPECT_EQ(error_of([] {
              broadcast_shapes({4}, {2, 3}, "add");
            }),
            "add: shapes [4] and [2, 3] do not broadcast: dimension 1 has 4 and 3; need equal extents or 1");
}

TEST(Shape, Dims) {
  EXPECT_EQ(normalize_dim(-1, 3, "sum"), 2);
  EXPECT_EQ(normalize_dim(0, 0, "sum"), 0);
  EXPECT_EQ(error_of([] { normalize_dim(3, 3, "sum"); }),
            "sum: dim 3 is out of range for a tensor of 3 dimensions; need -3 to 2");
  EXPECT_EQ(error_of([] {
              checked_numel({2, -1}, "zeros");
            }),
            "zeros: negative extent in shape [2, -1]; need 0 or more");
  EXPECT_EQ(error_of([] {
              checked_numel({1 << 30, 1 << 30}, "zeros");
            }),
            "zeros: shape [1073741824, 1073741824] has too many elements; need fewer than 2^58");
  EXPECT_EQ(checked_numel({int64_t{1} << 28, 0, int64_t{1} << 29}, "zeros"), 0);
  EXPECT_NE(error_of([] {
              checked_numel({int64_t{1} << 60, 0, int64_t{1} << 60}, "zeros");
            }).find("too many elements"),
            std::string::npos)
      << "its strides do not fit 64 bits";
}

TEST(Shape, ContiguousStrides) {
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Shape{12, 4, 1}));
  EXPECT_TRUE(is_contiguous({2, 1, 4}, {4, 77, 1}));
  EXPECT_TRUE(is_contiguous({0, 5}, {1, 9}));
  EXPECT_FALSE(is_contiguous({2, 3}, {1, 2}));
}

/// Offsets of all elements in row-major order.
std::vector<int64_t> offsets(const Shape& shape, const Shape& strides) {
  std::vector<int64_t> r = {0};
  for (int d = 0; d < shape.size(); ++d) {
    std::vector<int64_t> next;
    for (int64_t base : r)
      for (int64_t i = 0; i < shape[d]; ++i) next.push_back(base + i * strides[d]);
    r = std::move(next);
  }
  return r;
}

/// True if any strides show `at` as `shape`: each stride is forced by the element one step along its dim.
bool some_strides_fit(const std::vector<int64_t>& at, const Shape& shape) {
  Shape strides = contiguous_strides(shape), index = strides;
  for (int d = 0; d < shape.size(); ++d) strides[d] = shape[d] > 1 ? at[index[d]] - at[0] : 0;
  return offsets(shape, strides) == at;
}

TEST(Shape, ViewStridesAgreeWithMovingElements) {
  std::mt19937 random(2);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  int views = 0, copies = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    // A permuted, sliced, broadcast view of something, and another shape with the same number of elements.
    Shape shape, strides;
    for (int i = 1 + below(4); i > 0; --i) {
      constexpr int64_t kExtents[] = {1, 2, 3, 4, 6};
      shape.push_back(kExtents[below(5)]);
    }
    strides = contiguous_strides(shape);
    for (int i = 0; i < shape.size(); ++i) {
      int j = below(shape.size());
      if (below(3) == 0) std::swap(shape[i], shape[j]), std::swap(strides[i], strides[j]);
      if (below(6) == 0) strides[i] *= 2;
      if (below(8) == 0) strides[i] = 0;
    }
    Shape to;
    for (int64_t left = shape.numel(); left > 1 && to.size() < 7;) {
      int64_t f = std::min<int64_t>(2 + below(5), left);
      while (left % f) ++f;
      to.push_back(f);
      left /= f;
      if (below(5) == 0) to.push_back(1);
    }
    if (to.numel() != shape.numel()) continue;
    std::vector<int64_t> at = offsets(shape, strides);
    Shape got;
    if (view_strides(shape, strides, to, &got)) {
      ++views;
      ASSERT_EQ(offsets(to, got), at) << shape.to_string() << strides.to_string() << to.to_string();
    } else {
      ++copies;
      ASSERT_FALSE(some_strides_fit(at, to)) << shape.to_string() << strides.to_string() << to.to_string();
    }
  }
  EXPECT_GT(views, 1000);
  EXPECT_GT(copies, 1000);
}

}  // namespace
}  // namespace weft
