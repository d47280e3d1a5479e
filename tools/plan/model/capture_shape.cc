#include "tools/plan/model/capture_shape.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "framework/base/error.h"
#include "framework/dispatch/capture.h"
#include "framework/ir/op_def.h"
#include "ops/attention/record.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"

namespace weft::planner {
namespace {

constexpr int64_t kTokens = 16;  // most tokens of the captured sequence; all sizes are for one token

// The known facts about a value.
struct Flow {
  bool split = false;     // tp splits it
  bool attended = false;  // it comes from attention, elementwise
  int product = -1;       // the product that it comes from, elementwise, in the current layer
  int stage = 0;          // products by rows before it
};

class Reader {
 public:
  Reader(const Graph& g, int64_t tokens, ModelShape& shape) : g_(g), tokens_(tokens), shape_(shape) {}

  void run() {
    find_choices();
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      Flow out;
      for (const Value v : n.inputs) merge(flow(v), out);
      if (n.op == &attention_op) {
        attention(n, id);
        out.attended = true;
      } else if (n.op == &dot_op || n.op == &grouped_dot_op) {
        product(n, id, out);
      }
      flows_.emplace_back(out);
    }
    find_moves();
  }

 private:
  const Flow& flow(Value v) const { return flows_[static_cast<size_t>(v.node)]; }

  static void merge(const Flow& from, Flow& to) {
    to.split |= from.split;
    to.attended |= from.attended;
    to.product = std::max(to.product, from.product);
    to.stage = std::max(to.stage, from.stage);
  }

  // Finds the values that integers are made from, elementwise: scores of experts.
  void find_choices() {
    chooses_.resize(static_cast<size_t>(g_.size()));
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      const Node& n = g_.node(id);
      bool chooses = chooses_[static_cast<size_t>(id)];
      for (const TensorType& t : n.outputs) chooses |= !is_floating(t.dtype);
      if (!chooses || n.op->is(kContraction)) continue;
      for (const Value v : n.inputs) chooses_[static_cast<size_t>(v.node)] = true;
    }
  }

  // The parameter from which a value is made by conversions and views alone; null if there is none.
  const Cell* parameter(Value v) const {
    for (;;) {
      const Node& n = g_.node(v);
      if (n.op == &cell_op) {
        const Cell* cell = g_.cells[static_cast<size_t>(n.attrs.i("index"))].get();
        return cell->is_parameter ? cell : nullptr;
      }
      if (!n.op->is(kView) && n.op != &cast_op) return nullptr;
      v = n.inputs[0];
    }
  }

  // The value that a view is of.
  Value base(Value v) const {
    while (g_.node(v).op->is(kView)) v = g_.node(v).inputs[0];
    return v;
  }

  // The part of base(v) that a view reads: the first view with fewer elements.
  Value part(Value v) const {
    const Value whole = base(v);
    Value part = whole;
    for (; !(v == whole); v = g_.node(v).inputs[0])
      if (g_.type(v).shape.numel() < g_.type(whole).shape.numel()) part = v;
    return part;
  }

  // The layer that a parameter belongs to; null outside the layers.
  Block* block_of(const Cell& cell) {
    const std::string layer = layer_of(cell.name);
    if (layer.empty()) return nullptr;
    if (layer != layer_) {
      layer_ = layer;
      shape_.blocks.emplace_back();
      sources_.clear();
    }
    return &shape_.blocks.back();
  }

  void product(const Node& n, int32_t id, Flow& out) {
    const bool first = parameter(n.inputs[0]) != nullptr;
    const Value data = base(n.inputs[first ? 1 : 0]), weight = n.inputs[first ? 0 : 1];
    const Cell* cell = parameter(weight);
    WEFT_CHECK(cell, "the product at ", n.line.to_string(), " has no weight; need products of tokens with parameters");
    out = flow(data);
    Block* block = block_of(*cell);
    if (!block) return;
    layer_of_product_[id] = static_cast<int>(shape_.blocks.size()) - 1;
    const int64_t size = g_.type(weight).shape.numel(), values = n.outputs[0].shape.numel();
    Product p{.stage = out.stage, .experts = n.op == &grouped_dot_op ? g_.type(weight).shape[0] : 0};
    if (p.experts) p.rows = n.outputs[0].shape[0] / tokens_;
    p.out = values / tokens_ / p.rows;
    p.in = size / std::max<int64_t>(1, p.experts) / p.out;
    p.split = out.split ? Product::kRows : chooses_[static_cast<size_t>(id)] ? Product::kWhole : Product::kColumns;
    std::vector<Product>& all = block->products;
    if (p.split == Product::kRows) {
      p.attended = out.attended;
      out.stage = p.stage + 1;
    }
    out.split = p.split == Product::kColumns;
    out.attended = false;
    // Products of one value are one product.
    for (size_t i = 0; i < sources_.size(); ++i)
      if (sources_[i] == data && all[i].split == p.split && all[i].experts == p.experts) {
        all[i].out += p.out;
        out.product = static_cast<int>(i);
        return;
      }
    sources_.push_back(data);
    out.product = static_cast<int>(all.size());
    all.push_back(p);
  }

  void attention(const Node& n, int32_t id) {
    const Shape &q = g_.type(n.inputs[0]).shape, &k = g_.type(n.inputs[1]).shape;
    shape_.heads = q[1];
    shape_.kv_heads = k[1];
    shape_.head_dim = q[3];
    WEFT_BUG_IF(shape_.blocks.empty() || flow(n.inputs[1]).product < 0, "attention outside of layers");
    layer_of_product_[id] = static_cast<int>(shape_.blocks.size()) - 1;
    Block& block = shape_.blocks.back();
    block.attended = q[1] * q[3];
    block.products[static_cast<size_t>(flow(n.inputs[1]).product)].kv = 2 * k[1] * k[3];
  }

  bool is_product(int32_t id) const {
    const OpDef* op = g_.node(id).op;
    return op == &attention_op || op == &dot_op || op == &grouped_dot_op;
  }

  double elements(Value v) const {
    const TensorType& t = g_.type(v);
    return is_floating(t.dtype) ? static_cast<double>(t.shape.numel()) / static_cast<double>(tokens_) : 0;
  }

  // Elementwise nodes with equal numbers of products before them are one kernel if one reads a value that another
  // makes or reads. The work after a layer's last product, with the next layer's norm, is the layer's.
  void find_moves() {
    const auto size = static_cast<size_t>(g_.size());
    const auto at = [](int32_t id) { return static_cast<size_t>(id); };
    std::vector<char> live(size);  // depends on the tokens
    std::vector<int> depth(size);  // products before the node, on the longest path
    std::vector<int> layer(size, -1);
    std::vector<size_t> kernel(size);  // the first node that is known to be of the same kernel
    std::iota(kernel.begin(), kernel.end(), size_t{0});
    const auto kernel_of = [&](size_t i) {
      while (kernel[i] != i) i = kernel[i];
      return i;
    };
    const auto join = [&](size_t a, size_t b) {
      a = kernel_of(a), b = kernel_of(b);
      kernel[std::max(a, b)] = std::min(a, b);
    };
    for (const Value v : g_.inputs) live[at(v.node)] = true;
    std::map<std::pair<Value, int>, size_t> readers;
    const auto elementwise = [&](int32_t id) {
      const Node& n = g_.node(id);
      return live[at(id)] && !n.inputs.empty() && !is_product(id) && !n.op->is(kView);
    };
    for (int32_t id = 0; id < g_.size(); ++id) {
      const size_t i = at(id);
      for (const Value v : g_.node(id).inputs) {
        live[i] |= live[at(v.node)];
        depth[i] = std::max(depth[i], depth[at(v.node)] + is_product(v.node));
        layer[i] = std::max(layer[i], layer[at(v.node)]);
      }
      if (const auto it = layer_of_product_.find(id); it != layer_of_product_.end()) layer[i] = it->second;
      if (!elementwise(id)) continue;
      for (const Value v : g_.node(id).inputs) {
        const Value from = base(v);
        if (!live[at(from.node)]) continue;
        if (elementwise(from.node) && depth[at(from.node)] == depth[i])
          join(i, at(from.node));
        else
          join(i, readers.try_emplace({from, depth[i]}, i).first->second);
      }
    }
    struct Kernel {
      Move move{.linear = true};
      int layer = -1, operands = 0;
      bool pointwise = true;  // in whole results of products
    };
    std::map<size_t, Kernel> kernels;
    std::set<std::pair<size_t, Value>> read;
    std::set<Value> written;
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      const bool member = elementwise(id);
      if (!member && !is_product(id)) continue;
      const size_t of = kernel_of(at(id));
      int operands = 0;
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const Value from = base(n.inputs[k]), seen = part(n.inputs[k]);
        if (!live[at(from.node)]) continue;
        if (member) kernels[of].move.linear &= k < 32 && n.op->linear >> k & 1 && (++operands == 1 || n.op->jointly);
        if (member && elementwise(from.node) && kernel_of(at(from.node)) == of) continue;
        if (member && read.insert({of, seen}).second) {
          kernels[of].move.read += elements(seen);
          kernels[of].pointwise &= seen == from && is_product(from.node) && ++kernels[of].operands == 1;
        }
        if (elementwise(from.node) && written.insert(from).second)
          kernels[kernel_of(at(from.node))].move.written += elements(from);
      }
      if (!member) continue;
      kernels[of].layer = std::max(kernels[of].layer, layer[at(id)]);
      kernels[of].pointwise &= n.op->is(kPointwise);
    }
    // A product adds its bias itself.
    for (const auto& [first, k] : kernels)
      if (k.layer >= 0 && k.move.read > 0 && !(k.pointwise && k.move.linear))
        shape_.blocks[at(k.layer)].moves.push_back(k.move);
  }

  const Graph& g_;
  const int64_t tokens_;
  ModelShape& shape_;
  std::vector<Flow> flows_;                  // index: node
  std::vector<char> chooses_;                // index: node
  std::map<int32_t, int> layer_of_product_;  // key: node
  std::string layer_;                        // layer of the last product
  std::vector<Value> sources_;               // product of this layer -> the value that it reads
};

}  // namespace

std::string layer_of(const std::string& path) {
  static constexpr std::string_view kBlocks = "blocks.";
  return path.starts_with(kBlocks) ? path.substr(0, path.find('.', kBlocks.size()) + 1) : std::string();
}

ModelShape captured_shape(const nn::Module& model, const std::function<Tensor(const Tensor&)>& logits, int64_t context,
                          const std::vector<int64_t>& layers) {
  model.to(Device::meta());
  model.eval();
  ModelShape s{.context = context, .tied = true};
  std::string layer;
  std::vector<int64_t> parameters;
  std::vector<std::set<int64_t>> biases;  // lengths of the biases of each layer
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Shape& shape = parameter.type().shape;
    if (const std::string of = layer_of(name); !of.empty()) {
      if (of != layer) layer = of, parameters.push_back(0), biases.emplace_back();
      parameters.back() += shape.numel();
      if (name.ends_with("bias")) biases.back().insert(shape.numel());
    } else if (name == "tok.weight") {
      s.vocab = shape[0];
      s.dim = shape[1];
    } else if (name == "head.weight") {
      s.tied = false;
    } else {
      s.outer += shape.numel();
      if (shape.size() == 2) s.positions = shape[0];
    }
  }
  // Counts are products of sizes in 64 bits.
  double all = static_cast<double>(s.vocab) * static_cast<double>(s.dim) * 2 + static_cast<double>(s.outer);
  for (size_t i = 0; i < std::min(layers.size(), parameters.size()); ++i)
    all += static_cast<double>(layers[i]) * static_cast<double>(parameters[i]);
  constexpr double kMost = 1e15;
  WEFT_CHECK(all <= kMost, "the sizes give about ", all, " parameters; need at most ", kMost);
  const NoGrad guard;
  const int64_t count = std::min(context, kTokens);
  const TensorType tokens{kInt64, Device::meta(), {1, count}};
  const Ref<Graph> g =
      capture_graph([&](std::span<const Tensor> in) { return std::vector{logits(in[0])}; }, {&tokens, 1});
  Reader(*g, count, s).run();
  WEFT_CHECK(s.blocks.size() == parameters.size() && layers.size() == parameters.size(), "a model with ",
             parameters.size(), " layers has products in ", s.blocks.size(), "; need products in each layer");
  WEFT_CHECK(s.heads > 0 && s.kv_heads > 0, "a model without attention; the planner prices layers with attention only");
  std::vector<Block> kinds;
  for (size_t i = 0; i < layers.size(); ++i) {
    s.blocks[i].layers = layers[i];
    s.blocks[i].parameters = parameters[i];
    for (Product& p : s.blocks[i].products) p.bias = p.kv > 0 && biases[i].contains(p.out);
    if (layers[i] > 0) kinds.push_back(std::move(s.blocks[i]));
  }
  s.blocks = std::move(kinds);
  return s;
}

}  // namespace weft::planner
