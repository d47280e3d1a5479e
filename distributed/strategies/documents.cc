#include "distributed/strategies/documents.h"

#include <algorithm>
#include <set>

#include "ops/attention/record.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

std::set<int32_t> nodes_behind(const Graph& g, Value v) {
  std::set<int32_t> seen;
  std::vector<int32_t> todo{v.node};
  while (!todo.empty()) {
    const int32_t id = todo.back();
    todo.pop_back();
    if (!seen.insert(id).second) continue;
    for (Value in : g.node(id).inputs) todo.push_back(in.node);
  }
  return seen;
}

// The inputs of a mask that a value depends on (0 to 3: b, h, q, kv; then tables).
std::set<int64_t> inputs_behind(const Graph& mask, Value v) {
  std::set<int64_t> out;
  for (int32_t id : nodes_behind(mask, v))
    if (is_argument(mask.node(id))) out.insert(mask.node(id).attrs.i("index"));
  return out;
}

// The tables that a mask reads at its query and at its key to compare the entries.
std::set<int64_t> compared(const Graph& mask) {
  std::set<int64_t> tables;
  for (int32_t id = 0; id < mask.size(); ++id) {
    const Node& n = mask.node(id);
    if (std::string_view(n.op->name) != "eq") continue;
    const std::set<int64_t> x = inputs_behind(mask, n.inputs[0]), y = inputs_behind(mask, n.inputs[1]);
    const bool q_kv = x.count(2) && !x.count(3) && y.count(3) && !y.count(2);
    const bool kv_q = x.count(3) && !x.count(2) && y.count(2) && !y.count(3);
    if (!q_kv && !kv_q) continue;
    for (int64_t table : x)
      if (table >= 4 && y.count(table)) tables.insert(table - 4);
  }
  return tables;
}

}  // namespace

std::vector<Value> find_documents(const Graph& g) {
  std::vector<Value> ids;
  bool attention = false;
  int64_t length = -1;
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    attention |= n.op == &attention_op;
    if (n.op != &attention_op || !n.attrs.has("mask")) continue;
    const internal::AttentionOperands at(n.attrs);
    const int64_t queries = g.type(n.inputs[0]).shape[2];
    for (int64_t table : compared(*n.attrs.get<Ref<Graph>>("mask"))) {
      const Value v = n.inputs[at.mask_first + table];
      const TensorType& type = g.type(v);
      if (!is_integral(type.dtype) || type.shape.empty() || type.shape.back() != queries) continue;
      if (std::find(ids.begin(), ids.end(), v) != ids.end()) continue;
      WEFT_CHECK(length < 0 || length == queries, "plan: cp_layout documents with sequences of ", length, " and of ",
                 queries, " (attention at ", n.line.to_string(), "); need one length");
      for (int32_t behind : nodes_behind(g, v)) {
        const Node& b = g.node(behind);
        WEFT_CHECK(!is_cell(b) && !b.op->is(kRandom) && b.op != &attention_op,
                   "plan: cp_layout documents: the ids that attention at ", n.line.to_string(), " compares come from ",
                   b.op->name, " at ", b.line.to_string(), "; need ids made of the arguments alone");
      }
      length = queries;
      ids.push_back(v);
    }
  }
  WEFT_CHECK(!ids.empty() || !attention,
             "plan: cp_layout documents: no attention asks whether a query and a key have equal ids; need a mask such "
             "as attention::document(ids), or use headtail");
  return ids;
}

}  // namespace weft::dist
