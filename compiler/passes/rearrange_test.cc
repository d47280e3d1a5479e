#include "compiler/passes/rearrange.h"

#include <gtest/gtest.h>

#include "compiler/passes/dce.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "compiler/passes/testing/traffic.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"

namespace weft {
namespace {

std::string line_of(const std::string& text, const std::string& op) {
  const size_t at = text.find(" = " + op);
  return at == text.npos ? "none: " + text : text.substr(at + 3, text.find('\n', at) - at - 3);
}

// Values are equal; a zero may have either sign. Returns the rewritten text.
std::string rearranged(const std::string& text, int64_t bound = 2, bool unfused_gain = true) {
  Ref<Graph> g = parse_graph(text, op_table()), now = rearrange(*g);
  if (!now) return "unchanged";
  verify(*now);
  now = dce(*now) ? dce(*now) : now;
  EXPECT_FALSE(rearrange(*now)) << now->to_string();
  if (unfused_gain) {
    EXPECT_LE(traffic_of(*now).bytes, traffic_of(*g).bytes) << now->to_string();
  }
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    std::vector<Tensor> args;
    for (Value v : g->inputs) {
      const TensorType& t = g->type(v);
      Tensor x = testing::random_tensor(random, t);
      if (!is_floating(t.dtype)) {  // an index
        std::vector<int64_t> index(static_cast<size_t>(t.shape.numel()));
        for (int64_t& k : index) k = static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
        x = Tensor::from_vector<int64_t>(index, t.shape);
      }
      args.push_back(x);
    }
    std::vector<Tensor> a = interpret(*g, args), b = interpret(*now, args);
    for (size_t o = 0; o < a.size(); ++o) {
      EXPECT_EQ(a[o].type(), b[o].type());
      std::vector<double> x = a[o].to_vector<double>(), y = b[o].to_vector<double>();
      for (size_t k = 0; k < x.size(); ++k)
        EXPECT_TRUE(x[k] == y[k] || (x[k] != x[k] && y[k] != y[k])) << x[k] << " and " << y[k] << now->to_string();
    }
  }
  return now->to_string();
}

TEST(Rearrange, SumsOfDisjointPadsAreOneConcat) {
  const std::string qkv = rearranged(R"(graph joint (%0: f32[2, 4, 1, 3], %1: f32[2, 4, 1, 3], %2: f32[2, 4, 1, 3]) {
    %3 = pad %0 {lo=[0, 0, 2, 0], hi=[0, 0, 0, 0], value=0.0}
    %4 = pad %1 {lo=[0, 0, 1, 0], hi=[0, 0, 1, 0], value=0.0}
    %5 = add %3, %4
    %6 = pad %2 {lo=[0, 0, 0, 0], hi=[0, 0, 2, 0], value=0.0}
    %7 = add %5, %6
    return %7
  })");
  EXPECT_EQ(line_of(qkv, "concat"), "concat %2, %1, %0 {dim=2} : f32[2, 4, 3, 3]");
  EXPECT_EQ(qkv.find("pad"), qkv.npos);
  const std::string gaps = rearranged(R"(graph joint (%0: bf16[2, 3], %1: bf16[1, 3]) {
    %3 = pad %0 {lo=[1, 0], hi=[3, 0], value=0.0}
    %4 = pad %1 {lo=[4, 0], hi=[1, 0], value=0.0}
    %5 = add %3, %4
    return %5
  })");
  EXPECT_NE(gaps.find("concat %3, %0, %5, %1, %7 {dim=0} : bf16[6, 3]"), gaps.npos) << gaps;
}

TEST(Rearrange, PadsThatOverlapOrDifferStay) {
  const char* const second[] = {"lo=[0, 0], hi=[2, 0], value=0.0", "lo=[2, 0], hi=[0, 0], value=1.0",
                                "lo=[0, 0], hi=[0, 0], value=0.0"};
  const char* const shapes[] = {"f32[2, 3]", "f32[2, 3]", "f32[4, 3]"};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(
        rearranged(str_cat("graph joint (%0: f32[2, 3], %1: ", shapes[i], ") {\n%3 = pad %0 {lo=[1, 0], hi=[1, 0], ",
                           "value=0.0}\n%4 = pad %1 {", second[i], "}\n%5 = add %3, %4\nreturn %5\n}")),
        "unchanged")
        << i;
}

TEST(Rearrange, RangesAsIndicesAreSlicesAndPads) {
  constexpr const char* kText = R"(graph joint (%0: f32[5, 3], %1: f32[N, 3]) {
    %2 = iota {size=N, dtype=i64, start=0, step=1}
    %3 = index_select %0, %2 {dim=0}
    %4 = constant {value=0.0, dtype=f32}
    %5 = broadcast %4 {shape=[5, 3]}
    %6 = index_add %5, %2, %1
    return %3, %6
  })";
  auto with = [&](const char* n) {
    std::string s = kText;
    for (size_t at; (at = s.find('N')) != s.npos;) s.replace(at, 1, n);
    return rearranged(s);
  };
  EXPECT_NE(with("5").find("return %0, %1"), std::string::npos);
  EXPECT_EQ(line_of(with("4"), "slice"), "slice %0 {begin=[0, 0], end=[4, 3], step=[1, 1]} : f32[4, 3]");
  EXPECT_EQ(line_of(with("4"), "pad"), "pad %1 {hi=[1, 0], lo=[0, 0], value=0.0} : f32[5, 3]");
  EXPECT_EQ(rearranged(R"(graph joint (%0: f32[5, 3]) {
    %2 = iota {size=5, dtype=i64, start=1, step=1}
    %3 = index_select %0, %2 {dim=0}
    return %3
  })"),
            "unchanged");  // must throw when it runs
}

TEST(Rearrange, PermutationsAreUndoneByTheirInverse) {
  const std::string now = rearranged(R"(graph joint (%0: i64[6], %1: f32[6, 3]) {
    %2.0, %2.1 = sort %0 {dim=0, descending=false}
    %3.0, %3.1 = sort %2.1 {dim=0, descending=false}
    %4 = constant {value=0.0, dtype=f32}
    %5 = broadcast %4 {shape=[6, 3]}
    %6 = index_add %5, %3.1, %1
    %7 = index_add %5, %2.1, %1
    return %6, %7
  })");
  EXPECT_NE(now.find("index_select %1, %2.1"), now.npos) << now;
  EXPECT_NE(now.find("index_select %1, %3.1"), now.npos) << now;
  EXPECT_EQ(now.find("index_add"), now.npos) << now;
}

TEST(Rearrange, TwoRowsOfAPermutationAreAddedWhereTheyAreRead) {
  constexpr const char* kText = R"(graph joint (%0: i64[6], %1: T[6, 4]) {
    %2.0, %2.1 = sort %0 {dim=0, descending=false}
    %3.0, %3.1 = sort %2.1 {dim=0, descending=false}
    %4 = constant {value=0.0, dtype=T}
    %5 = broadcast %4 {shape=[3, 4]}
    %6 = constant {value=2, dtype=i64}
    %7 = floor_divide %2.1, %6
    %8 = index_add %5, %7, %1
    return %8, %3.1
  })";
  for (const char* type : {"f32", "bf16"}) {
    std::string text = kText;
    for (size_t at; (at = text.find('T')) != text.npos;) text.replace(at, 1, type);
    const std::string now = rearranged(text, 2, false);
    EXPECT_EQ(now.find("index_add"), now.npos) << now;
    EXPECT_NE(now.find("reduce_sum"), now.npos) << now;
  }
}

TEST(Rearrange, AScatterOfOneElementPerRowIsElementwise) {
  constexpr const char* kHead = R"(graph joint (%0: f32[2, 3, 7], %1: i64[2, 3, 1], %2: f32[2, 3, 1]) {
    %3 = gather %0, %1 {dim=2}
    %4 = constant {value=0.0, dtype=f32}
    %5 = broadcast %4 {shape=[2, 3, 7]}
)";
  const std::string now =
      rearranged(str_cat(kHead, "%6 = scatter_add %5, %1, %2 {dim=2}\n%7 = mul %6, %0\nreturn %3, %7\n}"), 7, false);
  EXPECT_NE(now.find("where"), now.npos) << now;
  // No other op would find an index out of range.
  EXPECT_EQ(rearranged(R"(graph joint (%0: i64[2, 1], %1: f32[2, 1]) {
    %2 = constant {value=0.0, dtype=f32}
    %3 = broadcast %2 {shape=[2, 7]}
    %4 = scatter_add %3, %0, %1 {dim=1}
    return %4
  })"),
            "unchanged");
}

}  // namespace
}  // namespace weft
