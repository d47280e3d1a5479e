// Context parallelism (cp): each rank gets a part of the sequence, dim 1 of the arguments. Attention then gathers keys
// and values, passes them around a ring, or exchanges heads for sequence.
#include "ops/attention/context_parallel.h"

#include <algorithm>

#include "distributed/propagate/local_op.h"
#include "distributed/strategies/documents.h"
#include "distributed/strategies/strategy.h"
#include "ops/attention/record.h"
#include "ops/attention/sequence_layout.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

// ---- lowerings of attention; allgather needs none, since the rule of attention keeps keys whole ----

// Whether the queries of an attention are split over the axes of cp only.
bool shares_sequence(const SplitNode& n, const Axes& cp) {
  if (!n.node.op->is(kAttention)) return false;
  const DimSpec& queries = n.split[factor(n.rule, "s")];
  return axes_of(queries) == cp && queries.size() == 1;
}

// Keys and values are passed around a ring (Liu et al. 2023).
class RingAttention final : public Lowering {
 public:
  explicit RingAttention(const Axes& cp) : cp_(cp) {}

  bool claim(SplitNode& n, std::string& note) const override {
    if (!shares_sequence(n, cp_)) return false;
    const int64_t queries = n.rule.map.factors[factor(n.rule, "s")].size,
                  keys = n.rule.map.factors[factor(n.rule, "t")].size, chunks = 2 * n.mesh.parts(cp_);
    if (keys == queries && queries % chunks == 0) return true;
    note = str_cat("cp ring: attention at ", n.node.line.to_string(), " over ", keys, " keys and ", queries,
                   " queries gathers its keys; a ring needs equal numbers of both, a multiple of ", chunks);
    return false;
  }

  // Keys and values are split like queries, and so are their gradients, which then need no reduction.
  void place_operand(const SplitNode& n, size_t i, Spec& spec) const override {
    if (i == 1 || i == 2) spec.dims[2] = n.split[factor(n.rule, "s")];
  }
  void place_result(const SplitNode& n, size_t i, Spec& spec) const override {
    if (n.node.op != &attention_backward_op || i < 1 || i > 2) return;
    place_operand(n, i, spec);
    const auto end =
        std::remove_if(spec.pending.begin(), spec.pending.end(), [&](const Pending& p) { return spec.splits(p.axis); });
    spec.pending.resize(end - spec.pending.begin());
  }

  std::vector<Tensor> emit(const LocalCall& c) const override {
    Locals& locals = c.locals;
    const DimSpec& s = c.split[factor(c.rule, "s")];
    const DimSpec heads = join(locals.mesh(), {c.split[factor(c.rule, "h")], c.split[factor(c.rule, "g")]});
    const auto count = static_cast<size_t>(internal::AttentionOperands(c.node.attrs).count);
    ContextCall call{.attrs = c.node.attrs,
                     .operands = {c.in.begin(), c.in.begin() + static_cast<int64_t>(count)},
                     .b = index_map(locals, c.split[factor(c.rule, "b")]),
                     .h = index_map(locals, heads)};
    call.q_positions = call.kv_positions = positions(locals, s);
    call.group = rank_group(locals.mesh().name(cp_), locals.mesh().parts(cp_));
    if (c.node.op == &attention_op) {
      const ContextResult r = cp_ring(call);
      return {r.out, r.log_sum, r.max};
    }
    const ContextResult forward{.out = c.in[count], .log_sum = c.in[count + 1], .max = c.in[count + 2]};
    return cp_ring_backward(call, forward, c.in[count + 3], c.in[count + 4]);
  }

 private:
  // The positions of rank 0, then rank 1, ...; undefined if they are in order.
  static Tensor positions(Locals& locals, const DimSpec& dim) {
    if (dim[0].layout == SegLayout::kBlock) return {};
    if (dim[0].layout == SegLayout::kTable) return locals.positions().positions;
    std::vector<int64_t> all;
    for (int peer : locals.mesh().group(locals.rank(), dim[0].axes))
      for (int64_t i : global_indices(locals.mesh(), dim, peer)) all.push_back(i);
    const auto n = static_cast<int64_t>(all.size());
    return Tensor::from_vector(all, {n});
  }

  const Axes cp_;
};

// Heads are exchanged for sequence (Jacobs et al. 2023): a split of heads that the rule of attention allows.
class Ulysses final : public Lowering {
 public:
  explicit Ulysses(const Axes& cp) : cp_(cp) {}

  bool claim(SplitNode& n, std::string&) const override {
    if (!shares_sequence(n, cp_)) return false;
    const size_t s = factor(n.rule, "s"), h = factor(n.rule, "h");
    Axes heads = axes_of(n.split[h]);
    for (int8_t a : cp_) heads.push_back(a);
    const int64_t kv = n.rule.map.factors[h].size;
    WEFT_CHECK(kv % n.mesh.parts(heads) == 0, "cp ulysses: ", kv, " key heads (", n.node.line.to_string(), ") over ",
               n.mesh.name(heads), " (", n.mesh.parts(heads), " ranks) do not divide; need a divisor of ", kv,
               ", or cp ring or allgather");
    n.split[h] = one_segment(kv, heads);
    n.split[s] = one_segment(n.rule.map.factors[s].size);
    return false;
  }

 private:
  const Axes cp_;
};

// ---- pins ----

// Whether each rank can get a chunk from the head and one from the tail of every sequence.
bool head_tail_fits(const Mesh& mesh, const Plan& plan, std::span<const TensorType> arguments) {
  const Mesh::Dim *cp = mesh.find("cp"), *tp = mesh.find("tp");
  return (!tp || tp->size == 1 || !plan.sequence) && std::ranges::all_of(arguments, [&](const TensorType& t) {
           return t.shape.size() < 2 || t.shape[1] % (2 * cp->size) == 0;
         });
}

void check(const Mesh& mesh, const Plan& plan, std::span<const TensorType> arguments) {
  const Mesh::Dim* cp = mesh.find("cp");
  if (!cp || cp->size == 1) return;
  WEFT_CHECK(plan.cp_layout != "headtail" || head_tail_fits(mesh, plan, arguments),
             "plan: cp_layout headtail needs sequences that divide into ", 2 * cp->size,
             " chunks, and no tp with sequence parallelism; use contiguous");
  for (const TensorType& t : arguments)
    WEFT_CHECK(t.shape.size() < 2 || t.shape[1] % cp->size == 0, "mesh ", mesh.to_string(), ": sequences of ",
               t.shape[1], " (argument ", t, ") do not divide over cp (", cp->size, " ranks); ",
               nearest_multiples("lengths", t.shape[1], cp->size));
}

// The positions of sequences that each rank along cp has.
SegLayout sequence_layout(StrategyContext& s, const Axes& cp) {
  const std::string& how = s.plan.cp_layout;
  const int64_t ranks = s.mesh.parts(cp);
  if (how == "contiguous") return SegLayout::kBlock;
  if (how == "documents") {
    WEFT_CHECK(s.axes("tp").empty() || !s.plan.sequence,
               "plan: cp_layout documents with tp needs sequence off; use contiguous");
    const std::vector<Value> ids = find_documents(s.graph);
    if (ids.empty()) {
      s.notes.push_back(
          "cp_layout documents: the step has no attention, or verify_numerics took it apart; positions are in order");
      return SegLayout::kBlock;
    }
    const int64_t length = s.graph.type(ids[0]).shape.back();
    for (Value v : s.graph.inputs) {
      const Shape& shape = s.graph.type(v).shape;
      WEFT_CHECK(shape.size() < 2 || shape[1] == length, "plan: cp_layout documents with ids of ", length,
                 " positions; argument ", s.graph.type(v), " has sequences of ", shape[1], "; need equal lengths");
    }
    s.pins.positions = {ids, [ranks](std::span<const Tensor> rows) {
                          std::vector<Tensor> all;
                          for (const Tensor& t : rows) all.push_back(reshape(t.to(kInt64), {-1, t.size(-1)}));
                          return document_layout(all.size() == 1 ? all[0] : cat(all, 0), ranks);
                        }};
    return SegLayout::kTable;
  }
  std::vector<TensorType> arguments;
  for (Value v : s.graph.inputs) arguments.push_back(s.graph.type(v));
  return head_tail_fits(s.mesh, s.plan, arguments) ? SegLayout::kHeadTail : SegLayout::kBlock;
}

void annotate(StrategyContext& s) {
  const Axes cp = s.axes("cp");
  if (cp.empty()) return;
  const SegLayout layout = sequence_layout(s, cp);
  for (size_t i = 0; i < s.graph.inputs.size(); ++i) {
    const Shape& shape = s.graph.type(s.graph.inputs[i]).shape;
    if (shape.size() >= 2) s.pins.inputs[i].dims[1] = one_segment(shape[1], cp, layout);
  }
  if (s.plan.cp == "ring") s.pins.lowerings.push_back(std::make_shared<RingAttention>(cp));
  if (s.plan.cp == "ulysses") s.pins.lowerings.push_back(std::make_shared<Ulysses>(cp));
}

constexpr std::string_view kDimensions[] = {"cp"};
constexpr std::string_view kKinds[] = {"allgather", "ring", "ulysses"};
constexpr std::string_view kLayouts[] = {"auto", "contiguous", "headtail", "documents"};

std::vector<std::string> kinds(const Mesh& mesh, const Plan&) {
  if (!mesh.find("cp")) return {};
  return {std::begin(kKinds), std::end(kKinds)};
}

// Tries cp if the step has attention and fewer rows than ranks.
std::vector<int> sizes(const MeshSearch& s) {
  const Graph& g = s.graph;
  const int64_t rows = g.inputs.empty() || g.type(g.inputs[0]).shape.empty() ? 0 : g.type(g.inputs[0]).shape[0];
  bool attention = false;
  for (int32_t id = 0; id < g.size(); ++id) attention |= g.node(id).op == &attention_op;
  std::vector<int> all = powers_of_2(s, attention ? 8 : 1);
  std::erase_if(all, [&](int n) { return n > 1 && rows >= s.world / (s.inner * n / 2); });
  return all;
}

constexpr OptionRow kOptions[] = {
    {.name = "cp",
     .field = &Plan::cp,
     .allowed = kKinds,
     .help = "method of attention over sequences that cp splits: allgather, ring or ulysses",
     .tried = kinds},
    {.name = "cp_layout",
     .field = &Plan::cp_layout,
     .allowed = kLayouts,
     .help = "positions of a rank along cp: contiguous, headtail (equal work under a causal mask), documents (equal "
             "work for packed documents, whose ids the mask compares), or auto (headtail where possible, which "
             "excludes tp with sequence)"},
};

}  // namespace

const Strategy context_parallel = {.name = "context_parallel",
                                   .dimensions = kDimensions,
                                   .options = kOptions,
                                   .annotate = annotate,
                                   .check = check,
                                   .sizes = sizes,
                                   .level = 1};

}  // namespace weft::dist
