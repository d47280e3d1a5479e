#include "framework/ir/attr.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/testing/error_of.h"
#include "framework/ir/graph.h"
#include "framework/ir/testing/test_ops.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Attrs, SortedTypedAndShared) {
  Attrs a{{"value", 0.5}, {"dims", Shape{1, 2}}, {"keepdim", true}, {"n", int64_t{3}}, {"dtype", kBFloat16}};
  EXPECT_EQ(a.entries()[0].first, "dims");
  EXPECT_EQ(a.f("value"), 0.5);
  EXPECT_EQ(a.ints("dims"), (Shape{1, 2}));
  EXPECT_TRUE(a.b("keepdim"));
  EXPECT_EQ(a.i("n"), 3);
  EXPECT_EQ(a.i("absent", 7), 7);
  EXPECT_EQ(a.get<DType>("dtype"), kBFloat16);
  EXPECT_EQ(a.find("absent"), nullptr);
  Attrs b = a.with("n", int64_t{4}).with("z", std::string("s"));
  EXPECT_EQ(a.i("n"), 3);
  EXPECT_EQ(b.i("n"), 4);
  EXPECT_EQ(b.without("z").with("n", int64_t{3}), a);
  EXPECT_TRUE(Attrs().empty() && Attrs{}.entries().empty());
  EXPECT_TRUE(Attrs({{"n", int64_t{1}}}).without("n").empty());
}

TEST(Attrs, MessagesNameTheKey) {
  Attrs a{{"dims", Shape{1}}, {"n", int64_t{3}}};
  EXPECT_EQ(error_of([&] { a.f("n"); }), "attrs: 'n' is an integer; need a double");
  EXPECT_EQ(error_of([&] { a.f("m"); }), "attrs: no attribute 'm'; got [dims, n]");
  EXPECT_EQ(error_of([] { Attrs{{"n", int64_t{3}}, {"n", true}}; }), "attrs: got 'n' twice; need distinct names");
}

TEST(Attrs, EqualityAndHashGoByBits) {
  auto same = [](AttrValue x, AttrValue y) {
    Attrs a{{"k", x}}, b{{"k", y}};
    EXPECT_TRUE(!(a == b) || a.hash() == b.hash());
    return a == b;
  };
  EXPECT_TRUE(same(std::nan(""), std::nan("")));
  EXPECT_FALSE(same(0.0, -0.0));
  EXPECT_FALSE(same(int64_t{1}, 1.0));
  EXPECT_FALSE(same(int64_t{1}, true));
  EXPECT_TRUE(same(Shape{1, 2}, Shape{1, 2}));
  EXPECT_FALSE(same(Shape{1}, Shape{1, 1}));
  EXPECT_FALSE((Attrs{{"a", int64_t{1}}} == Attrs{{"b", int64_t{1}}}));
  EXPECT_FALSE((Attrs{{"a", int64_t{1}}} == Attrs{}));
  EXPECT_NE((Attrs{{"a", int64_t{1}}}).hash(), (Attrs{{"b", int64_t{1}}}).hash());
  EXPECT_NE((Attrs{{"a", int64_t{1}}, {"b", int64_t{2}}}).hash(), (Attrs{{"a", int64_t{2}}, {"b", int64_t{1}}}).hash());
}

TEST(Attrs, NestedGraphsCompareByStructure) {
  auto body = [](float v, int n) {
    auto g = make_ref<Graph>();
    g->outputs = {g->add_captured(Tensor::from_vector(std::vector<float>(n, v), {n}))};
    return Attrs{{"body", Ref<Graph>(g)}};
  };
  EXPECT_EQ(body(1, 4), body(1, 4));
  EXPECT_EQ(body(1, 4).hash(), body(1, 4).hash());
  EXPECT_FALSE(body(1, 4) == body(2, 4));
  // Large captured tensors are not compared by value: two nodes are equal only if they hold the same memory.
  EXPECT_FALSE(body(1, 40) == body(1, 40));
  Attrs large = body(1, 40);
  EXPECT_EQ(large, (Attrs{{"body", make_ref<Graph>(*large.get<Ref<Graph>>("body"))}}));
}

}  // namespace
}  // namespace weft
