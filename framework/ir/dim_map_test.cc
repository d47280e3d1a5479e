#include "framework/ir/dim_map.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/tensor/tensor.h"

namespace weft {
namespace {

using Sizes = std::vector<std::pair<std::string, int64_t>>;

std::vector<TensorType> types(std::initializer_list<Shape> shapes) {
  std::vector<TensorType> t;
  for (const Shape& s : shapes) t.push_back({kFloat32, Device::cpu(), s});
  return t;
}

DimMap parse(std::string_view text, std::initializer_list<Shape> in, std::initializer_list<Shape> out,
             const Sizes& sizes = {}) {
  return DimMap::parse(text, types(in), types(out), sizes);
}

std::string error_of(std::string_view text, std::initializer_list<Shape> in, std::initializer_list<Shape> out,
                     const Sizes& sizes = {}) {
  return testing::error_of([&] { parse(text, in, out, sizes); });
}

TEST(DimMap, BatchedDot) {
  DimMap m = parse("b m k, b k n -> b m n", {{2, 3, 4}, {2, 4, 5}}, {{2, 3, 5}});
  EXPECT_EQ(m.points(), 2. * 3 * 4 * 5);
  ASSERT_EQ(m.factors.size(), 4u);
  EXPECT_EQ(m.factors[2], (Factor{"k", FactorKind::kSum, 4}));
  EXPECT_EQ(m.factors[3], (Factor{"n", FactorKind::kPass, 5}));
  EXPECT_EQ(m.in[1], (DimFactors{{0}, {2}, {3}}));
  EXPECT_EQ(m.out[0], (DimFactors{{0}, {1}, {3}}));
  EXPECT_EQ(m.to_string(), "b m k, b k n -> b m n");
}

TEST(DimMap, GroupsTakeTheirUnknownFromTheExtent) {
  DimMap m = parse("b (h d) -> b h d", {{2, 12}}, {{2, 3, 4}});
  EXPECT_EQ(m.in[0], (DimFactors{{0}, {1, 2}}));
  EXPECT_EQ(m.to_string(), "b (h d) -> b h d");
  m = parse("(a b c) -> (a b) c", {{24}}, {{6, 4}}, {{"a", 2}});
  EXPECT_EQ(m.factors[1].size, 3);
  EXPECT_EQ(m.factors[2].size, 4);
  m = parse("(a b) -> (b a)", {{0}}, {{0}}, {{"a", 0}});  // next to a 0 any size fits
  EXPECT_EQ(m.points(), 0);
}

TEST(DimMap, KindsBySuffix) {
  DimMap m = parse("a b^ c_ d* e? r~ 1 -> a e 1, r", {{2, 3, 4, 5, 6, 7, 1}}, {{2, 6, 1}, {7}});
  std::vector<FactorKind> kinds;
  for (const Factor& f : m.factors) kinds.push_back(f.kind);
  EXPECT_EQ(kinds, (std::vector<FactorKind>{FactorKind::kPass, FactorKind::kMax, FactorKind::kMin, FactorKind::kProd,
                                            FactorKind::kWhole, FactorKind::kRagged}));
  EXPECT_EQ(m.to_string(), "a b^ c_ d* e? r~ 1 -> a e? 1, r~");
  EXPECT_EQ(parse(m.to_string(), {{2, 3, 4, 5, 6, 7, 1}}, {{2, 6, 1}, {7}}).factors, m.factors);
}

TEST(DimMap, ScalarsAndNoOperands) {
  EXPECT_EQ(parse("a, -> a", {{3}, {}}, {{3}}).in[1], DimFactors{});
  EXPECT_EQ(parse("-> a b", {}, {{3, 2}}).points(), 6);
  EXPECT_EQ(parse("a b ->", {{3, 2}}, {{}}).to_string(), "a b ->");
  EXPECT_EQ(parse("a b ->", {{3, 2}}, {{}}).factors[0].kind, FactorKind::kSum);
}

TEST(DimMap, Pointwise) {
  auto in = types({{2, 3}, {}, {1, 3}, {3}}), out = types({{2, 3}});
  DimMap m = DimMap::pointwise(in, out);
  EXPECT_EQ(m.to_string(), "a b, , 1 b, b -> a b");
  EXPECT_EQ(m.points(), 6);
}

TEST(DimMap, MessagesSayWhatDoesNotFit) {
  EXPECT_EQ(error_of("a b -> a", {{2}}, {{2}}), "dim map \"a b -> a\": got 2 dims for f32[2]; need 1");
  EXPECT_EQ(error_of("a -> a", {{2}}, {{3}}), "dim map \"a -> a\": got extent 3 in f32[3]; need 2");
  EXPECT_EQ(error_of("1 -> 1", {{2}}, {{1}}), "dim map \"1 -> 1\": got extent 2 in f32[2]; need 1");
  EXPECT_EQ(error_of("(a b) -> (a b)", {{6}}, {{6}}),
            "dim map \"(a b) -> (a b)\": got no size for a; need a dim of its own or an entry in sizes");
  EXPECT_EQ(error_of("(a b) -> (a b)", {{6}}, {{6}}, {{"a", 4}}),
            "dim map \"(a b) -> (a b)\": got extent 6 in f32[6]; need 4");
  EXPECT_EQ(error_of("a a -> a", {{2, 2}}, {{2}}),
            "dim map \"a a -> a\": got a twice in one tensor; need distinct names");
  EXPECT_EQ(error_of("a^ -> a", {{2}}, {{2}}),
            "dim map \"a^ -> a\": got a^ in a result; need it absent from results, for it is reduced");
  EXPECT_EQ(error_of("a^ , a_ ->", {{2}, {2}}, {{}}),
            "dim map \"a^ , a_ ->\": got a with two different suffixes; need one");
  EXPECT_EQ(error_of("a", {{2}}, {{2}}), "dim map \"a\": got '' at column 2; need '->' after 1 operands");
  EXPECT_EQ(error_of("a -> a, b", {{2}}, {{2}}),
            "dim map \"a -> a, b\": got ', b' at column 7; need the end after 1 results");
  EXPECT_EQ(error_of("a -> (a", {{2}}, {{2}}), "dim map \"a -> (a\": got '' at column 8; need a name");
  EXPECT_EQ(error_of("3 -> 3", {{3}}, {{3}}), "dim map \"3 -> 3\": got '3 -> 3' at column 1; need a name");
}

}  // namespace
}  // namespace weft
