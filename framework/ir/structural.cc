#include <algorithm>
#include <cstring>

#include "framework/ir/op_def.h"

namespace weft {

using internal::Leaf;

// The types of these ops come from the graph (arguments, cells, captured), not from operands: verify() checks them
// there.
const OpDef input_op = {.name = "input",
                        .doc = "argument {index} of the graph",
                        .traits = kStructural,
                        .leaf = Leaf::kArgument,
                        .num_inputs = 0,
                        .flops_per_point = 0};
const OpDef cell_op = {.name = "cell",
                       .doc = "value of cell {index} when the graph starts",
                       .traits = kStructural,
                       .leaf = Leaf::kCell,
                       .num_inputs = 0,
                       .flops_per_point = 0};
const OpDef captured_op = {.name = "captured",
                           .doc = "concrete tensor {index} that the captured function closed over",
                           .traits = kStructural | kNotDifferentiable,
                           .leaf = Leaf::kCaptured,
                           .num_inputs = 0,
                           .flops_per_point = 0};

OpTable::OpTable(std::span<const OpDef* const> ops) : ops_{&input_op, &cell_op, &captured_op} {
  ops_.insert(ops_.end(), ops.begin(), ops.end());
  // Stable: of two ops with the same name, find() returns the first, hence a structural op.
  std::stable_sort(ops_.begin(), ops_.end(),
                   [](const OpDef* a, const OpDef* b) { return std::strcmp(a->name, b->name) < 0; });
}

const OpDef* OpTable::find(std::string_view name) const {
  auto it =
      std::lower_bound(ops_.begin(), ops_.end(), name, [](const OpDef* a, std::string_view b) { return a->name < b; });
  return it != ops_.end() && name == (*it)->name ? *it : nullptr;
}

Types infer_types(const OpDef& op, const Attrs& attrs, std::span<const TensorType> in) {
  Types types = op.infer({op, attrs, in});
  for (const TensorType& t : types) checked_numel(t.shape, op.name);
  return types;
}

void check_device(const OpDef& op, size_t i, Device of_i, size_t j, Device of_j) {
  WEFT_CHECK(of_i == of_j, op.name, ": operand ", i, " is on ", of_i, " and operand ", j, " on ", of_j,
             "; need one device: move with to(device)");
}

Device pointwise_device(const OpDef& op, std::span<const TensorType> in) {
  size_t chosen = 0;
  auto is_scalar = [](const TensorType& t) { return t.shape.empty() && t.device.type == DeviceType::kCpu; };
  for (size_t i = 1; i < in.size(); ++i) {
    const TensorType &a = in[chosen], &b = in[i];
    if (b.device == a.device) continue;
    const bool host = !b.device.is_accelerator() && !a.device.is_accelerator();
    if (host && is_scalar(b)) continue;
    if (!host || !is_scalar(a)) check_device(op, i, b.device, chosen, a.device);
    chosen = i;
  }
  return in[chosen].device;
}

Cost& Cost::operator+=(const Cost& other) {
  if (other.products > 0) product_dtype = other.product_dtype;
  flops += other.flops;
  bytes += other.bytes;
  written += other.written;
  working_set = std::max(working_set, other.working_set);
  products += other.products;
  at_most |= other.at_most;
  return *this;
}

// Defaults for the fields that an op's rule left out: all operations of a contraction are products, each result is
// written once, and all bytes are one working set.
static Cost completed(const OpDef& op, Cost c, std::span<const TensorType> in, std::span<const TensorType> out) {
  if (c.working_set == 0) {
    for (const TensorType& t : out) c.written += static_cast<double>(t.nbytes());
    c.written = std::min(c.written, c.bytes);
    c.working_set = c.bytes;
  }
  if (op.is(kContraction) && !in.empty()) {
    if (c.products == 0) c.products = c.flops;
    c.product_dtype = in[0].dtype;
  }
  return c;
}

Cost op_cost(const OpDef& op, const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  Cost c;
  if (op.cost) {
    c = op.cost(attrs, in, out);
  } else if (!op.is(kStructural)) {
    double points = op.dims       ? op.dims(attrs, in, out).points()
                    : out.empty() ? 0
                                  : static_cast<double>(out[0].shape.numel());
    c.flops = op.flops_per_point * points;
    for (const TensorType& t : in) c.bytes += static_cast<double>(t.nbytes());
    for (const TensorType& t : out) c.bytes += static_cast<double>(t.nbytes());
  }
  return completed(op, c, in, out);
}

Cost op_done(const OpDef& op, const WorkCall& call) {
  return op.done ? completed(op, op.done(call), call.in, call.out) : op_cost(op, call.attrs, call.in, call.out);
}

Cost op_cost(const Graph& g, const Node& n) {
  SmallVec<TensorType, 4> in;
  for (Value v : n.inputs) in.push_back(g.type(v));
  return op_cost(*n.op, n.attrs, in, n.outputs);
}

}  // namespace weft
