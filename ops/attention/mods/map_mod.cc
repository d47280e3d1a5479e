#include "ops/attention/mods/map_mod.h"

#include <limits>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/dispatch.h"
#include "ops/attention/mods/mod.h"
#include "ops/core/core.h"

namespace weft::internal {
namespace {

/// A value of the mod: a mapped value (its 0-d value at each score), an unmodified table, or the part of a table that
/// an index has selected for each score and that has not been read yet.
struct MappedValue {
  Tensor t;
  bool mapped = false;
  int table = -1;  // input of the graph; -1: not a part of a table
  Tensor at;       // flat position of the part's first element, per score
  Shape rest;      // the part's shape
  int depth = 0;   // dims of the table that indices have selected; -1: it was reshaped
  int one = -1;    // input of the graph: a table of one number, which may be read without an index
};

class ModMapper {
 public:
  ModMapper(const Graph& g, int mapped, std::span<const Tensor> in, TableReads* reads, std::vector<IndexRead>* indices,
            const TableExtents* extents)
      : g_(g),
        mapped_(mapped),
        in_(in),
        reads_(reads),
        indices_(indices),
        extents_(extents),
        values_(static_cast<size_t>(g.size())) {
    int next = 0;
    for (Value v : g.inputs) {
      const Tensor& t = in_[static_cast<size_t>(next)];
      MappedValue& m = values_[static_cast<size_t>(v.node)];
      m.t = t;
      m.mapped = next < mapped;
      if (!m.mapped && t.numel() == 1 && has_gradient(t.dtype())) m.one = next;
      ++next;
    }
  }

  Tensor run() {
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (!is_argument(n)) values_[static_cast<size_t>(id)] = value_of(n, id);
    }
    const Tensor out = read(values_[static_cast<size_t>(g_.outputs[0].node)]);
    if (!bad_.defined() || !is_floating(out.dtype())) return out;
    return where(bad_, std::numeric_limits<double>::quiet_NaN(), out);
  }

 private:
  MappedValue& operand(const Node& n, int i) { return values_[static_cast<size_t>(n.inputs[i].node)]; }

  MappedValue value_of(const Node& n, int32_t id) {
    if (n.op == &reshape_op) {
      MappedValue m = operand(n, 0);
      if (m.table >= 0) {
        m.rest = n.outputs[0].shape;
        if (!left_of(m.table, m.depth, m.rest)) m.depth = -1;
      } else if (!m.mapped) {
        if (m.t.shape() != n.outputs[0].shape) m.depth = -1;
        m.t = reshape(m.t, n.outputs[0].shape);
      }
      return m;
    }
    if (n.op == &index_select_op) return chosen(operand(n, 0), read(operand(n, 1)), n, id);
    SmallVec<Tensor, 3> in;
    MappedValue out;
    Shape shape;
    for (int i = 0; i < static_cast<int>(n.inputs.size()); ++i) {
      MappedValue& m = operand(n, i);
      in.push_back(read(m));
      if (!m.mapped && m.table < 0) continue;
      shape = out.mapped ? broadcast_shapes(shape, in.back().shape(), n.op->name) : in.back().shape();
      out.mapped = true;
    }
    SmallVec<const Tensor*, 3> operands;
    for (Tensor& t : in) {
      if (out.mapped && t.dim() > 0) t = broadcast_to(t, shape);
      operands.push_back(&t);
    }
    out.t = dispatch(*n.op, TensorPtrs(operands), n.attrs, n.line);
    return out;
  }

  // Selects part `index` of a table, or of a part of one.
  MappedValue chosen(const MappedValue& from, const Tensor& index, const Node& n, int32_t id) {
    const Shape& shape = from.table >= 0 ? from.rest : from.t.shape();
    const int64_t rows = shape[0];
    const int table = from.table >= 0 ? from.table : input_of(from.t);
    const Tensor* extent = nullptr;
    if (extents_ && from.depth >= 0)
      if (const auto& of = (*extents_)[static_cast<size_t>(table)]; from.depth < static_cast<int>(of.size()))
        extent = &of[static_cast<size_t>(from.depth)];
    Tensor i = cast(index, kInt64);
    const Tensor outside = logical_or(lt(i, 0), extent ? ge(i, *extent) : ge(i, rows));
    if (bad_.defined()) {
      bad_ = logical_or(bad_, outside);
    } else {
      bad_ = outside;
    }
    if (indices_) indices_->push_back({table, i, rows, n.line});
    i = where(outside, int64_t{0}, i);
    MappedValue m;
    m.mapped = true;
    m.rest = n.outputs[0].shape;
    m.table = table;
    m.depth = from.depth < 0 ? -1 : from.depth + 1;
    m.at = from.table < 0 ? i : add(extent ? mul(from.at, *extent) : mul(from.at, rows), i);
    return m;
  }

  // True if `shape` is the shape after the first `depth` dims of a table.
  bool left_of(int table, int depth, const Shape& shape) const {
    const Shape& whole = in_[static_cast<size_t>(table)].shape();
    if (depth < 0 || shape.size() + static_cast<size_t>(depth) != whole.size()) return false;
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] != whole[i + static_cast<size_t>(depth)]) return false;
    return true;
  }

  int input_of(const Tensor& table) const {
    for (size_t i = 0; i < in_.size(); ++i)
      if (in_[i].impl() == table.impl()) return static_cast<int>(i);
    WEFT_CHECK(false, "score_mod: an index into a tensor computed inside it; need a tensor made outside");
    return -1;
  }

  // The value itself. The selected element of a table is read here, and only once.
  const Tensor& read(MappedValue& m) {
    if (m.one >= 0) {  // the same for all scores
      m.t = reshape(m.t, {});
      if (records(m.one)) m.t = recorded(m.one, zeros({}, {.dtype = kInt64}), m.t);
      m.one = -1;
    }
    if (m.table < 0 || m.t.defined()) return m.t;
    const Tensor& table = in_[static_cast<size_t>(m.table)];
    const Tensor v = table.numel() == 0 ? zeros(m.at.shape(), {.dtype = table.dtype()}) : element(table, m.at);
    m.t = records(m.table) && has_gradient(v.dtype()) ? recorded(m.table, m.at, v) : v;
    return m.t;
  }

  // Reads a tile by gather, which stays inside a kernel; its derivative would be as large as tile times table.
  static Tensor element(const Tensor& table, const Tensor& at) {
    if (at.dim() != 2) return reshape(index_select(reshape(table, {-1}), 0, reshape(at, {-1})), at.shape());
    return gather(broadcast_to(reshape(table, {1, -1}), {at.size(0), table.numel()}), 1, at);
  }

  bool records(int input) const { return reads_ && !in_tables(reads_->fixed, input - mapped_); }
  Tensor recorded(int table, const Tensor& at, const Tensor& v) {
    const Tensor wide = cast(v, v.dtype() == kFloat64 ? kFloat64 : kFloat32);
    const Tensor own = own_tape(reads_->spread.empty() ? wide : broadcast_to(wide, reads_->spread));
    reads_->all.push_back({table, at, own});
    return cast(own, v.dtype());
  }

  const Graph& g_;
  const int mapped_;
  std::span<const Tensor> in_;
  TableReads* reads_;
  std::vector<IndexRead>* indices_;
  const TableExtents* extents_;
  std::vector<MappedValue> values_;
  Tensor bad_;
};

}  // namespace

Tensor own_tape(const Tensor& t) {
  return (t.requires_grad_enabled() ? dispatch(barrier_op, {&t}) : t).requires_grad();
}

std::vector<Tensor> own_gradients(const Tensor& out, const std::vector<Tensor>& wrt, const Tensor& grad_output) {
  if (out.requires_grad_enabled()) return grad(out, wrt, {.grad_output = grad_output});
  std::vector<Tensor> zero;
  for (const Tensor& t : wrt) zero.push_back(full_of(t.type(), 0));
  return zero;
}

Tensor map_mod(const Graph& mod, int mapped, std::span<const Tensor> in, TableReads* reads,
               std::vector<IndexRead>* indices, const TableExtents* extents) {
  return ModMapper(mod, mapped, in, reads, indices, extents).run();
}

}  // namespace weft::internal
