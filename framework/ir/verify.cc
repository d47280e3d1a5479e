// verify: the rule table of graphs. A broken rule is a bug of Weft or an error in hand-written text.
#include <cstring>

#include "framework/ir/graph_reader.h"
#include "framework/ir/rewrite.h"

namespace weft {
namespace {

constexpr const char* kStages[] = {"captured", "joint", "partitioned", "fused", "scheduled"};

class Verifier {
 public:
  /// Messages begin with `path`.
  Verifier(const Graph& g, std::string path, Code code)
      : g_(g), path_(std::move(path)), code_(code), read_(g.inputs.size()) {}

  void run() {
    bool known = false;
    for (const char* s : kStages) known |= g_.stage == s;
    if (!known) broken(-1, "stage", str_cat("'", g_.stage, "'"), "captured, joint, partitioned, fused or scheduled");
    tables();
    for (int32_t id = 0; id < g_.size(); ++id) node(id);
    for (size_t i = 0; i < read_.size(); ++i)
      if (!read_[i]) broken(-1, "inputs", str_cat("no node for argument ", i), "one input node each");
    writes();
    for (size_t i = 0; i < g_.outputs.size(); ++i)
      if (!exists(g_.outputs[i], g_.size()))
        broken(-1, "outputs", str_cat("output ", i, " = ", raw(g_.outputs[i])), "a value of this graph");
  }

 private:
  static std::string raw(Value v) { return str_cat('%', v.node, '.', v.index); }
  bool exists(Value v, int32_t before) const {
    return v.node >= 0 && v.node < before && v.index >= 0 && v.index < static_cast<int32_t>(g_.node(v).outputs.size());
  }

  template <class Got, class Need>
  [[noreturn]] void broken(int32_t id, const char* rule, const Got& got, const Need& want) const {
    std::string where = path_;
    if (id >= 0) {
      const Node& n = g_.node(id);
      where += str_cat("node %", id, " (", n.op->name);
      if (n.line.line) where += str_cat(", ", n.line.file, ":", n.line.line);
      where += ')';
    } else {
      where += "graph";
    }
    internal::fail(code_, str_cat(where, ": ", rule, ": got ", got, "; need ", want));
  }

  void tables() const {
    for (size_t i = 0; i < g_.cells.size(); ++i)
      if (!g_.cells[i]) broken(-1, "cells", str_cat("no cell c", i), "a cell");
    for (size_t i = 0; i < g_.captured.size(); ++i)
      if (!g_.captured[i].defined()) broken(-1, "captured", str_cat("undefined t", i), "a tensor");
  }

  void node(int32_t id) {
    const Node& n = g_.node(id);
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (!exists(n.inputs[i], id))
        broken(id, "ssa", str_cat("operand ", i, " = ", raw(n.inputs[i])), "a result of an earlier node");
    auto arity = [&](const char* what, size_t have, int want) {
      if (want >= 0 && have != static_cast<size_t>(want)) broken(id, "arity", str_cat(have, " ", what), want);
    };
    arity("operands", n.inputs.size(), n.op->num_inputs);
    arity("results", n.outputs.size(), n.op->num_outputs);
    if (!(!n.op->is(kReadsTape) || g_.stage == "captured"))
      broken(id, "stage", str_cat(n.op->name, " in stage ", g_.stage), "stage captured");
    // Nested graphs come first, because inference reads them.
    for (const auto& [key, value] : n.attrs.entries())
      if (const Ref<Graph>* nested = std::get_if<Ref<Graph>>(&value); nested && *nested) {
        if (!((*nested)->writes.empty()))
          broken(id, "nested", str_cat("writes to cells in ", key), "writes in the outermost graph only");
        Verifier(**nested, str_cat(path_, "node %", id, " (", n.op->name, ") ", key, ": "), code_).run();
      }
    if (is_leaf(n)) {
      structural(id, n);
    } else if (n.op->infer) {
      types(id, n);
    }
  }

  void structural(int32_t id, const Node& n) {
    const AttrValue* v = n.attrs.find("index");
    const int64_t* at = v ? std::get_if<int64_t>(v) : nullptr;
    if (!at) broken(id, "index", "no integer attribute index", "one");
    size_t count = is_argument(n) ? g_.inputs.size() : is_cell(n) ? g_.cells.size() : g_.captured.size();
    if (!(*at >= 0 && *at < static_cast<int64_t>(count)))
      broken(id, "index", *at, str_cat("0 to ", static_cast<int64_t>(count) - 1));
    if (is_argument(n)) {
      if (!(g_.inputs[*at] == Value{id, 0}))
        broken(id, "inputs", str_cat("argument ", *at, " = ", raw(g_.inputs[*at])), raw({id, 0}));
      read_[*at] = true;
    } else {
      same_type(id, "types", n.outputs[0], is_cell(n) ? g_.cells[*at]->type : g_.captured[*at].type());
    }
  }

  void same_type(int32_t id, const char* rule, const TensorType& got, const TensorType& want) const {
    if (!(got == want)) broken(id, rule, got, want);
  }

  void types(int32_t id, const Node& n) const {
    SmallVec<TensorType, 4> in;
    for (Value v : n.inputs) in.push_back(g_.type(v));
    Types want;
    try {
      want = infer_types(*n.op, n.attrs, in);
    } catch (const Error& e) {
      broken(id, "types", str_cat("\"", e.what(), "\""), "operands that the op accepts");
    }
    if (want.size() != n.outputs.size()) broken(id, "types", str_cat(n.outputs.size(), " results"), want.size());
    for (size_t i = 0; i < want.size(); ++i) same_type(id, "types", n.outputs[i], want[i]);
  }

  void writes() const {
    std::vector<bool> written(g_.cells.size());
    for (const CellWrite& w : g_.writes) {
      if (!(w.cell >= 0 && w.cell < static_cast<int64_t>(g_.cells.size())))
        broken(-1, "writes", str_cat("cell c", w.cell), str_cat(g_.cells.size(), " cells"));
      if (!exists(w.value, g_.size()))
        broken(-1, "writes", str_cat(raw(w.value), " for c", w.cell), "a value of this graph");
      if (written[w.cell])
        broken(-1, "writes", str_cat("two writes of c", w.cell, " \"", g_.cells[w.cell]->name, "\""), "one");
      written[w.cell] = true;
      same_type(w.value.node, "writes", g_.type(w.value), g_.cells[w.cell]->type);
    }
  }

  const Graph& g_;
  std::string path_;
  Code code_;
  std::vector<bool> read_;
};

}  // namespace

void verify(const Graph& g) { Verifier(g, "verify: ", Code::kInternal).run(); }

namespace internal {
void verify_read(const Graph& g, const char* reader) {
  Verifier(g, str_cat(reader, ": "), Code::kInvalidArgument).run();
}
}  // namespace internal

}  // namespace weft
