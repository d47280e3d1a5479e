#include "framework/ir/graph.h"

#include <cstring>
#include <unordered_set>

#include "framework/base/hash.h"
#include "framework/base/mutex.h"
#include "framework/ir/cell.h"
#include "framework/ir/equal.h"
#include "framework/ir/op_def.h"

namespace weft {

const char* intern(std::string_view text) {
  if (text.empty()) return "";
  static Mutex mutex;
  static auto* all = new std::unordered_set<std::string>;
  MutexLock lock(mutex);
  return all->emplace(text).first->c_str();
}

int32_t Graph::add(Node node) {
  WEFT_BUG_IF(!node.op, "graph: a node without an op");
  for (Value v : node.inputs)
    WEFT_BUG_IF(v.node < 0 || v.node >= size() || v.index < 0 || v.index >= nodes_[v.node].outputs.size(),
                "graph: ", node.op->name, " uses %", v.node, ".", v.index, ", which is not a result of one of the ",
                size(), " earlier nodes");
  nodes_.push_back(std::move(node));
  return size() - 1;
}

static Value add_structural(Graph& g, const OpDef& op, size_t index, const TensorType& type) {
  Node n;
  n.op = &op;
  n.attrs = {{"index", static_cast<int64_t>(index)}};
  n.outputs = {type};
  return {g.add(std::move(n)), 0};
}

Value Graph::add_input(const TensorType& type) {
  inputs.push_back(add_structural(*this, input_op, inputs.size(), type));
  return inputs.back();
}

Value Graph::add_cell(Ref<Cell> cell) {
  int i = find_cell(cell.get());
  if (i < 0) {
    i = static_cast<int>(cells.size());
    cells.push_back(std::move(cell));
  }
  return add_structural(*this, cell_op, i, cells[i]->type);
}

Value Graph::add_captured(Tensor t) {
  size_t i = 0;
  while (i < captured.size() && captured[i].impl() != t.impl()) ++i;
  if (i == captured.size()) captured.push_back(std::move(t));
  return add_structural(*this, captured_op, i, captured[i].type());
}

int Graph::find_cell(const Cell* cell) const {
  for (size_t i = 0; i < cells.size(); ++i)
    if (cells[i].get() == cell) return static_cast<int>(i);
  return -1;
}

namespace internal {

bool is_inline(const Tensor& t) {
  return t.defined() && t.numel() <= kInlineElements && !t.is_traced() && t.device().type == DeviceType::kCpu;
}

namespace {

bool same_values(const Tensor& a, const Tensor& b) {
  if (is_integral(a.dtype()) || a.dtype() == kBool) return a.to_vector<int64_t>() == b.to_vector<int64_t>();
  std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    bool nan = x[i] != x[i] && y[i] != y[i];
    if (!nan && std::bit_cast<uint64_t>(x[i]) != std::bit_cast<uint64_t>(y[i])) return false;
  }
  return true;
}

bool same_captured(const Tensor& a, const Tensor& b, CapturedBy by) {
  if (a.impl() == b.impl()) return true;
  if (!a.defined() || !b.defined() || a.type() != b.type()) return false;
  if (is_inline(a) && is_inline(b)) return same_values(a, b);
  if (by == CapturedBy::kType) return true;
  const TensorImpl &x = a.get(), &y = b.get();
  return x.storage && x.storage == y.storage && x.offset == y.offset && x.strides == y.strides;
}

bool same_cell(const Cell& a, const Cell& b) {
  return &a == &b || (a.type == b.type && a.is_parameter == b.is_parameter && a.requires_grad == b.requires_grad);
}

}  // namespace

bool graphs_equal(const Graph& a, const Graph& b, CapturedBy by) {
  if (&a == &b) return true;
  if (a.size() != b.size() || a.stage != b.stage || a.inputs != b.inputs || a.outputs != b.outputs ||
      a.writes != b.writes || a.cells.size() != b.cells.size() || a.captured.size() != b.captured.size())
    return false;
  for (size_t i = 0; i < a.cells.size(); ++i)
    if (!same_cell(*a.cells[i], *b.cells[i])) return false;
  for (size_t i = 0; i < a.captured.size(); ++i)
    if (!same_captured(a.captured[i], b.captured[i], by)) return false;
  for (int32_t i = 0; i < a.size(); ++i) {
    const Node &x = a.node(i), &y = b.node(i);
    if ((x.op != y.op && std::strcmp(x.op->name, y.op->name) != 0) || !(x.inputs == y.inputs) ||
        !(x.outputs == y.outputs) || x.no_grad != y.no_grad || !(x.attrs == y.attrs))
      return false;
  }
  return true;
}

}  // namespace internal

bool structurally_equal(const Graph& a, const Graph& b) {
  return internal::graphs_equal(a, b, internal::CapturedBy::kType);
}

static uint64_t hash_type(uint64_t h, const TensorType& t) {
  h = hash_combine(h, static_cast<uint64_t>(t.dtype) | static_cast<uint64_t>(t.device.type) << 8 |
                          static_cast<uint64_t>(static_cast<uint16_t>(t.device.index)) << 16);
  return hash_bytes(t.shape.data(), t.shape.size() * sizeof(int64_t), h);
}

static uint64_t hash_of(uint64_t h, Value v) {
  return hash_combine(h, static_cast<uint64_t>(v.node) << 32 | static_cast<uint32_t>(v.index));
}

uint64_t structural_hash(const Graph& g) {
  uint64_t h = hash_text(g.stage);
  for (int32_t i = 0; i < g.size(); ++i) {
    const Node& n = g.node(i);
    h = hash_text(n.op->name, h);
    h = hash_combine(h, n.attrs.hash());
    h = hash_combine(h, n.inputs.size() << 1 | n.no_grad);
    for (Value v : n.inputs) h = hash_of(h, v);
    for (const TensorType& t : n.outputs) h = hash_type(h, t);
  }
  for (Value v : g.inputs) h = hash_of(h, v);
  h = hash_combine(h, g.cells.size());
  for (const Ref<Cell>& c : g.cells)
    h = hash_combine(hash_type(h, c->type), static_cast<uint64_t>(c->is_parameter) << 1 | c->requires_grad);
  h = hash_combine(h, g.captured.size());
  for (const Tensor& t : g.captured) {
    h = hash_type(h, t.type());
    if (!internal::is_inline(t)) continue;
    for (double x : t.to_vector<double>()) h = hash_combine(h, x != x ? 1 : std::bit_cast<uint64_t>(x));
  }
  for (const CellWrite& w : g.writes) h = hash_of(hash_combine(h, w.cell), w.value);
  for (Value v : g.outputs) h = hash_of(h, v);
  return h;
}

}  // namespace weft
