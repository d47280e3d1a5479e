// Proves every row of simplify on random values: its pattern becomes graphs of every dtype and constant shape that it
// admits, and the outputs before and after must have the same bits. View and cast rows have their own texts.
#include "compiler/passes/patterns/simplify.h"

#include <gtest/gtest.h>

#include <set>

#include "compiler/passes/cse.h"
#include "compiler/passes/dce.h"
#include "compiler/passes/patterns/pattern.h"
#include "compiler/passes/testing/random_ops_graph.h"
#include "framework/ir/rewrite.h"
#include "ops/all_ops.h"
#include "ops/core/creation.h"

namespace weft {
namespace {

using namespace testing;

/// A graph of one pattern: letters become arguments, constants become constants (0-d, or broadcast).
class Example {
 public:
  Example(DType dtype, double c, bool full) : dtype_(dtype), c_(c), full_(full) {}

  /// Null if the ops do not take this dtype.
  Ref<Graph> of(const Pattern& p) try {
    g_->outputs = {value(p, dtype_)};
    g_->stage = "joint";
    return g_;
  } catch (const Error&) {
    return nullptr;
  }

 private:
  Value add(const OpDef& op, std::initializer_list<Value> in, Attrs attrs = {}) {
    Node n;
    n.op = &op;
    n.attrs = std::move(attrs);
    std::vector<TensorType> types;
    for (Value v : in) {
      n.inputs.push_back(v);
      types.push_back(g_->type(v));
    }
    n.outputs = op.infer({op, n.attrs, types});
    return {g_->add(std::move(n)), 0};
  }

  Value constant(double value, DType t) {
    AttrValue v = is_floating(t) ? AttrValue(value) : AttrValue(static_cast<int64_t>(value));
    Value x = add(*op_table().find("constant"), {}, {{"value", v}, {"dtype", t}});
    return full_ ? add(*op_table().find("broadcast"), {x}, {{"shape", Shape{2, 3}}}) : x;
  }

  Value value(const Pattern& p, DType t) {
    if (p.op) {
      std::vector<Value> in;
      for (size_t i = 0; i < p.args.size(); ++i)
        in.push_back(value(p.args[i], i == 0 && std::string_view(p.op->name) == "where" ? kBool : t));
      if (in.size() == 1) return add(*p.op, {in[0]});
      if (in.size() == 2) return add(*p.op, {in[0], in[1]});
      return add(*p.op, {in[0], in[1], in[2]});
    }
    if (!p.letter) return constant(p.number, t);
    if (p.constant) return constant(p.letter == 'c' ? c_ : 3, t);
    Value& v = letters_[p.letter];
    if (!v.valid()) v = g_->add_input({t, Device::cpu(), {2, 3}});
    return v;
  }

  DType dtype_;
  double c_;
  bool full_;
  Ref<Graph> g_ = make_ref<Graph>();
  std::map<char, Value> letters_;
};

void expect_same(const Graph& before, const Graph& after, std::mt19937& random) {
  verify(after);
  for (int i = 0; i < 40; ++i) {
    std::vector<Tensor> args = random_arguments(random, before);
    std::string d = difference(before, after, args);
    ASSERT_EQ(d, "") << before.to_string() << after.to_string();
  }
}

TEST(Simplify, EveryArithmeticRowKeepsTheBits) {
  std::mt19937 random(1);
  for (const RewriteRule& rule : arith_rules()) {
    SCOPED_TRACE(rule.pattern);
    Pattern p = parse_pattern(rule.pattern, op_table());
    int applied = 0;
    for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool})
      for (double c : {4.0, 0.25, 7.0, -0.5, 0x1p-100, 0x1p100, 0x1p-14, 0x1p15})
        for (bool full : {false, true}) {
          if (!is_floating(t) && (c < 1 || c > 1e6)) continue;
          Ref<Graph> g = Example(t, c, full).of(p);
          if (!g) continue;
          std::map<std::string, int> count;
          Ref<Graph> now = simplify(*g, &count);
          if (!now) continue;
          applied += count[rule.pattern];
          expect_same(*g, *now, random);
        }
    EXPECT_GT(applied, 0);
  }
}

TEST(Simplify, EveryViewAndCastRowKeepsTheBits) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"reshape(x)", {"reshape %0 {shape=[2, 1, 3]}"}},
      {"reshape(reshape(x))", {"reshape %0 {shape=[6]}", "reshape %1 {shape=[3, 2]}"}},
      {"permute(permute(x))", {"permute %0 {dims=[2, 0, 1]}", "permute %1 {dims=[1, 0, 2]}"}},
      {"permute(x)", {"permute %0 {dims=[0, 1, 2]}"}},
      {"permute(x)", {"permute %0 {dims=[1, 0, 2]}"}},
      {"permute(x)", {"permute %0 {dims=[2, 1, 0]}"}},  // stays
      {"broadcast(x)", {"broadcast %0 {shape=[2, 1, 3]}"}},
      {"broadcast(broadcast(x))", {"broadcast %0 {shape=[2, 4, 3]}", "broadcast %1 {shape=[5, 2, 4, 3]}"}},
      {"slice(x)", {"slice %0 {begin=[0, 0, 0], end=[2, 1, 3], step=[1, 1, 1]}"}},
      {"slice(x)", {"slice %0 {begin=[0, 0, 0], end=[2, 1, 3], step=[1, 2, 1]}"}},
      {"slice(slice(x))",
       {"slice %0 {begin=[1, 0, 0], end=[2, 1, 3], step=[1, 1, 2]}",
        "slice %1 {begin=[0, 0, 1], end=[1, 1, 2], step=[1, 1, 3]}"}},
      {"slice(slice(x))",
       {"slice %0 {begin=[0, 0, 1], end=[2, 1, 3], step=[1, 1, 1]}",
        "slice %1 {begin=[0, 0, 2], end=[2, 1, 2], step=[1, 1, 1]}"}},
      {"pad(x)", {"pad %0 {lo=[0, 0, 0], hi=[0, 0, 0], value=1.0}"}},
      {"concat(x)", {"concat %0 {dim=0}"}},
      {"cast(x)", {"cast %0 {dtype=DTYPE}"}},
      {"cast(cast(x))", {"cast %0 {dtype=f64}", "cast %1 {dtype=DTYPE}"}},
      {"cast(cast(x))", {"cast %0 {dtype=f32}", "cast %1 {dtype=bf16}"}},
      {"cast(cast(x))", {"cast %0 {dtype=f64}", "cast %1 {dtype=f16}"}},
      {"cast(cast(x))", {"cast %0 {dtype=i64}", "cast %1 {dtype=u8}"}},
      {"cast(cast(x))", {"cast %0 {dtype=f32}", "cast %1 {dtype=bool}"}},
      {"gather(cast(x), y)",
       {"cast %0 {dtype=f32}", "constant {value=2, dtype=i64}", "broadcast %2 {shape=[2, 1, 1]}",
        "gather %1, %3 {dim=2}"}},
      {"index_select(cast(x), y)",
       {"cast %0 {dtype=f64}", "constant {value=1, dtype=i64}", "broadcast %2 {shape=[2]}",
        "index_select %1, %3 {dim=2}"}},
  };
  std::mt19937 random(2);
  std::map<std::string, int> applied;
  for (const auto& [row, lines] : cases)
    for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kInt16, kInt8, kUInt8, kBool}) {
      std::string text = str_cat("graph joint (%0: ", t, "[2, 1, 3]) {\n");
      for (size_t i = 0; i < lines.size(); ++i) text += str_cat("%", i + 1, " = ", lines[i], "\n");
      text += str_cat("return %", lines.size(), "\n}");
      if (size_t at = text.find("DTYPE"); at != text.npos) text.replace(at, 5, to_string_view(t));
      Ref<Graph> g = parse_graph(text, op_table());
      bool undefined =
          is_floating(t) && !is_floating(g->type(g->outputs[0]).dtype) && g->type(g->outputs[0]).dtype != kBool;
      for (int32_t id = 0; id < g->size(); ++id)
        undefined |= is_floating(t) && is_integral(g->node(id).outputs[0].dtype);
      if (undefined) continue;  // floats outside an integer's range
      if (Ref<Graph> now = simplify(*g, &applied)) expect_same(*g, *now, random);
    }
  for (std::span<const RewriteRule> rules : {view_rules(), cast_rules()})
    for (const RewriteRule& rule : rules) EXPECT_GT(applied[rule.pattern], 0) << rule.pattern;
}

int work(const Graph& g) {  // numbers cost nothing
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op != &constant_op;
  return n;
}

TEST(Simplify, RandomGraphsKeepTheirBitsAndSettle) {
  std::mt19937 random(3);
  int simplified = 0;
  for (int i = 0; i < 600; ++i) {
    Ref<Graph> g = random_ops_graph(random, 10 + i % 40);
    if (Ref<Graph> live = dce(*g)) g = live;
    Ref<Graph> now = simplify(*g);
    if (!now) continue;
    ++simplified;
    EXPECT_FALSE(simplify(*now)) << now->to_string();
    if (Ref<Graph> merged = cse(*now)) now = merged;
    if (Ref<Graph> live = dce(*now)) now = live;
    verify(*now);
    EXPECT_LE(work(*now), work(*g)) << g->to_string() << now->to_string();
    for (int k = 0; k < 3; ++k) {
      std::vector<Tensor> args = random_arguments(random, *g);
      ASSERT_EQ(difference(*g, *now, args), "") << g->to_string() << now->to_string();
    }
  }
  EXPECT_GT(simplified, 300);
}

std::string simplified(std::string_view text) {
  Ref<Graph> g = parse_graph(text, op_table()), now = simplify(*g);
  if (!now) return "unchanged";
  verify(*now);
  if (Ref<Graph> live = dce(*now)) now = live;
  return now->to_string();
}

TEST(Simplify, FoldsConstants) {
  EXPECT_EQ(simplified(R"(graph joint (%0: f32[2, 3]) {
    %1 = constant {value=2.0, dtype=f32}
    %2 = constant {value=0.5, dtype=f32}
    %3 = add %1, %2
    %4 = broadcast %3 {shape=[2, 3]}
    %5 = neg %4
    %6 = mul %0, %5
    return %6
  })"),
            R"(graph joint (%0: f32[2, 3]) {
  %1 = constant {dtype=f32, value=-2.5} : f32[]
  %2 = mul %0, %1 : f32[2, 3]
  return %2
}
)");
  EXPECT_EQ(simplified(R"(graph joint (%0: f32[]) {
    captured t0 f32[2, 2] = [1.0, 2.0, 3.0, 4.0]
    %1 = captured t0
    %2 = permute %1 {dims=[1, 0]}
    %3 = neg %2
    return %3
  })"),
            R"(graph joint (%0: f32[]) {
  captured t0 f32[2, 2] = [-1.0, -3.0, -2.0, -4.0]
  %1 = captured t0 : f32[2, 2]
  return %1
}
)");
  // Ranges stay, because masks are recognised by them.
  EXPECT_EQ(simplified(R"(graph joint () {
    %0 = iota {size=4, dtype=i64, start=0, step=1}
    %1 = neg %0
    return %1
  })"),
            "unchanged");
}

TEST(Simplify, LeavesAloneWhatGradStillNeeds) {
  constexpr const char* kHead = R"(graph captured (%0: f32[2, 3]) {
    %1 = neg %0
    %2 = neg %1
    %3 = reduce_sum %2 {dims=[0, 1]}
)";
  EXPECT_EQ(simplified(str_cat(kHead, "%4 = grad %3, %1 {seeded=false}\n return %4\n}")), "unchanged");
  EXPECT_EQ(simplified(str_cat(kHead, "%4 = grad %3, %2 {seeded=false}\n return %4\n}")), "unchanged");
  EXPECT_NE(simplified(str_cat(kHead, "%4 = grad %3, %0 {seeded=false}\n return %4\n}")), "unchanged");
  EXPECT_EQ(simplified(R"(graph captured (%0: f32[2, 3]) {
    %1 = neg %0 no_grad
    %2 = neg %1
    %3 = reduce_sum %2 {dims=[0, 1]}
    %4 = grad %3, %0 {seeded=false}
    return %4
  })"),
            "unchanged");
}

TEST(Simplify, NoRowIsForgottenInTheTable) {
  std::set<std::string> seen;
  for (std::span<const RewriteRule> rules : {arith_rules(), view_rules(), cast_rules()})
    for (const RewriteRule& rule : rules) {
      EXPECT_TRUE(seen.insert(str_cat(rule.pattern, " -> ", rule.result, static_cast<int>(rule.only))).second)
          << rule.pattern;
      EXPECT_TRUE(rule.build || parse_pattern(rule.result, op_table()).args.size() < 9);
    }
}

}  // namespace
}  // namespace weft
