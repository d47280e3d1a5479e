#include "tools/graph/graph_json.h"

#include <map>
#include <set>
#include <unordered_map>

#include "compiler/loop_ir/fused.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "framework/ir/op_def.h"
#include "framework/ir/text.h"

namespace weft::tools {
namespace {

// Texts by number, each once. Number 0 is the empty text.
class Texts {
 public:
  Texts() { number(""); }
  size_t number(const std::string& text) {
    const auto [at, fresh] = numbers_.try_emplace(text, numbers_.size());
    if (fresh) all_.push_back(text);
    return at->second;
  }
  io::OrderedJson json() const { return all_; }

 private:
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<std::string> all_;
};

// "dim=1, keepdim=true"
std::string attributes_text(const Attrs& attrs) {
  std::string s;
  for (const auto& [key, value] : attrs.entries()) {
    s += str_cat(s.empty() ? "" : ", ", key, "=");
    if (std::holds_alternative<Ref<Graph>>(value)) {
      s += "graph";
    } else {
      internal::append_value(s, value, "");
    }
  }
  return s;
}

io::OrderedJson value_json(Value v) { return io::OrderedJson::array({v.node, v.index}); }

class GraphWriter {
 public:
  explicit GraphWriter(const ShownGraph& shown) : shown_(shown), g_(*shown.graph) {
    if (!shown_.record) return;
    for (const MissedRecord& m : shown_.record->missed) {
      if (m.kind != MissedRecord::kSeparateKernels) continue;
      for (const auto& [op, other] : {std::pair(m.from, m.to), {m.to, m.from}})
        reasons_[op].insert(str_cat("not in the kernel of ", other, ": ", m.reason, " (", bytes_text(m.bytes), ")"));
    }
  }

  io::OrderedJson run() {
    const std::vector<Phase> phases = phases_of(g_);
    io::OrderedJson nodes = io::OrderedJson::array(), classes = io::OrderedJson::array();
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      io::OrderedJson types = io::OrderedJson::array(), operands = io::OrderedJson::array();
      for (const TensorType& t : n.outputs) types.push_back(types_.number(t.to_string()));
      for (Value v : n.inputs) operands.push_back(value_json(v));
      nodes.push_back(
          io::OrderedJson::array({ops_.number(n.op->name), scopes_.number(n.scope), lines_.number(n.line.to_string()),
                                  static_cast<int>(phases[id]), types, operands}));
      const bool structural = is_leaf(n);
      classes.push_back(structural ? -1 : static_cast<int>(class_of(n)));
      label(id, n);
      details(id, n);
    }
    if (shown_.record && shown_.scheduled) times();
    io::OrderedJson out{{"name", shown_.name}};
    if (!shown_.note.empty()) out["note"] = shown_.note;
    out["scopes"] = scopes_.json();
    out["lines"] = lines_.json();
    out["ops"] = ops_.json();
    out["types"] = types_.json();
    out["nodes"] = std::move(nodes);
    out["class"] = std::move(classes);
    out["labels"] = std::move(labels_);
    out["details"] = std::move(details_);
    if (shown_.record && shown_.scheduled) {
      out["kernels"] = shown_.record->kernels;
      for (const MissedRecord& m : shown_.record->missed) out["missed"].push_back(m.to_string());
    }
    io::OrderedJson outputs = io::OrderedJson::array(), writes = io::OrderedJson::array();
    for (Value v : g_.outputs) outputs.push_back(value_json(v));
    for (const CellWrite& w : g_.writes)
      writes.push_back(io::OrderedJson::array({cell_name(w.cell), value_json(w.value)}));
    out["outputs"] = std::move(outputs);
    out["writes"] = std::move(writes);
    return out;
  }

 private:
  std::string cell_name(int64_t index) const {
    const std::string& name = g_.cells[index]->name;
    return name.empty() ? str_cat("cell ", index) : name;
  }

  void label(int32_t id, const Node& n) {
    if (is_cell(n)) labels_[std::to_string(id)] = cell_name(n.attrs.i("index"));
    if (is_argument(n)) labels_[std::to_string(id)] = str_cat("argument ", n.attrs.i("index"));
    if (n.op->leaf == weft::internal::Leaf::kCaptured)
      labels_[std::to_string(id)] = str_cat("captured ", n.attrs.i("index"));
  }

  void details(int32_t id, const Node& n) {
    io::OrderedJson d = io::OrderedJson::object();
    if (const Graph* body = loop_ir::group_of(n)) {
      d["ops"] = loop_ir::ops_text(*body, 12);
    } else if (!is_leaf(n)) {
      if (!n.attrs.empty()) d["attrs"] = attributes_text(n.attrs);
    }
    if (!n.op->is(kStructural) && (n.op->kernel || n.op->cost || n.op->is(kGroup))) {
      const Cost c = op_cost(g_, n);
      d["bytes"] = c.bytes;
      d["flops"] = c.flops;
      if (c.at_most) d["at_most"] = true;
    }
    if (static_cast<size_t>(id) < shown_.placements.size() && !shown_.placements[id].empty())
      d["placement"] = shown_.placements[id];
    if (n.recomputed) d["recomputed"] = true;
    if (io::OrderedJson why = reasons(n); !why.empty()) d["why"] = std::move(why);
    if (!d.empty()) details_[std::to_string(id)] = std::move(d);
  }

  // The reasons why the node, or an op in it, is not in other kernels.
  io::OrderedJson reasons(const Node& n) const {
    std::set<std::string> all;
    const auto add = [&](const Node& o) {
      const auto found = reasons_.find(op_at_line(o));
      if (found != reasons_.end()) all.insert(found->second.begin(), found->second.end());
    };
    const Graph* const body = loop_ir::group_of(n);
    if (!body) {
      add(n);
    } else {
      for (int32_t id = 0; id < body->size(); ++id) add(body->node(id));
    }
    return io::OrderedJson(std::vector<std::string>(all.begin(), all.end()));
  }

  // Adds the work and the times of the nodes' launches.
  void times() {
    for (const LaunchRecord& l : shown_.record->launches) {
      if (l.copy) continue;
      io::OrderedJson& d = details_[std::to_string(l.node)];
      d["bytes"] = l.work.bytes;
      d["flops"] = l.work.flops;
      d["predicted_us"] = l.predicted_us;
      if (l.measured_us > 0) d["measured_us"] = l.measured_us;
      if (l.work.at_most) d["at_most"] = true;
      if (l.kernel < 0) continue;
      d["kernel"] = l.kernel;
      labels_[std::to_string(l.node)] = l.name;
    }
  }

  const ShownGraph& shown_;
  const Graph& g_;
  std::map<std::string, std::set<std::string>> reasons_;  // key: op and line
  Texts scopes_, lines_, ops_, types_;
  io::OrderedJson labels_ = io::OrderedJson::object(), details_ = io::OrderedJson::object();
};

}  // namespace

std::string graphs_json(const std::string& title, const std::vector<ShownGraph>& graphs) {
  io::OrderedJson all = io::OrderedJson::array();
  for (const ShownGraph& g : graphs) all.push_back(GraphWriter(g).run());
  return io::write_json(io::OrderedJson{{"title", title}, {"graphs", std::move(all)}});
}

}  // namespace weft::tools
