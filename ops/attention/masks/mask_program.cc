#include "ops/attention/masks/mask_program.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "framework/base/hash.h"
#include "framework/ir/op_def.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/index.h"

namespace weft::internal {

using kernels::Pw;

int64_t MaskInstr::integer() const {
  return with_integer(dtype, [&]<class T>(T v) {
    std::memcpy(&v, value, sizeof v);
    return static_cast<int64_t>(v);
  });
}

/// Turns the nodes of a traced mask into instructions. A node is a single value, or a view into a captured tensor after
/// indices have selected some dims.
class MaskLowering {
 public:
  MaskLowering(MaskProgram& out, const Body& body) : out_(out), g_(*body.graph), lifted_(body.lifted) {}

  void run() {
    for (int32_t id = 0; id < g_.size(); ++id) values_.push_back(lower(id));
    const int32_t result = scalar(g_.outputs[0].node, g_.node(g_.outputs[0]));
    prune(result);
  }

 private:
  struct LoweredValue {
    int32_t instr = -1;  // a single value, with any number of dims of extent 1
    int32_t table = -1;  // otherwise: the unselected part of a table
    Shape shape, strides;
    int64_t offset = 0;
    SmallVec<int32_t, 3> args;
    SmallVec<int64_t, 3> extents, chosen_strides;
  };

  LoweredValue lower(int32_t id) {
    const Node& n = g_.node(id);
    if (is_argument(n)) return input(id);
    if (n.op == &constant_op) return of(constant(n));
    if (n.op->placing == Placing::kReshape) return reshaped(n);
    if (n.op == &index_select_op) return selected(n);
    if (n.op == &cast_op) return of(cast_to(arg(n, 0), n.outputs[0].dtype, n.line));
    WEFT_CHECK_AS(kUnimplemented, n.op->is(kPointwise) && n.op->scalar >= 0, "mask_mod: uses ", n.op->name, at(n),
                  "; need arithmetic and comparisons on single values and table[index]");
    SmallVec<int32_t, 3> args;
    for (size_t i = 0; i < n.inputs.size(); ++i) args.push_back(arg(n, i));
    return of(pointwise(static_cast<Pw>(n.op->scalar), args, n.outputs[0].dtype, n.line));
  }

  static std::string at(const Node& n) { return n.line.line ? str_cat(" at ", n.line.to_string()) : std::string(); }
  static LoweredValue of(int32_t instr) {
    LoweredValue r;
    r.instr = instr;
    return r;
  }

  LoweredValue input(int32_t id) {
    size_t i = 0;
    while (g_.inputs[i].node != id) ++i;
    if (i < 4) {
      MaskInstr in;
      in.kind = MaskInstr::kIndex;
      in.dtype = kInt64;
      in.index = static_cast<int32_t>(i);
      in.deps = static_cast<uint8_t>(1 << i);
      return of(add(std::move(in)));
    }
    const Tensor& t = lifted_[i - 4];
    WEFT_CHECK_AS(
        kUnimplemented, t.defined() && !t.is_traced(), "create_block_mask: the mask reads a tensor ", t.type(),
        " that is itself being captured; need tensors with values: create the block mask outside of compile, or "
        "pass the tensor's values in");
    WEFT_CHECK(t.dtype() < kFloat8E4M3, "mask_mod: reads a table of ", t.dtype(), "; convert it with to(f32) first");
    return whole(t);
  }

  LoweredValue whole(const Tensor& t) {
    MaskTable table{t, t.view_for_kernel()};
    LoweredValue r;
    r.table = static_cast<int32_t>(out_.tables_.size());
    r.shape = table.view.shape;
    r.strides = table.view.strides;
    out_.tables_.push_back(std::move(table));
    return r;
  }

  LoweredValue reshaped(const Node& n) {
    LoweredValue r = values_[n.inputs[0].node];
    if (r.table < 0) return r;
    const Shape& to = n.outputs[0].shape;
    Shape strides;
    if (!view_strides(r.shape, r.strides, to, &strides)) {
      WEFT_CHECK_AS(kUnimplemented, r.args.empty(), "mask_mod: reshapes a row of a table that is not contiguous", at(n),
                    "; make the table contiguous() first");
      const Tensor& t = out_.tables_[r.table].tensor;
      const Tensor copy = Tensor::empty({t.dtype(), t.device(), r.shape});
      kernels::cast_copy(out_.tables_[r.table].view, copy.view_for_kernel());
      r = whole(copy);
      strides = contiguous_strides(to);
    }
    r.shape = to;
    r.strides = strides;
    return r;
  }

  LoweredValue selected(const Node& n) {
    LoweredValue r = values_[n.inputs[0].node];
    WEFT_CHECK_AS(kUnimplemented, n.outputs[0].shape[static_cast<int>(n.attrs.i("dim"))] == 1,
                  "mask_mod: indexes a table with a table", at(n), "; need one index: table[i][j]");
    const int d = static_cast<int>(n.attrs.i("dim"));
    const int32_t index = arg(n, 1);
    WEFT_CHECK(r.table >= 0, "mask_mod: indexes a single value", at(n), "; need a captured table");
    r.args.push_back(index);
    r.extents.push_back(r.shape[d]);
    r.chosen_strides.push_back(r.strides[d]);
    r.shape[d] = 1;
    r.strides[d] = 1;
    return r;
  }

  // The user's line of table[i] is not recorded, because operator[] has no parameter for it: use the line of the first
  // op that uses the element.
  int32_t arg(const Node& n, size_t i) { return scalar(n.inputs[i].node, n); }

  /// The instruction of a node's value; reads the table if the node is the unselected part of one.
  int32_t scalar(int32_t id, const Node& user) {
    const LoweredValue& v = values_[id];
    if (v.table < 0) return v.instr;
    WEFT_CHECK(v.shape.numel() == 1, "mask_mod: uses ", v.shape.numel(), " values of a table of shape ",
               out_.tables_[v.table].view.shape, " at once", at(user), "; need one index for each dim");
    const StridedView& view = out_.tables_[v.table].view;
    MaskInstr in;
    in.dtype = view.dtype;
    if (v.args.empty()) {  // a captured single value
      std::memcpy(in.value, view.data, itemsize(in.dtype));
      return add(std::move(in));
    }
    in.kind = MaskInstr::kLookup;
    in.index = v.table;
    in.args = v.args;
    in.extents = v.extents;
    in.strides = v.chosen_strides;
    in.offset = v.offset;
    in.line = g_.node(id).line;
    for (int32_t a : in.args) in.deps |= out_.instrs_[a].deps;
    return add(std::move(in));
  }

  int32_t constant(const Node& n) {
    MaskInstr in;
    in.dtype = n.outputs[0].dtype;
    const StridedView to{in.value, in.dtype, {}, {}};
    if (const auto* i = std::get_if<int64_t>(n.attrs.find("value"))) {
      kernels::fill_int(to, *i);
    } else {
      kernels::fill(to, n.attrs.f("value"));
    }
    return add(std::move(in));
  }

  bool is_const(int32_t i) const { return out_.instrs_[i].kind == MaskInstr::kConst; }
  bool is_integer(int32_t i, int64_t v) const {
    const MaskInstr& in = out_.instrs_[i];
    return in.kind == MaskInstr::kConst && !is_floating(in.dtype) && in.integer() == v;
  }

  int32_t cast_to(int32_t x, DType to, SourceLine line) {
    const MaskInstr& from = out_.instrs_[x];
    if (from.dtype == to) return x;
    MaskInstr in;
    in.dtype = to;
    in.in_dtype = from.dtype;
    in.line = line;
    if (is_const(x)) {
      unsigned char held[8];
      std::memcpy(held, from.value, 8);
      kernels::cast_copy({held, from.dtype, {}, {}}, {in.value, to, {}, {}});
      return add(std::move(in));
    }
    in.kind = MaskInstr::kCast;
    in.args = {x};
    in.deps = from.deps;
    return add(std::move(in));
  }

  int32_t pointwise(Pw op, const SmallVec<int32_t, 3>& args, DType dtype, SourceLine line) {
    MaskInstr in;
    in.kind = MaskInstr::kPointwise;
    in.dtype = dtype;
    in.in_dtype = out_.instrs_[args.back()].dtype;
    if (in.in_dtype == kBool) {
      op = op == Pw::bit_and ? Pw::logical_and : op == Pw::bit_or ? Pw::logical_or : op;
      op = op == Pw::bit_xor ? Pw::logical_xor : op;
    }
    in.op = op;
    in.args = args;
    in.line = line;
    in.fn = kernels::pointwise_contiguous_fn(op, in.in_dtype);
    bool known = true;
    for (int32_t a : args) {
      in.deps |= out_.instrs_[a].deps;
      known = known && is_const(a);
    }
    if (known) {
      const void* data[3];
      for (size_t i = 0; i < args.size(); ++i) data[i] = out_.instrs_[args[i]].value;
      MaskInstr folded;
      folded.dtype = dtype;
      if (!in.fn(data, folded.value, 1, 0)) return add(std::move(folded));
    }
    const bool whole_numbers = !is_floating(in.in_dtype);
    if (args.size() == 2 && whole_numbers) {
      const bool boolean = in.in_dtype == kBool;
      for (int i = 0; i < 2; ++i) {
        const int32_t x = args[i], y = args[1 - i];
        if ((op == Pw::add || (op == Pw::sub && i == 0)) && is_integer(y, 0)) return x;
        if ((op == Pw::mul || (op == Pw::floor_divide && i == 0)) && is_integer(y, 1)) return x;
        if (boolean && op == Pw::logical_and && is_const(y)) return is_integer(y, 0) ? y : x;
        if (boolean && op == Pw::logical_or && is_const(y)) return is_integer(y, 0) ? x : y;
      }
    }
    if (op == Pw::where && is_const(args[0])) return is_integer(args[0], 0) ? args[2] : args[1];
    return add(std::move(in));
  }

  // Equal instructions are merged.
  int32_t add(MaskInstr in) {
    uint64_t h = hash_combine(
        static_cast<uint64_t>(in.kind) << 32 | static_cast<uint32_t>(in.index),
        static_cast<uint64_t>(in.op) << 16 | static_cast<uint64_t>(in.dtype) << 8 | static_cast<uint64_t>(in.in_dtype));
    for (int32_t a : in.args) h = hash_combine(h, a);
    h = hash_bytes(in.value, 8, h);
    for (auto [it, end] = seen_.equal_range(h); it != end; ++it)
      if (same(out_.instrs_[it->second], in)) return it->second;
    const int32_t id = static_cast<int32_t>(out_.instrs_.size());
    out_.instrs_.push_back(std::move(in));
    seen_.emplace(h, id);
    return id;
  }
  template <class T>
  static bool equal(const T& a, const T& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  static bool same(const MaskInstr& a, const MaskInstr& b) {
    return a.kind == b.kind && a.op == b.op && a.dtype == b.dtype && a.in_dtype == b.in_dtype && a.index == b.index &&
           a.offset == b.offset && equal(a.args, b.args) && equal(a.extents, b.extents) &&
           equal(a.strides, b.strides) && !std::memcmp(a.value, b.value, 8);
  }

  // Keeps the instructions that the result needs, in order.
  void prune(int32_t result) {
    std::vector<char> live(out_.instrs_.size());
    live[result] = 1;
    for (int32_t i = result; i >= 0; --i)
      if (live[i])
        for (int32_t a : out_.instrs_[i].args) live[a] = 1;
    std::vector<int32_t> to(out_.instrs_.size());
    std::vector<MaskInstr> kept;
    for (int32_t i = 0; i <= result; ++i) {
      if (!live[i]) continue;
      to[i] = static_cast<int32_t>(kept.size());
      kept.push_back(std::move(out_.instrs_[i]));
      for (int32_t& a : kept.back().args) a = to[a];
    }
    out_.instrs_ = std::move(kept);
    out_.output_ = to[result];
  }

  MaskProgram& out_;
  const Graph& g_;
  const std::vector<Tensor>& lifted_;
  std::vector<LoweredValue> values_;
  std::unordered_multimap<uint64_t, int32_t> seen_;
};

MaskProgram::MaskProgram(const MaskMod& mask) : MaskProgram(trace_mask(mask)) {}
MaskProgram::MaskProgram(const Body& body) { MaskLowering(*this, body).run(); }

}  // namespace weft::internal
