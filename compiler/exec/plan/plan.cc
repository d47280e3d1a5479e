#include "compiler/exec/plan/plan.h"

#include <algorithm>
#include <map>

#include "compiler/exec/plan/failing.h"
#include "compiler/exec/plan/loop_plan.h"
#include "compiler/exec/plan/padded_rows.h"
#include "compiler/exec/record/record.h"
#include "compiler/exec/run/arena.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/lower_group.h"
#include "compiler/targets/operations.h"
#include "ops/attention/record.h"
#include "ops/core/functions/loop.h"
#include "ops/core/indexing/view.h"

namespace weft::internal {
namespace {

constexpr int64_t kMaxFoldedBytes = 4096;
constexpr int64_t kMostBytes = int64_t{1} << 62;  // limit for all buffers of a plan

StridedView view_of(const BufferPlace& p) { return {nullptr, p.type.dtype, p.type.shape, p.strides}; }

/// Whether the value fills its whole buffer in row-major order.
bool is_whole(const MemoryLayout& plan, const BufferPlace& p) {
  return p.offset == 0 && p.type.nbytes() == plan.buffers[p.buffer].bytes && is_contiguous(p.type.shape, p.strides);
}

/// Whether a launch may write result `o` over operand buffer `b` without overwriting an operand that it still reads.
bool may_overwrite(const MemoryLayout& plan, const Launch& l, int32_t b, size_t o) {
  if (l.copy) return false;
  const BufferPlace& out = l.out[o];
  for (size_t i = 0; i < l.in.size(); ++i) {
    const BufferPlace& p = l.in[i];
    if (p.buffer != b) continue;
    // A value with padded rows is not whole. It fits a result with the same rows.
    const bool same_rows = p.offset == 0 && out.offset == 0 && p.type == out.type && p.strides == out.strides;
    if ((!is_whole(plan, p) && !same_rows) || p.type.dtype != out.type.dtype) return false;
    if (!l.operation->may_overwrite(static_cast<int>(i), static_cast<int>(o))) return false;
  }
  return true;
}

/// The result of the launch that is in buffer `b`.
size_t result_in(const Launch& l, int32_t b) {
  for (size_t o = 0; o < l.out.size(); ++o)
    if (l.out[o].buffer == b) return o;
  WEFT_BUG_IF(true, "plan: buffer ", b, " is no result of its launch");
}

class LayoutBuilder {
 public:
  LayoutBuilder(Ref<Graph> graph, std::span<const ArgumentLayout> arguments, Operations& operations)
      : g_(*graph), arguments_(arguments), operations_(operations) {
    plan_.graph = std::move(graph);
    plan_.cells.resize(g_.cells.size());
    cell_buffer_.assign(g_.cells.size(), -1);
    new_buffer_.assign(g_.cells.size(), -1);
    places_.resize(g_.size());
    after_.resize(g_.size());
    main_.reserve(g_.size());
    plan_.buffers.reserve(2 * g_.size());
  }

  MemoryLayout run() {
    plan_.device = device_of(g_);
    plan_.alignment = operations_.target().limits().buffer_alignment;
    find_joined();
    padded_ = padded_rows(g_, operations_.target().limits(), operations_.options());
    for (int32_t id = 0; id < g_.size(); ++id) place_node(id);
    for (const CellWrite& w : g_.writes) plan_write(w);
    for (Value v : g_.outputs) plan_output(v);
    emit();
    settle_direct_writes();
    reuse_in_place();
    count_bytes();
    return std::move(plan_);
  }

 private:
  struct CopyTask {
    BufferPlace from, to;
    int32_t node = -1;
  };
  struct Direct {
    int32_t cell, buffer, node;
    BufferPlace value;
  };

  // ---- operands of a concatenation that are computed in its result ----

  /// Finds each concat whose operands are all results of fused nodes, or of attention's derivative, that nothing else
  /// reads. Views in between are allowed. These operands are computed in the memory of the concat's result.
  void find_joined() {
    std::map<Value, int32_t> uses;
    for (int32_t id = 0; id < g_.size(); ++id)
      for (Value v : g_.node(id).inputs) ++uses[v];
    for (Value v : g_.outputs) ++uses[v];
    for (const CellWrite& w : g_.writes) ++uses[w.value];
    for (int32_t id = 0; id < g_.size(); ++id) {
      const Node& n = g_.node(id);
      if (n.op != &concat_op) continue;
      std::vector<std::pair<Value, BufferPlace>> parts;
      int64_t at = 0;
      const int dim = static_cast<int>(n.attrs.i("dim"));
      const Shape strides = contiguous_strides(n.outputs[0].shape);
      for (Value v : n.inputs) {
        const TensorType& type = g_.type(v);
        BufferPlace part{-1, at * strides[dim] * itemsize(type.dtype), type, strides};
        at += type.shape[dim];
        if (const Value made = through_views(v, uses, part); made.valid()) parts.push_back({made, part});
      }
      if (parts.size() != static_cast<size_t>(n.inputs.size())) continue;
      joined_[id] = add_buffer(Home::kArena, 0, n.outputs[0].nbytes());
      for (auto& [made, part] : parts) {
        part.buffer = joined_[id];
        parts_[made] = part;
      }
    }
  }

  /// The result of such a node that v is, or is a view of; else an invalid value. `p` is the memory of v, and becomes
  /// the memory of that result.
  Value through_views(Value v, const std::map<Value, int32_t>& uses, BufferPlace& p) const {
    for (;; v = g_.node(v).inputs[0]) {
      const Node& n = g_.node(v);
      if (uses.at(v) != 1) return {};
      if (const Graph* body = loop_ir::group_of(n))
        return operations_.target().may_spread(n) && strided_result(*body, p) ? v : Value();
      // The kernel writes the gradients of q, k and v with any strides if their rows are dense.
      if (n.op == &attention_backward_op && v.index < 3 && operations_.target().may_spread(n))
        return !p.strides.empty() && p.strides.back() == 1 ? v : Value();
      if (!is_rearranged(n)) return {};
      const TensorType& in = g_.type(n.inputs[0]);
      Shape strides = in.shape;
      if (n.op->placing == Placing::kPermute) {
        const Shape& dims = n.attrs.ints("dims");
        for (int d = 0; d < dims.size(); ++d) strides[static_cast<int>(dims[d])] = p.strides[d];
      } else {
        int64_t offset = 0;
        if (!n.op->view(Attrs{{"shape", in.shape}}, view_of(p), in, &strides, &offset)) return {};
      }
      p.type = in;
      p.strides = strides;
    }
  }

  /// Whether a kernel of this body can write a strided result: it sums nothing, and rows of a product stay whole.
  static bool strided_result(const Graph& body, const BufferPlace& p) {
    if (p.type.nbytes() <= kMaxFoldedBytes || p.strides.empty() || p.strides.back() != 1) return false;
    for (int32_t id = 0; id < body.size(); ++id) {
      const Node& n = body.node(id);
      if (n.op->is(kReduction)) return false;
      if (!loop_ir::is_product(n)) continue;
      if (loop_ir::product_columns(body, n) != 1 || !(n.outputs[0].shape == p.type.shape)) return false;
    }
    return true;
  }

  int32_t add_buffer(Home home, int32_t index, int64_t bytes) {
    total_bytes_ = saturating_add(total_bytes_, bytes);
    WEFT_CHECK_AS(kResourceExhausted, total_bytes_ < kMostBytes,
                  "plan: the values of this step have more than 2^62 bytes together; need smaller tensors");
    plan_.buffers.push_back({home, index, bytes});
    return static_cast<int32_t>(plan_.buffers.size()) - 1;
  }
  MemoryBlock& buffer(const BufferPlace& p) { return plan_.buffers[p.buffer]; }
  const BufferPlace& place(Value v) const { return places_[v.node][v.index]; }

  int32_t cell_buffer(int32_t c) {
    if (cell_buffer_[c] < 0) cell_buffer_[c] = add_buffer(Home::kCell, c, g_.cells[c]->type.nbytes());
    return cell_buffer_[c];
  }
  int32_t new_buffer(int32_t c) {
    if (new_buffer_[c] < 0) new_buffer_[c] = add_buffer(Home::kCellNew, c, g_.cells[c]->type.nbytes());
    return new_buffer_[c];
  }

  void place_node(int32_t id) {
    const Node& n = g_.node(id);
    auto& own = places_[id];
    if (is_argument(n)) {
      int32_t i = static_cast<int32_t>(n.attrs.i("index"));
      const TensorType& t = n.outputs[0];
      own.push_back({add_buffer(Home::kArgument, i, t.nbytes()), 0, t, arguments_[i].strides});
    } else if (is_cell(n)) {
      int32_t c = static_cast<int32_t>(n.attrs.i("index"));
      own.push_back({cell_buffer(c), 0, n.outputs[0], contiguous_strides(n.outputs[0].shape)});
    } else if (n.op->leaf == Leaf::kCaptured) {
      int32_t i = static_cast<int32_t>(n.attrs.i("index"));
      const Tensor& t = g_.captured[i];
      const Shape strides = t.device().type == DeviceType::kMeta ? contiguous_strides(t.shape()) : t.strides();
      own.push_back({add_buffer(Home::kCaptured, i, t.type().nbytes()), 0, n.outputs[0], strides});
    } else if (auto joined = joined_.find(id); joined != joined_.end()) {
      own.push_back({joined->second, 0, n.outputs[0], contiguous_strides(n.outputs[0].shape)});
    } else if (!show(n, own)) {
      launch(id, n, own);
    }
  }

  /// Whether the node is a view op whose result can use its operand's memory; adds the result to `own`.
  bool show(const Node& n, SmallVec<BufferPlace, 1>& own) {
    if (!n.op->view) return false;
    const BufferPlace& base = place(n.inputs[0]);
    Shape strides;
    int64_t offset = 0;
    if (!n.op->view(n.attrs, view_of(base), n.outputs[0], &strides, &offset)) return false;
    own.push_back({base.buffer, base.offset + offset * itemsize(n.outputs[0].dtype), n.outputs[0], strides});
    return true;
  }

  bool foldable(const Node& n) {
    if (n.op->is(kRandom) || n.op->is(kSideEffect) || n.op->is(kCollective)) return false;
    int64_t bytes = 0;
    for (const TensorType& t : n.outputs) bytes += t.nbytes();
    if (bytes > kMaxFoldedBytes) return false;
    for (Value v : n.inputs)
      if (Home h = buffer(place(v)).home; h != Home::kFolded && h != Home::kCaptured) return false;
    return true;
  }

  void launch(int32_t id, const Node& n, SmallVec<BufferPlace, 1>& own) {
    const auto part = parts_.lower_bound({id, 0});
    const bool fold = (part == parts_.end() || part->first.node != id) && foldable(n);
    Launch l;
    l.op = n.op;
    l.node = id;
    for (Value v : n.inputs) l.in.push_back(place(v));
    for (const TensorType& t : n.outputs) {
      if (auto part = parts_.find({id, static_cast<int32_t>(own.size())}); part != parts_.end()) {
        own.push_back(part->second);
        l.out.push_back(own.back());
        continue;
      }
      if (n.op->is(kSameMemory) && buffer(l.in[0]).home == Home::kArena) {
        own.push_back(l.in[0]);
        l.out.push_back(own.back());
        continue;
      }
      const auto padded = padded_.find({id, static_cast<int32_t>(own.size())});
      const Shape strides = padded != padded_.end() ? padded->second : contiguous_strides(t.shape);
      const int64_t bytes = padded != padded_.end() ? strides[0] * t.shape[0] * itemsize(t.dtype) : t.nbytes();
      own.push_back({add_buffer(fold ? Home::kFolded : Home::kArena, 0, bytes), 0, t, strides});
      l.out.push_back(own.back());
    }
    const int64_t scratch = prepare(l);
    if (fold) {
      plan_.setup_workspace = std::max(plan_.setup_workspace, scratch);
      plan_.setup.push_back(std::move(l));
      return;
    }
    if (scratch > 0) l.workspace = add_buffer(Home::kArena, 0, scratch);
    main_.push_back(std::move(l));
  }

  /// Gives the launch its operation; returns the bytes of its workspace.
  int64_t prepare(Launch& l) {
    const Node& n = g_.node(l.node);
    SmallVec<StridedView, 4> in, out;
    uint64_t offsets = 0;
    auto add = [&](const BufferPlace& p, auto& views) {
      views.push_back(view_of(p));
      offsets |= static_cast<uint64_t>(p.offset);
    };
    for (const BufferPlace& p : l.in) add(p, in);
    for (const BufferPlace& p : l.out) add(p, out);
    WEFT_BUG_IF(!l.op->kernel && !l.op->is(kRunsBody), "plan: ", l.op->name, " has neither kernel nor view");
    try {
      l.operation = l.op == &loop_op ? prepare_loop(n.attrs, in, out, operations_)
                                     : operations_.get(*l.op, l.copy ? Attrs() : n.attrs, in, out, offsets);
    } catch (const Error& e) {
      throw Error(e.code(), e.what() + origin_text(n.line, n.scope));
    }
    return l.operation->workspace_bytes();
  }

  // ---- memory of cells and outputs ----

  void plan_write(const CellWrite& w) {
    const BufferPlace p = place(w.value);
    const TensorType& type = g_.cells[w.cell]->type;
    const MemoryBlock b = buffer(p);
    if (b.home == Home::kCell && b.index == w.cell && is_whole(plan_, p)) return;  // its own old value
    plan_.cells[w.cell].written = true;
    const BufferPlace to{new_buffer(w.cell), 0, type, contiguous_strides(type.shape)};  // may move all buffers
    if (b.home == Home::kArena && is_whole(plan_, p)) {
      bool claimed = false;
      for (const Direct& d : direct_) claimed |= d.buffer == p.buffer;
      if (!claimed) {
        direct_.push_back({w.cell, p.buffer, w.value.node, p});
        return;
      }
    }
    finals_.push_back({p, to, w.value.node});
  }

  void plan_output(Value v) {
    const Node& n = g_.node(v);
    if (is_unwritten_leaf(n)) {
      auto kind = is_argument(n) ? OutputPlace::kArgument : OutputPlace::kCaptured;
      plan_.outputs.push_back({kind, static_cast<int32_t>(n.attrs.i("index")), {}});
      return;
    }
    const BufferPlace p = place(v);
    auto same = [&](const BufferPlace& o) {
      return o.buffer == p.buffer && o.offset == p.offset && o.type == p.type && o.strides == p.strides;
    };
    for (const auto& [from, to] : copied_)
      if (same(from)) {
        plan_.outputs.push_back({OutputPlace::kBlock, 0, to});
        return;
      }
    MemoryBlock& b = buffer(p);
    bool is_direct = false;
    for (const Direct& d : direct_) is_direct |= d.buffer == p.buffer;
    if (p.type.nbytes() == b.bytes && !is_direct && (b.home == Home::kArena || b.home == Home::kOutput)) {
      if (b.home == Home::kArena) {
        b.home = Home::kOutput;
        b.index = new_block(b.bytes);
      }
      plan_.outputs.push_back({OutputPlace::kBlock, 0, p});
      return;
    }
    const int32_t block = new_block(p.type.nbytes());
    const BufferPlace to{add_buffer(Home::kOutput, block, p.type.nbytes()), 0, p.type,
                         contiguous_strides(p.type.shape)};
    const Home home = plan_.buffers[p.buffer].home;
    if (home == Home::kArena || home == Home::kOutput) {
      after_[producer(p.buffer)].push_back({p, to, v.node});
    } else {
      before_.push_back({p, to, v.node});  // before any cell is written
    }
    copied_.push_back({p, to});
    plan_.outputs.push_back({OutputPlace::kBlock, 0, to});
  }

  int32_t new_block(int64_t bytes) {
    plan_.output_blocks.push_back(bytes);
    return static_cast<int32_t>(plan_.output_blocks.size()) - 1;
  }

  /// The last node that writes buffer `b`.
  int32_t producer(int32_t b) const {
    int32_t node = -1;
    for (const Launch& l : main_)
      for (const BufferPlace& p : l.out)
        if (p.buffer == b) node = l.node;
    WEFT_BUG_IF(node < 0, "plan: buffer ", b, " has no producer");
    return node;
  }

  void copy(const CopyTask& t) {
    Launch l;
    l.op = &loop_ir::copy_op;
    l.node = t.node;
    l.copy = true;
    l.in.push_back(t.from);
    l.out.push_back(t.to);
    const int64_t scratch = prepare(l);
    if (scratch > 0) l.workspace = add_buffer(Home::kArena, 0, scratch);
    plan_.launches.push_back(std::move(l));
  }

  /// Puts the launches in order: copies of outputs that exist at the start, the graph, then copies to cells.
  void emit() {
    plan_.launches.reserve(main_.size() + before_.size() + 2 * finals_.size() + direct_.size());
    for (const CopyTask& t : before_) copy(t);
    for (Launch& l : main_) {
      const int32_t node = l.node;
      plan_.launches.push_back(std::move(l));
      for (const CopyTask& t : after_[node]) copy(t);
    }
    // A cell may get the old value of another cell that is written too (a swap). Copy all such values first.
    for (CopyTask& t : finals_) {
      const MemoryBlock& b = buffer(t.from);
      if (b.home != Home::kCell || !plan_.cells[b.index].written) continue;
      const int64_t bytes = t.from.type.nbytes();
      const BufferPlace aside{add_buffer(Home::kArena, 0, bytes), 0, t.from.type,
                              contiguous_strides(t.from.type.shape)};
      copy({t.from, aside, t.node});
      t.from = aside;
    }
    scan_uses(plan_);
  }

  // ---- buffers that several values use in turn ----

  /// The last launch that can throw while the host waits for it; -1: none.
  int32_t last_failing() const {
    int32_t last = -1;
    if (!operations_.target().limits().synchronous) return last;
    const std::vector<bool> failing = failing_nodes(g_);
    for (size_t t = 0; t < plan_.launches.size(); ++t)
      if (const Launch& l = plan_.launches[t]; !l.copy && failing[l.node]) last = static_cast<int32_t>(t);
    return last;
  }

  /// Whether the new value is the old one with other elements in a part, such as the next tokens of a KV cache. A copy
  /// of the rest would cost more than the step, so a step that fails tears this cell.
  bool donates_slice(const Direct& d) const {
    const OpDef& op = *g_.node(d.node).op;
    return op.is(kIndexing) && op.is(kInPlace) && !op.is(kAddsAtIndex);
  }

  /// Values are computed in their cell's memory where no later launch reads the old value or can throw; else they are
  /// copied at the end.
  void settle_direct_writes() {
    std::vector<CopyTask> late;
    const int32_t failing = last_failing();
    for (const Direct& d : direct_) {
      const MemoryBlock& value = plan_.buffers[d.buffer];
      bool fits = value.first > failing || donates_slice(d);
      if (int32_t old = cell_buffer_[d.cell]; fits && old >= 0) {
        const int32_t last = plan_.buffers[old].last, def = value.first;
        fits = last < def || (last == def &&
                              may_overwrite(plan_, plan_.launches[def], old, result_in(plan_.launches[def], d.buffer)));
      }
      if (fits) {
        MemoryBlock& b = plan_.buffers[d.buffer];
        b.home = Home::kCellNew;
        b.index = d.cell;
        plan_.cells[d.cell].direct = true;
      } else {
        const TensorType& type = g_.cells[d.cell]->type;
        late.push_back({d.value, {new_buffer(d.cell), 0, type, contiguous_strides(type.shape)}, d.node});
      }
    }
    for (const CopyTask& t : finals_) copy(t);
    for (const CopyTask& t : late) copy(t);
    scan_uses(plan_);
  }

  void reuse_in_place() {
    std::vector<bool> kept(plan_.buffers.size());  // for an argument
    for (size_t a = 0; a < arguments_.size(); ++a)
      if (const int32_t r = arguments_[a].result;
          r >= 0 && fits_in_place(plan_, static_cast<int32_t>(a), plan_.outputs[r]))
        kept[plan_.outputs[r].place.buffer] = true;
    std::vector<int32_t> moved(plan_.buffers.size());
    for (size_t i = 0; i < moved.size(); ++i) moved[i] = static_cast<int32_t>(i);
    auto follow = [&](int32_t b) {
      while (moved[b] != b) b = moved[b] = moved[moved[b]];
      return b;
    };
    for (int32_t t = 0; t < static_cast<int32_t>(plan_.launches.size()); ++t) {
      Launch& l = plan_.launches[t];
      for (BufferPlace& p : l.in) p.buffer = follow(p.buffer);
      for (BufferPlace& p : l.out) p.buffer = follow(p.buffer);
      for (size_t k = 0; k < l.out.size(); ++k) {
        const int32_t o = l.out[k].buffer;
        MemoryBlock& out = plan_.buffers[o];
        if (out.first != t || (out.home != Home::kArena && out.home != Home::kOutput) || out.bytes == 0 || kept[o])
          continue;
        for (const BufferPlace& p : l.in) {
          MemoryBlock& x = plan_.buffers[p.buffer];
          if (x.home != Home::kArena || x.last != t || x.first == t || x.bytes != out.bytes) continue;
          if (!may_overwrite(plan_, l, p.buffer, k)) continue;
          // Move the operand to the result's buffer, which may be an output block.
          const int32_t from = p.buffer;
          out.first = x.first;
          x.bytes = 0;
          x.first = x.last = -1;
          moved[from] = o;
          for (BufferPlace& q : l.in)
            if (q.buffer == from) q.buffer = o;  // so that no other result takes it
          break;
        }
      }
    }
    for (Launch& l : plan_.launches) {
      for (BufferPlace& p : l.in) p.buffer = follow(p.buffer);
      for (BufferPlace& p : l.out) p.buffer = follow(p.buffer);
    }
    for (OutputPlace& o : plan_.outputs)
      if (o.kind == OutputPlace::kBlock) o.place.buffer = follow(o.place.buffer);
  }

  void count_bytes() {
    for (MemoryBlock& x : plan_.buffers) {
      if (x.home != Home::kFolded) continue;
      x.offset = plan_.folded_bytes;
      plan_.folded_bytes += aligned(x.bytes, plan_.alignment);
    }
    plan_.live_bytes = plan_.arena_bytes = bytes_live(plan_);

    for (int32_t t = 0; t < static_cast<int32_t>(plan_.launches.size()); ++t) {
      for (const BufferPlace& p : plan_.launches[t].in)
        if (buffer(p).home == Home::kCell) plan_.cells[buffer(p).index].read = plan_.cells[buffer(p).index].used = true;
      for (const BufferPlace& p : plan_.launches[t].out)
        if (buffer(p).home == Home::kCellNew) {
          CellUse& c = plan_.cells[buffer(p).index];
          c.used = true;
          if (c.first_write < 0) c.first_write = t;
        }
    }
    plan_.fixed_bytes = plan_.folded_bytes;
    for (size_t c = 0; c < plan_.cells.size(); ++c)
      if (plan_.cells[c].used) plan_.fixed_bytes += accounted(g_.cells[c]->type.nbytes());
    for (int64_t bytes : plan_.output_blocks) plan_.fixed_bytes += accounted(bytes);
  }

  const Graph& g_;
  std::span<const ArgumentLayout> arguments_;
  Operations& operations_;
  MemoryLayout plan_;
  int64_t total_bytes_ = 0;                       // sum of all buffers, which fits 64 bits
  std::vector<SmallVec<BufferPlace, 1>> places_;  // places of each node's results
  std::vector<Launch> main_;
  std::vector<CopyTask> before_, finals_;
  std::vector<std::vector<CopyTask>> after_;  // node -> output copies of views of its result
  std::vector<std::pair<BufferPlace, BufferPlace>> copied_;
  std::vector<Direct> direct_;
  std::vector<int32_t> cell_buffer_, new_buffer_;
  std::map<int32_t, int32_t> joined_;   // concat -> its buffer
  std::map<Value, BufferPlace> parts_;  // result of a node -> its place in the result of a concat
  std::map<Value, Shape> padded_;       // strides of results in the arena whose rows are padded
};

}  // namespace

Device device_of(const Graph& g) {
  const Node* accelerated = nullptr;
  const Node* other = nullptr;
  for (int32_t id = 0; id < g.size(); ++id)
    for (const TensorType& t : g.node(id).outputs) {
      const Node*& first = t.device.is_accelerator() ? accelerated : other;
      if (!first) first = &g.node(id);
      if (accelerated && t.device.is_accelerator() && !(t.device == accelerated->outputs[0].device))
        other = &g.node(id);
    }
  if (!accelerated) return other ? other->outputs[0].device : Device();
  auto named = [](const Node& n) { return n.line.line ? str_cat(n.op->name, " at ", n.line) : str_cat(n.op->name); };
  WEFT_CHECK(!other, "compile: ", named(*accelerated), " is on ", accelerated->outputs[0].device, " and ",
             named(*other), " on ", other->outputs[0].device, "; need a step on one device: move with to(device)");
  return accelerated->outputs[0].device;
}

bool fits_in_place(const MemoryLayout& plan, int32_t argument, const OutputPlace& result) {
  if (result.kind != OutputPlace::kBlock || !is_whole(plan, result.place)) return false;
  const MemoryBlock& out = plan.buffers[result.place.buffer];
  if (out.home != Home::kOutput || out.first < 0) return false;
  const Launch& l = plan.launches[out.first];
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    const MemoryBlock& x = plan.buffers[b];
    if (x.home != Home::kArgument || x.index != argument || x.last < out.first) continue;
    if (x.last > out.first) return false;
    if (!may_overwrite(plan, l, static_cast<int32_t>(b), result_in(l, result.place.buffer))) return false;
  }
  return true;
}

MemoryLayout draft_plan(Ref<Graph> graph, std::span<const ArgumentLayout> arguments, Operations& operations) {
  MemoryLayout plan = LayoutBuilder(std::move(graph), arguments, operations).run();
  const std::vector<Phase> phases = phases_of(*plan.graph);
  for (Launch& l : plan.launches) l.phase = to_string(phases[static_cast<size_t>(l.node)]);
  return plan;
}

}  // namespace weft::internal
