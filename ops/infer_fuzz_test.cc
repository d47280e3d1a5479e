// Damaged graph text with real ops, whose result types are inferred: each text is refused by the parser or by the
// record, or gives types that dim maps, costs and workspaces can be computed for.
#include <gtest/gtest.h>

#include <cmath>

#include "framework/ir/rewrite.h"
#include "framework/testing/fuzz.h"
#include "ops/all_ops.h"

namespace weft {

using internal::Sample;
using internal::SampleInput;

namespace {

/// A call of `op` as text without result types; empty if the sample is an error.
std::string text_of(const OpDef& op, const Sample& sample) {
  if (!sample.error.empty()) return {};
  Graph g;
  Node n;
  n.op = &op;
  n.attrs = sample.attrs;
  std::vector<TensorType> types;
  for (const SampleInput& in : sample.in) {
    types.push_back({in.dtype, Device::cpu(), in.shape});
    n.inputs.push_back(g.add_input(types.back()));
  }
  for (const TensorType& t : infer_types(op, n.attrs, types)) n.outputs.push_back(t);
  const int32_t results = static_cast<int32_t>(n.outputs.size()), id = g.add(std::move(n));
  for (int32_t i = 0; i < results; ++i) g.outputs.push_back({id, i});
  std::string s = g.to_string();
  const size_t end = s.rfind("\n  return"), begin = s.rfind(" : ", end);
  return s.erase(begin, end - begin);
}

TEST(InferFuzz, DamagedCalls) {
  std::vector<std::string> seeds;
  std::vector<std::string_view> words = {
      "[",   "]",      "0",         "-1",     "[]",      "f32",       "i64",        "bool",      "u8",
      "f64", "f8e4m3", "f32[0, 3]", "i64[4]", "null",    "body=null", "score=null", "mask=null", "%0",
      "nan", "1",      ", 1",       "true",   "\"sum\"", "@cuda:0",   "1e300",      "f32[]",     "{}"};
  for (const OpDef* op : all_ops()) {
    words.push_back(op->name);
    if (!op->samples) continue;
    for (const Sample& sample : op->samples())
      if (std::string text = text_of(*op, sample); !text.empty()) seeds.push_back(std::move(text));
  }
  auto read = [](const std::string& text) {
    const Ref<Graph> g = parse_graph(text, op_table());
    for (const Tensor& t : g->captured)
      if (t.defined() && t.type().nbytes() > 1 << 16) return;  // it takes time to print
    const std::string again = g->to_string();
    EXPECT_TRUE(structurally_equal(*g, *parse_graph(again, op_table()))) << again;
    for (int32_t id = 0; id < g->size(); ++id) {
      const Node& n = g->node(id);
      if (n.op == &input_op || n.op == &cell_op || n.op == &captured_op) continue;
      std::vector<TensorType> in;
      for (Value v : n.inputs) in.push_back(g->type(v));
      // Only types that inference gives: text may state others, which verify() refuses.
      Types inferred;
      try {
        inferred = infer_types(*n.op, n.attrs, in);
      } catch (const Error&) {
        continue;
      }
      if (!std::equal(inferred.begin(), inferred.end(), n.outputs.begin(), n.outputs.end())) continue;
      for (const TensorType& t : inferred) EXPECT_GE(t.nbytes(), 0);
      const Cost cost = op_cost(*n.op, n.attrs, in, inferred);
      EXPECT_GE(cost.flops, 0) << text;
      EXPECT_GE(cost.bytes, 0) << text;
    }
  };
  testing::fuzz({.seeds = std::move(seeds),
                 .damage = [&](std::string& s, testing::FuzzRandom& r) { testing::damage_text(s, r, words); },
                 .read = read,
                 .names = "parse_graph: line "});
}

}  // namespace
}  // namespace weft
