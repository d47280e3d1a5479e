#include "compiler/loop_ir/lower_group.h"

#include <algorithm>
#include <cmath>

#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/instructions.h"
#include "compiler/loop_ir/prologue.h"
#include "compiler/loop_ir/regroup.h"
#include "compiler/loop_ir/schedule.h"
#include "framework/autodiff/grad.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/products/dot_product.h"
#include "ops/core/record_parts.h"

namespace weft::loop_ir {
namespace {

using internal::number;
using kernels::Pw;
using kernels::Rd;

// A value that costs more operations than this is kept in scratch for later loops over the same row. A cheaper one is
// computed again.
constexpr double kKeepAbove = 8;

bool whole_number(double x) { return std::trunc(x) == x && std::fabs(x) < 9e15; }

Rd reduction_of(const Node& n) {
  switch (n.op->reduction) {
    case Reduction::kMax:
      return Rd::max;
    case Reduction::kMin:
      return Rd::min;
    case Reduction::kProd:
      return Rd::prod;
    case Reduction::kNone:
    case Reduction::kSum:
      break;
  }
  return Rd::sum;
}

class GroupLowering : Instructions {
 public:
  GroupLowering(const Graph& body, std::span<const ValueLayout> in, std::span<const ValueLayout> out,
                const LowerOptions& options)
      : Instructions(body, options), in_(in), out_(out), d_(find_domain(body)) {}

  Lowered run() {
    find_accesses();
    s_ = make_schedule(d_, accesses_, options_.in_order);
    low_.kernel.in_cache = options_.in_order || d_.dot >= 0;
    low_.kernel.mode = s_.mode;
    low_.kernel.axes = static_cast<int>(s_.extents.size());
    low_.extents = s_.extents;
    for (size_t a = 0; a < d_.extents.size(); ++a)
      if (s_.joined >> a & 1) low_.joined *= d_.extents[a];
    check_results();
    find_levels();
    emit_all();
    finish();
    return std::move(low_);
  }

 private:
  // ---- memory ----

  int add_access(const Shape& strides, const IndexMap& map, double weight) {
    Access a;
    a.strides.assign(d_.extents.size(), 0);
    a.weight = weight;
    for (size_t dim = 0; dim < map.size(); ++dim) {
      const int64_t stride = strides.empty() ? 1 : strides[static_cast<int>(dim)];
      a.offset += map[dim].offset * stride;
      for (const Term& t : map[dim].terms) a.strides[t.axis] += t.coeff * stride;
    }
    accesses_.push_back(std::move(a));
    return static_cast<int>(accesses_.size()) - 1;
  }

  void find_accesses() {
    access_of_.assign(d_.exprs.size(), -1);
    for (size_t i = 0; i < d_.exprs.size(); ++i) {
      const Expr& e = d_.exprs[i];
      const TensorType& type = g_.node(e.node).outputs[0];
      if (e.kind == Expr::kInput) {
        access_of_[i] = add_access(in_[e.input].strides, e.map, static_cast<double>(itemsize(type.dtype)));
        if (e.indexed >= 0) accesses_.back().index_stride = in_[e.input].strides[e.indexed];
      } else if (e.kind == Expr::kTile) {
        access_of_[i] = add_access(tile_strides(type.shape), e.map, 4);
      } else if (e.kind == Expr::kIota) {
        access_of_[i] = add_access({}, e.map, 0);
      }
    }
    for (size_t k = 0; k < d_.results.size(); ++k)
      result_access_.push_back(
          add_access(out_[k].strides, d_.results[k].map, 1.5 * static_cast<double>(itemsize(out_[k].type.dtype))));
  }

  Shape tile_strides(const Shape& shape) const {
    if (options_.tile_row == 0) return contiguous_strides(shape);
    int64_t columns = 1;
    for (int d = shape.size() - d_.dot_columns; d < shape.size(); ++d) columns *= shape[d];
    return *internal::strides_of_rows(shape, columns, options_.tile_row);
  }

  int operand(int access, DType dtype, bool output, int32_t index, bool indexed = false) {
    const Access& a = accesses_[access];
    for (size_t i = 0; i < low_.bound.size(); ++i) {
      const BoundOperand& b = low_.bound[i];
      if (b.output == output && b.index == index && b.offset == a.offset && b.strides == a.strides &&
          low_.kernel.operands[i].indexed == indexed && b.index_stride == a.index_stride)
        return static_cast<int>(i);
    }
    Operand o;
    o.dtype = dtype;
    o.output = output;
    o.indexed = indexed;
    for (int64_t s : a.strides) o.strides.push_back(s == 0 ? StrideKind::kZero : StrideKind::kAny);
    // A stride of 1 changes the text only along the lanes.
    if (a.strides.back() == 1) o.strides.back() = StrideKind::kUnit;
    // An operand that is transposed against the lanes is read several outer points at a time.
    const size_t axes = a.strides.size();
    if (!output && s_.mode == Mode::kRows && !s_.reduces && axes >= 2 && a.strides[axes - 1] > 1 &&
        a.strides[axes - 2] == 1)
      o.strides[axes - 2] = StrideKind::kUnit;
    o.name = output ? str_cat("out", index) : str_cat("in", index);
    low_.kernel.operands.push_back(std::move(o));
    low_.bound.push_back({output, index, a.offset, a.strides, a.index_stride});
    return static_cast<int>(low_.bound.size()) - 1;
  }

  /// Checks that every result has a separate element for each point that writes it.
  void check_results() {
    for (size_t k = 0; k < d_.results.size(); ++k) {
      const bool column = s_.is_column[d_.results[k].expr];
      uint32_t covered = 0, all = 0;
      for (const DimIndex& dim : d_.results[k].map)
        for (const Term& t : dim.terms) covered |= 1u << t.axis;
      for (size_t a = 0; a < d_.extents.size(); ++a) all |= 1u << a;
      const bool fits =
          column ? covered == s_.loop : covered == all || (s_.reduces && covered == (all & ~s_.loop & ~s_.joined));
      if (!fits)
        throw Unfusable{str_cat(g_.node(g_.outputs[k]).op->name, " has fewer elements than its group has points")};
    }
  }

  // ---- levels and stages ----

  void find_levels() {
    const size_t n = d_.exprs.size();
    level_.resize(n);
    stage_.assign(n, 0);
    cost_.assign(n, 0);
    for (size_t i = 0; i < n; ++i) {
      const Expr& e = d_.exprs[i];
      const bool lane = e.axes & s_.lanes, loop = e.axes & s_.loop;
      if (s_.mode == Mode::kAcross) {
        level_[i] = lane ? (loop ? Level::kBoth : Level::kLane) : (loop ? Level::kStep : Level::kPoint);
      } else {
        level_[i] = lane ? Level::kBoth : Level::kPoint;
      }
      const Node& node = g_.node(e.node);
      cost_[i] = e.kind == Expr::kCompute ? node.op->flops_per_point : 1;
      for (int32_t a : e.args) {
        stage_[i] = std::max(stage_[i], stage_[a]);
        cost_[i] = std::min(1e6, cost_[i] + (d_.exprs[a].kind == Expr::kReduction ? 0 : cost_[a]));
      }
      if (e.kind == Expr::kReduction) ++stage_[i];
      stages_ = std::max(stages_, stage_[i] + 1);
    }
  }
  bool in_loop(int32_t i) const { return level_[i] == Level::kStep || level_[i] == Level::kBoth; }

  // ---- instructions ----

  /// Emits the instructions of expression i at the end of `segment`. Its arguments must exist already.
  int make(int32_t i, std::span<const int> args, std::vector<int>& segment) {
    const Expr& e = d_.exprs[i];
    const Node& n = g_.node(e.node);
    const DType dtype = n.outputs[0].dtype;
    const std::string note = note_of(e.node);
    switch (e.kind) {
      case Expr::kInput:
      case Expr::kTile: {
        const bool tile = e.kind == Expr::kTile;
        const int slot = operand(access_of_[i], tile ? kFloat32 : dtype, false, tile ? -1 : e.input, e.indexed >= 0);
        if (tile) low_.tile = slot;
        const int v = add({.op = Op::kLoad,
                           .type = tile ? Type::f32 : type_of(dtype),
                           .level = level_[i],
                           .a = args.empty() ? -1 : args[0],
                           .slot = slot,
                           .note = note},
                          segment);
        return tile ? rounded(v, e.node, segment) : v;
      }
      case Expr::kPosition: {
        const int limit = scalar(static_cast<double>(e.limit), Type::i64, "", segment);
        const int at = converted(args[0], Type::i64, segment);
        return add({.op = Op::kCheck,
                    .type = Type::i64,
                    .level = low_.kernel.instrs[at].level,
                    .a = at,
                    .b = limit,
                    .note = note},
                   segment);
      }
      case Expr::kConstant:
        return constant(e.node, segment);
      case Expr::kIota:
        return make_iota(i, segment);
      case Expr::kReduction:
        break;
      case Expr::kCompute: {
        if (n.op == &cast_op) {
          const int v = converted(args[0], type_of(dtype), segment);
          return is_16bit(dtype) && g_.type(n.inputs[0]).dtype != dtype ? rounded(v, e.node, segment) : v;
        }
        Instr p{.op = Op::kPw, .type = type_of(dtype), .pw = static_cast<Pw>(n.op->scalar), .note = note};
        int* slots[] = {&p.a, &p.b, &p.c};
        for (size_t k = 0; k < args.size(); ++k) {
          *slots[k] = args[k];
          p.level = join(p.level, low_.kernel.instrs[args[k]].level);
        }
        return rounded(add(p, segment), e.node, segment);
      }
    }
    WEFT_BUG_IF(true, "lower_group: no instruction for ", n.op->name);
  }

  int make_iota(int32_t i, std::vector<int>& segment) {
    const Expr& e = d_.exprs[i];
    const Node& n = g_.node(e.node);
    const Access& a = accesses_[access_of_[i]];
    const double start = number(n.attrs, "start"), step = number(n.attrs, "step");
    std::vector<double> strides;
    for (int64_t s : a.strides) strides.push_back(static_cast<double>(s) * step);
    const int at = position(start + static_cast<double>(a.offset) * step, strides, note_of(e.node), segment);
    return rounded(converted(at, type_of(n.outputs[0].dtype), segment), e.node, segment);
  }

  int point(int32_t i) {
    if (done_[i] >= 0) return done_[i];
    WEFT_BUG_IF(d_.exprs[i].kind == Expr::kReduction, "lower_group: a reduction is used before it is emitted");
    SmallVec<int, 3> args;
    for (int32_t a : d_.exprs[i].args) args.push_back(point(a));
    return done_[i] = make(i, args, straight_[stage_[i]]);
  }

  /// The value of expression i in the loop of stage s.
  int need(int32_t i, int s) {
    if (!in_loop(i)) return point(i);
    if (auto at = looped_[s].find(i); at != looped_[s].end()) return at->second;
    int value = -1;
    if (cost_[i] > kKeepAbove && level_[i] == Level::kBoth &&
        type_of(g_.node(d_.exprs[i].node).outputs[0].dtype) == Type::f32) {
      for (int before = 0; before < s && value < 0; ++before)
        if (auto at = looped_[before].find(i); at != looped_[before].end()) value = kept(i, before, at->second, s);
    }
    if (value < 0) {
      SmallVec<int, 3> args;
      for (int32_t a : d_.exprs[i].args) args.push_back(need(a, s));
      value = make(i, args, loop_[s]);
    }
    looped_[s][i] = value;
    return value;
  }

  int kept(int32_t i, int from, int value, int s) {
    auto [slot, fresh] = kept_.try_emplace(i, low_.kernel.kept);
    if (fresh) {
      ++low_.kernel.kept;
      add({.op = Op::kKeep, .type = Type::f32, .level = level_[i], .a = value, .slot = slot->second}, loop_[from]);
    }
    return add({.op = Op::kKept, .type = Type::f32, .level = level_[i], .slot = slot->second}, loop_[s]);
  }

  void emit_all() {
    done_.assign(d_.exprs.size(), -1);
    straight_.resize(stages_ + 1);
    loop_.resize(stages_ + 1);
    looped_.resize(stages_ + 1);
    for (int s = 0; s < stages_; ++s) {
      for (size_t i = 0; i < d_.exprs.size(); ++i)
        if (d_.exprs[i].kind == Expr::kReduction && stage_[i] == s + 1) emit_reduction(static_cast<int32_t>(i), s);
      for (size_t k = 0; k < d_.results.size(); ++k) {
        const int32_t i = d_.results[k].expr;
        if (stage_[i] != s || s_.is_column[i] || s_.mode == Mode::kSplit) continue;
        const bool looped = varies_in_loop(static_cast<int>(k));
        const int value = in_loop(i) ? need(i, s) : point(i);
        std::vector<int>& segment = looped ? loop_[s] : straight_[s];
        const DType dtype = out_[k].type.dtype;
        const int slot = operand(result_access_[k], dtype, true, static_cast<int32_t>(k));
        const int stored = add({.op = Op::kStore,
                                .type = low_.kernel.instrs[value].type,
                                .level = store_level(static_cast<int>(k)),
                                .a = value,
                                .slot = slot,
                                .dtype = dtype},
                               segment);
        stores_.push_back({static_cast<int32_t>(k), stored});
      }
    }
  }

  bool varies_in_loop(int k) const {
    const Access& a = accesses_[result_access_[k]];
    if (s_.mode == Mode::kAcross) return a.strides[a.strides.size() - 2] != 0;
    return a.strides.back() != 0;
  }
  Level store_level(int k) const {
    const Access& a = accesses_[result_access_[k]];
    const bool lane = a.strides.back() != 0;
    if (s_.mode != Mode::kAcross) return lane ? Level::kBoth : Level::kPoint;
    const bool loop = a.strides[a.strides.size() - 2] != 0;
    return lane ? (loop ? Level::kBoth : Level::kLane) : (loop ? Level::kStep : Level::kPoint);
  }

  void emit_reduction(int32_t i, int s) {
    const Expr& e = d_.exprs[i];
    const Node& n = g_.node(e.node);
    const DType dtype = n.outputs[0].dtype;
    const Type type = type_of(dtype);
    const int x = converted(need(e.args[0], s), type, loop_[s]);
    Instr r{
        .op = Op::kReduce, .type = type, .level = level_[i], .a = x, .rd = reduction_of(n), .note = note_of(e.node)};
    int32_t output = -1;
    for (size_t k = 0; k < d_.results.size(); ++k)
      if (d_.results[k].expr == i) output = static_cast<int32_t>(k);
    if (s_.is_column[i]) {
      r.op = Op::kColumn;
      r.level = Level::kBoth;
      r.slot = low_.kernel.columns++;
      low_.columns.push_back({r.slot, output, r.rd, type});
    } else if (s_.mode == Mode::kSplit) {
      r.slot = low_.kernel.partials++;
      low_.partials.push_back({r.slot, output, r.rd, type});
    }
    const int at = add(r, loop_[s]);
    if (r.op == Op::kReduce && s_.mode != Mode::kSplit) done_[i] = rounded(at, e.node, straight_[s + 1]);
  }

  // ---- after all instructions ----

  void finish() {
    Kernel& k = low_.kernel;
    regroup_sums(&k.instrs, straight_, loop_);
    std::vector<int> now(k.instrs.size(), -1);
    std::vector<Instr> instrs;
    for (int s = 0; s <= stages_; ++s)
      for (const bool loop : {false, true}) {
        const std::vector<int>& list = loop ? loop_[s] : straight_[s];
        if (list.empty()) continue;
        KernelSegment segment{loop, {}};
        for (int i : list) {
          now[i] = static_cast<int>(instrs.size());
          segment.instrs.push_back(now[i]);
          instrs.push_back(k.instrs[i]);
        }
        k.segments.push_back(std::move(segment));
      }
    for (Instr& i : instrs)
      for (int* a : {&i.a, &i.b, &i.c})
        if (*a >= 0) *a = now[*a];
    k.instrs = std::move(instrs);
    k.params = static_cast<int>(low_.params.size());
    for (auto& [output, at] : stores_) at = now[at];
    find_overwrites();
    k.name = name();
    low_.dot = d_.dot;
    low_.flops = body_cost(g_).flops;
    for (const auto& list : {in_, out_})
      for (const ValueLayout& l : list) low_.bytes += static_cast<double>(l.type.nbytes());
    list_rounds();
  }

  /// Operands from which indices are computed. No result may overwrite them: an index out of range is reported by its
  /// value after the kernel.
  void find_in_indices() {
    in_indices_.assign(in_.size(), false);
    std::vector<bool> needed(g_.size());
    for (int32_t id = g_.size() - 1; id >= 0; --id) {
      const Node& n = g_.node(id);
      if (n.op->is(kPicks)) needed[n.inputs[1].node] = true;
      if (!needed[id]) continue;
      if (is_argument(n)) in_indices_[n.attrs.i("index")] = true;
      for (Value v : n.inputs) needed[v.node] = true;
    }
  }

  void find_overwrites() {
    const Kernel& k = low_.kernel;
    find_in_indices();
    for (const auto& [output, store] : stores_) {
      const int slot = k.instrs[store].slot;
      const BoundOperand& out = low_.bound[slot];
      for (size_t input = 0; input < in_.size(); ++input) {
        if (in_[input].type.dtype != out_[output].type.dtype || read_by_dot(static_cast<int32_t>(input)) ||
            in_indices_[input])
          continue;
        bool ok = true, read = false;
        for (size_t i = 0; i < k.instrs.size(); ++i) {
          if (k.instrs[i].op != Op::kLoad) continue;
          const BoundOperand& b = low_.bound[k.instrs[i].slot];
          if (b.output || b.index != static_cast<int32_t>(input)) continue;
          read = true;
          ok &= !k.operands[k.instrs[i].slot].indexed;
          // Instructions run in the order of their numbers. So no instruction reads an element at one point after it
          // was written there.
          ok &= b.offset == out.offset && b.strides == out.strides && static_cast<int>(i) < store &&
                k.instrs[i].level == k.instrs[store].level;
        }
        if (ok && read) low_.overwrites.push_back({static_cast<int32_t>(input), output});
      }
    }
  }

  bool read_by_dot(int32_t input) const {
    if (d_.dot < 0) return false;
    for (Value v : g_.node(d_.dot).inputs)
      if (g_.node(v).attrs.i("index") == input) return true;
    return false;
  }

  /// The most significant ops, in order.
  std::string name() const {
    std::vector<std::string> words;
    auto say = [&](const std::string& w) {
      if (words.size() < 5 && std::find(words.begin(), words.end(), w) == words.end()) words.push_back(w);
    };
    if (d_.dot >= 0) say(g_.node(d_.dot).op->name);
    for (const Expr& e : d_.exprs) {
      const Node& n = g_.node(e.node);
      if (e.kind == Expr::kReduction) say(std::string(n.op->name).substr(7));
      if (e.kind == Expr::kCompute && n.op->flops_per_point > 2) say(n.op->name);
    }
    for (const Expr& e : d_.exprs)
      if (e.kind == Expr::kCompute && g_.node(e.node).op->flops_per_point <= 2) say(g_.node(e.node).op->name);
    std::string s;
    for (const std::string& w : words) s += (s.empty() ? "" : "_") + w;
    return s.empty() ? "copy" : s;
  }

  std::span<const ValueLayout> in_, out_;
  Domain d_;
  Schedule s_;
  std::vector<Access> accesses_;
  std::vector<int> access_of_;      // index: expression
  std::vector<int> result_access_;  // index: output
  std::vector<Level> level_;
  std::vector<int> stage_;  // expression -> number of reductions below it
  std::vector<double> cost_;
  int stages_ = 1;
  std::vector<int> done_;                          // expression outside loops -> instruction
  std::vector<std::vector<int>> straight_, loop_;  // index: stage
  std::vector<std::map<int32_t, int>> looped_;     // stage -> expression -> instruction
  std::map<int32_t, int> kept_;                    // expression -> scratch row
  std::vector<std::pair<int32_t, int>> stores_;    // output, instruction
  std::vector<bool> in_indices_;                   // index: operand of the node
};

}  // namespace

bool Lowered::may_overwrite(int32_t input, int32_t output) const {
  return std::find(overwrites.begin(), overwrites.end(), std::pair{input, output}) != overwrites.end();
}

int64_t Lowered::outer_points() const {
  int64_t n = 1;
  for (int a = 0; a < kernel.outer_axes(); ++a) n *= extents[a];
  return n;
}

int64_t Lowered::scratch_floats() const {
  if (kernel.kept == 0) return 0;
  const int64_t row = kernel.mode == Mode::kAcross ? extents[extents.size() - 2] * 16 : (lanes() + 15) / 16 * 16;
  return kernel.kept * row;
}

bool is_product(const Node& n) {
  return n.op == &dot_op || (n.op == &grouped_dot_op && n.attrs.get<std::string>("mode") == "rows");
}

int product_columns(const Graph& g, const Node& n) {
  if (n.op != &dot_op) return 1;
  return g.type(n.inputs[1]).shape.size() - n.attrs.ints("b_batch").size() - n.attrs.ints("b_contract").size();
}

int64_t row_elements(const Graph& g, const Node& n) {
  const Shape& shape = n.outputs[0].shape;
  int64_t elements = 1;
  for (int d = shape.size() - product_columns(g, n); d < shape.size(); ++d) elements *= shape[d];
  return elements;
}

bool can_fuse(const Node& n) {
  const DType t = n.outputs[0].dtype;
  // Small integers wrap, and 8-bit floats are a storage format only.
  if (is_small_integer(t) || t >= kFloat8E4M3) return false;
  if (is_index_map(n)) return true;
  if (n.op == &constant_op) return whole_number(number(n.attrs, "value")) || is_floating(t);
  if (n.op == &iota_op) {
    const double start = number(n.attrs, "start"), step = number(n.attrs, "step");
    const double end = start + step * static_cast<double>(n.outputs[0].shape[0]);
    return whole_number(start) && whole_number(step) && whole_number(end);  // positions are computed in f64
  }
  if (n.op == &cast_op || n.op->is(kPicks)) return true;
  if (n.op->reduction != Reduction::kNone) return t != kBool && t != kInt32;
  if (!n.op->is(kPointwise) || n.op->scalar < 0) return false;
  const Pw pw = static_cast<Pw>(n.op->scalar);
  return is_floating(t) || t == kBool || (pw != Pw::remainder && pw != Pw::floor_divide);
}

std::string cannot_lower(const Graph& body) {
  std::vector<ValueLayout> in, out;
  try {
    if (const std::optional<DotParts> parts = take_apart(body)) {
      for (const Prologue& p : parts->operand) {
        if (!p.body) continue;
        if (std::string why = cannot_lower(*p.body); !why.empty()) return why;
        std::vector<ValueLayout> layouts;
        for (Value v : p.body->inputs) layouts.push_back({p.body->type(v), contiguous_strides(p.body->type(v).shape)});
        lower_prologue(p, layouts, {});
      }
      return cannot_lower(*parts->main);
    }
  } catch (const Unfusable& u) {
    return u.why;
  }
  for (Value v : body.inputs) in.push_back({body.type(v), contiguous_strides(body.type(v).shape)});
  for (Value v : body.outputs) out.push_back({body.type(v), contiguous_strides(body.type(v).shape)});
  return cannot_lower(body, in, out);
}

std::string cannot_lower(const Graph& body, std::span<const ValueLayout> in, std::span<const ValueLayout> out) {
  try {
    LowerOptions options;
    GroupLowering(body, in, out, options).run();
    return "";
  } catch (const Unfusable& u) {
    return u.why;
  }
}

Lowered lower_group(const Graph& body, std::span<const ValueLayout> in, std::span<const ValueLayout> out,
                    const LowerOptions& options) {
  try {
    return GroupLowering(body, in, out, options).run();
  } catch (const Unfusable& u) {
    WEFT_BUG_IF(true, "lower_group: ", u.why, "; graph:\n", body.to_string());
  }
}

}  // namespace weft::loop_ir
