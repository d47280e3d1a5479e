#include "compiler/loop_ir/domain.h"

#include <algorithm>

#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"
#include "ops/core/reductions/reduce.h"

namespace weft::loop_ir {
namespace {

struct RestartLowering {};

class Finder {
 public:
  Finder(const Graph& g, const std::vector<std::vector<int64_t>>& factors, int32_t root) : g_(g), root_(root) {
    IndexMap map;
    for (size_t d = 0; d < factors.size(); ++d) {
      DimIndex dim;
      int64_t stride = 1;
      for (int64_t f : factors[d]) stride *= f;
      for (int64_t f : factors[d]) {
        stride /= f;
        dim.terms.push_back({static_cast<int>(domain_.extents.size()), stride});
        domain_.extents.push_back(f);
      }
      map.push_back(std::move(dim));
    }
    if (domain_.extents.size() > 30) throw Unfusable{"it has more than 30 axes"};
    anchors_.resize(g.size());
    set_anchor(root, map);
  }

  Domain run() {
    spread();
    for (Value v : g_.outputs) {
      if (!anchors_[v.node]) throw Unfusable{str_cat(name(v.node), " does not iterate over the same points")};
      domain_.results.push_back({pull(v.node, *anchors_[v.node]), *anchors_[v.node]});
    }
    return std::move(domain_);
  }

  SplitAxis split;

 private:
  std::string name(int32_t id) const {
    const Node& n = g_.node(id);
    std::string s = n.op->name;
    if (n.line.line) s += str_cat(" at ", n.line.to_string());
    return s;
  }

  void set_anchor(int32_t id, IndexMap map) {
    if (anchors_[id]) return;
    anchors_[id] = std::move(map);
    changed_ = true;
  }
  [[noreturn]] void restart() { throw RestartLowering{}; }
  template <class F>
  std::optional<IndexMap> through(F f) {
    split = {-1, 1};
    std::optional<IndexMap> map = f();
    if (!map && split.axis >= 0) restart();
    return map;
  }

  static bool is_reduction(const Node& n) { return n.op->is(kReduction); }
  bool same_shape(int32_t a, int32_t b) const { return g_.node(a).outputs[0].shape == g_.node(b).outputs[0].shape; }

  /// Propagates maps from the root along edges, in both directions, until no map follows from another.
  void spread() {
    do {
      changed_ = false;
      for (int32_t id = 0; id < g_.size(); ++id) visit(id);
      for (int32_t id = g_.size() - 1; id >= 0; --id) visit(id);
      if (!changed_) assume();
    } while (changed_);
  }

  void visit(int32_t id) {
    const Node& n = g_.node(id);
    if (n.inputs.empty() || is_product(n)) return;
    if (n.op->is(kPicks)) return visit_gather(id, n);
    const int32_t x = n.inputs[0].node;
    const TensorType& type = g_.node(x).outputs[0];
    if (is_index_map(n)) {
      if (anchors_[id] && !anchors_[x])
        if (auto m = through([&] { return operand_map(n, type, *anchors_[id], domain_.extents, &split); }))
          set_anchor(x, *m);
      if (anchors_[x] && !anchors_[id])
        if (auto m = through([&] { return result_map(n, type, *anchors_[x], domain_.extents, &split); }))
          set_anchor(id, *m);
      return;
    }
    if (is_reduction(n)) {
      if (!anchors_[x] || anchors_[id]) return;
      IndexMap kept;
      const Shape& dims = n.attrs.ints("dims");
      for (int d = 0; d < type.shape.size(); ++d)
        if (std::find(dims.begin(), dims.end(), d) == dims.end()) kept.push_back((*anchors_[x])[d]);
      set_anchor(id, std::move(kept));
      return;
    }
    // Elementwise: all operands that have dims use the map of the result.
    for (Value v : n.inputs) {
      const bool scalar = g_.type(v).shape.empty() && !n.outputs[0].shape.empty();
      if (scalar) {
        set_anchor(v.node, {});
      } else if (anchors_[id]) {
        set_anchor(v.node, *anchors_[id]);
      } else if (anchors_[v.node]) {
        set_anchor(id, *anchors_[v.node]);
      }
    }
  }

  /// The indices of a gather use the map of its result. The gathered operand gets no map from it.
  void visit_gather(int32_t id, const Node& n) {
    const int32_t i = n.inputs[1].node;
    if (n.op == &gather_op) {
      if (anchors_[id]) set_anchor(i, *anchors_[id]);
      if (anchors_[i]) set_anchor(id, *anchors_[i]);
    } else if (anchors_[id]) {
      set_anchor(i, {(*anchors_[id])[n.attrs.i("dim")]});
    }
  }

  /// A value that no edge connects to the root gets the root's map if it has the root's shape.
  void assume() {
    for (int32_t id = 0; id < g_.size(); ++id) {
      if (anchors_[id] || !same_shape(id, root_)) continue;
      const Node& n = g_.node(id);
      if (is_broadcast(n) && anchors_[n.inputs[0].node]) {  // back to the rows from which it was reduced
        const Shape& in = g_.type(n.inputs[0]).shape;
        const int shift = n.outputs[0].shape.size() - in.size();
        bool fits = true;
        for (int d = 0; d < in.size(); ++d)
          if (in[d] == n.outputs[0].shape[d + shift] && in[d] != 1)
            fits &= (*anchors_[n.inputs[0].node])[d] == (*anchors_[root_])[d + shift];
        if (!fits) continue;
      }
      set_anchor(id, *anchors_[root_]);
      return;
    }
  }

  int32_t add(Expr e) {
    for (int32_t a : e.args) e.axes |= domain_.exprs[a].axes;
    for (const DimIndex& d : e.map)
      for (const Term& t : d.terms) e.axes |= 1u << t.axis;
    e.axes &= ~e.reduced;
    domain_.exprs.push_back(std::move(e));
    return static_cast<int32_t>(domain_.exprs.size()) - 1;
  }

  int32_t pull(int32_t id, const IndexMap& map) {
    auto& known = pulled_[id];
    for (const auto& [m, e] : known)
      if (m == map) return e;
    const int32_t e = pull_new(id, map);
    pulled_[id].push_back({map, e});
    return e;
  }

  int32_t pull_new(int32_t id, const IndexMap& map) {
    const Node& n = g_.node(id);
    Expr e;
    e.node = id;
    if (is_argument(n)) {
      e.kind = Expr::kInput;
      e.input = static_cast<int32_t>(n.attrs.i("index"));
      e.map = map;
      for (size_t d = 0; d < map.size(); ++d) {
        if (map[d].dynamic < 0) continue;
        if (e.indexed >= 0) throw Unfusable{"an operand is gathered along two dims"};
        e.indexed = static_cast<int>(d);
        e.args.push_back(map[d].dynamic);
      }
      return add(std::move(e));
    }
    if (n.op == &constant_op) {
      e.kind = Expr::kConstant;
      return add(std::move(e));
    }
    if (n.op == &iota_op) {
      if (map[0].dynamic >= 0) throw Unfusable{"a range is gathered"};
      e.kind = Expr::kIota;
      e.map = map;
      return add(std::move(e));
    }
    if (is_product(n)) {
      if (id != root_ || !(map == *anchors_[root_])) throw Unfusable{"the product is not used where it is computed"};
      e.kind = Expr::kTile;
      e.map = map;
      return add(std::move(e));
    }
    const int32_t x = n.inputs[0].node;
    if (is_index_map(n)) {
      auto m = through([&] { return operand_map(n, g_.type(n.inputs[0]), map, domain_.extents, &split); });
      if (!m) throw Unfusable{str_cat(name(id), " is not an affine index")};
      return pull(x, *m);
    }
    if (is_reduction(n)) {
      if (!anchors_[id] || !(map == *anchors_[id]) || !anchors_[x])
        throw Unfusable{str_cat(name(id), " is needed at points other than the reduced ones")};
      e.kind = Expr::kReduction;
      for (int64_t d : n.attrs.ints("dims"))
        for (const Term& t : (*anchors_[x])[d].terms) e.reduced |= 1u << t.axis;
      check_reduced(n, *anchors_[x]);
      e.args.push_back(pull(x, *anchors_[x]));
      return add(std::move(e));
    }
    if (n.op->is(kPicks)) return pull_gather(n, id, map);
    for (Value v : n.inputs) {
      const bool scalar = g_.type(v).shape.empty() && !n.outputs[0].shape.empty();
      e.args.push_back(pull(v.node, scalar ? IndexMap{} : map));
    }
    return add(std::move(e));
  }

  /// The operand of a gather, at a computed position along {dim}.
  int32_t pull_gather(const Node& n, int32_t id, const IndexMap& map) {
    const int dim = static_cast<int>(n.attrs.i("dim"));
    IndexMap at = map;
    if (n.op == &index_select_op) at = {map[dim]};
    if (!all_positions(at, g_.type(n.inputs[1]).shape))
      throw Unfusable{
          str_cat("the kernel does not read all indices of ", name(id), ", so it cannot check their range")};
    Expr e;
    e.kind = Expr::kPosition;
    e.node = id;
    e.limit = g_.type(n.inputs[0]).shape[dim];
    e.args.push_back(pull(n.inputs[1].node, at));
    IndexMap x = map;
    x[dim] = {};
    const int32_t position = x[dim].dynamic = add(std::move(e));
    const int32_t value = pull(n.inputs[0].node, x);
    if (!depends(value, position))
      throw Unfusable{str_cat("the table of ", name(id), " has one value for all indices, so nothing checks these")};
    return value;
  }

  bool depends(int32_t expr, int32_t on) const {
    std::vector<bool> does(domain_.exprs.size());
    does[on] = true;
    for (int32_t e = on + 1; e <= expr; ++e)  // arguments come before their users
      for (int32_t a : domain_.exprs[e].args) does[e] = does[e] || does[a];
    return expr >= on && does[expr];
  }

  /// Whether the map reaches every element of a value of this shape.
  bool all_positions(const IndexMap& map, const Shape& shape) const {
    uint32_t met = 0;
    for (int d = 0; d < shape.size(); ++d) {
      if (map[d].dynamic >= 0 || map[d].offset != 0) return false;
      int64_t positions = 1;
      for (const Term& t : map[d].terms) {
        if (met >> t.axis & 1) return false;
        met |= 1u << t.axis;
        positions *= domain_.extents[t.axis];
      }
      if (positions != shape[d]) return false;
    }
    return true;
  }

  /// Checks that the reduced dims are whole axes in the order of the domain. Sums then have the eager kernel's order.
  void check_reduced(const Node& n, const IndexMap& map) {
    int last = -1;
    int64_t points = 1, elements = 1;
    for (int64_t d : n.attrs.ints("dims")) {
      elements *= g_.type(n.inputs[0]).shape[d];
      std::vector<Term> terms(map[d].terms.begin(), map[d].terms.end());
      std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.coeff > b.coeff; });
      for (const Term& t : terms) {
        if (t.axis <= last) throw Unfusable{str_cat(n.op->name, " runs through its dims in another order")};
        last = t.axis;
        points *= domain_.extents[t.axis];
      }
    }
    if (points != elements) throw Unfusable{str_cat(n.op->name, " covers part of an axis")};
  }

  const Graph& g_;
  int32_t root_;
  Domain domain_;
  std::vector<std::optional<IndexMap>> anchors_;
  std::map<int32_t, std::vector<std::pair<IndexMap, int32_t>>> pulled_;
  bool changed_ = false;
};

}  // namespace

Domain find_domain(const Graph& g) {
  int32_t root = -1, dot = -1;
  // The widest result or reduced operand defines the points. Every other value is computed where these points need it.
  double most = -1;
  auto widest = [&](Value v) {
    const double numel = static_cast<double>(g.type(v).shape.numel());
    if (numel <= most) return;
    most = numel;
    root = v.node;
  };
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.outputs.size() != 1) throw Unfusable{str_cat(n.op->name, " has several results")};
    if (n.outputs[0].shape.numel() == 0) throw Unfusable{"a value is empty"};
    if (is_product(n)) {
      if (dot >= 0) throw Unfusable{"it has two products"};
      dot = id;
    } else if (!is_argument(n) && !can_fuse(n)) {
      throw Unfusable{str_cat(n.op->name, " of ", n.outputs[0].dtype, " has no generated code")};
    }
    if (n.op->is(kReduction)) widest(n.inputs[0]);
  }
  for (Value v : g.outputs) widest(v);
  if (root < 0) throw Unfusable{"it computes nothing"};
  int columns = 0;
  if (dot >= 0) {
    for (Value v : g.node(dot).inputs)
      if (!is_argument(g.node(v))) throw Unfusable{"an operand of the product is computed in the group"};
    root = dot;
    columns = product_columns(g, g.node(dot));
  }
  const Shape& shape = g.node(root).outputs[0].shape;
  std::vector<std::vector<int64_t>> factors;
  for (int64_t n : shape) factors.push_back(n == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{n});
  for (;;) {
    Finder finder(g, factors, root);
    try {
      Domain d = finder.run();
      d.dot = dot;
      d.dot_columns = columns;
      return d;
    } catch (RestartLowering) {
      // Split the factor of this axis in two.
      int axis = finder.split.axis;
      for (auto& f : factors) {
        if (axis >= static_cast<int>(f.size())) {
          axis -= static_cast<int>(f.size());
          continue;
        }
        f[axis] /= finder.split.minor;
        f.insert(f.begin() + axis + 1, finder.split.minor);
        break;
      }
    }
  }
}

}  // namespace weft::loop_ir
