#include "distributed/strategies/strategies.h"

#include <algorithm>

#include "distributed/strategies/documents.h"
#include "ops/core/core.h"

namespace weft::dist {

ParameterPin* Strategy::find(int32_t cell) {
  for (ParameterPin& p : parameters)
    if (p.cell == cell) return &p;
  return nullptr;
}

namespace {

Axes axes_of(const Mesh& mesh, std::string_view name) {
  const Mesh::Dim* d = mesh.find(name);
  return d ? d->axes : Axes{};
}

// Whether cp can give each rank a chunk from the head and one from the tail of every sequence.
bool head_tail_fits(const Mesh& mesh, const Plan& plan, std::span<const TensorType> types) {
  const int64_t chunks = 2 * mesh.parts(axes_of(mesh, "cp"));
  return (axes_of(mesh, "tp").empty() || !plan.sequence) && std::ranges::all_of(types, [&](const TensorType& t) {
           return t.shape.size() < 2 || t.shape[1] % chunks == 0;
         });
}

}  // namespace

Axes Strategy::axes(std::string_view name) const { return axes_of(mesh, name); }

bool Strategy::uses(const ParameterPin& p, const Axes& axes) {
  for (const Axes& own : p.split)
    for (int8_t a : own)
      if (std::find(axes.begin(), axes.end(), a) != axes.end()) return true;
  return false;
}

int32_t parameter_behind(const Graph& g, Value v) {
  for (;;) {
    const Node& n = g.node(v);
    if (n.op == &cell_op) return static_cast<int32_t>(n.attrs.i("index"));
    const bool view = n.op == &reshape_op || n.op == &permute_op || n.op == &broadcast_op;
    if (n.inputs.size() != 1 || (!view && !n.op->is(kPointwise))) return -1;
    v = n.inputs[0];
  }
}

namespace {

bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= name.size(); ++at)
    if (matches(rest, name.substr(at))) return true;
  return false;
}

// Letters to change to make one of the other; * stands for any text.
size_t distance(const std::string& pattern, const std::string& name) {
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j <= name.size(); ++j) row[j] = j;
  for (const char c : pattern) {
    size_t corner = row[0];
    row[0] += c != '*';
    for (size_t j = 1; j <= name.size(); ++j) {
      const size_t above = row[j];
      row[j] =
          c == '*' ? std::min(above, row[j - 1]) : std::min({corner + (c != name[j - 1]), above + 1, row[j - 1] + 1});
      corner = above;
    }
  }
  return row.back();
}

std::string nearest(const Strategy& s, const std::string& pattern) {
  std::string out;
  size_t least = 0;
  for (const ParameterPin& p : s.parameters)
    if (const size_t d = distance(pattern.substr(0, 200), p.name); out.empty() || d < least) least = d, out = p.name;
  return out;
}

// The multiples of n around `have`.
std::string nearest(const char* what, int64_t have, int64_t n) {
  if (have < n) return str_cat("the least that does is ", n);
  return str_cat("the nearest ", what, " that do are ", have / n * n, " and ", (have / n + 1) * n);
}

}  // namespace

void pin_rules(Strategy& s) {
  struct Said {
    int32_t cell;
    Axes axes;
    std::string pattern;
  };
  std::vector<Said> said;
  for (const PlanRule& rule : s.plan.rules) {
    bool any = false;
    for (ParameterPin& p : s.parameters) {
      if (!matches(rule.pattern, p.name)) continue;
      any = true;
      for (const auto& [dim_name, placement] : rule.placements) {
        const Mesh::Dim* d = s.mesh.find(dim_name);
        std::string known;
        for (const Mesh::Dim& k : s.mesh.dims()) known += (known.empty() ? "" : ", ") + k.name;
        WEFT_CHECK(d, "plan: rule '", rule.pattern, "' names mesh dimension '", dim_name, "'; there are ", known);
        WEFT_CHECK(placement.dim >= -1 && placement.dim < p.shape.size(), "plan: rule '", rule.pattern, "' shards dim ",
                   placement.dim, " of '", p.name, "' ", p.shape, "; need a dim from 0 to ", p.shape.size() - 1);
        for (const Said& earlier : said)
          for (int8_t a : d->axes)
            WEFT_CHECK(
                earlier.cell != p.cell || std::find(earlier.axes.begin(), earlier.axes.end(), a) == earlier.axes.end(),
                "plan: rule '", rule.pattern, "' says how '", p.name, "' lies over ", dim_name, ", as rule '",
                earlier.pattern, "' does already; need one rule for it");
        said.push_back({p.cell, d->axes, rule.pattern});
        p.split_by_rule = true;
        p.why += str_cat(p.why.empty() ? "" : "; ", "rule '", rule.pattern, "'");
        if (placement.dim < 0) continue;
        WEFT_CHECK(p.shape[placement.dim] >= d->size, "plan: rule '", rule.pattern, "' shards dim ", placement.dim,
                   " of '", p.name, "' ", p.shape, " over ", dim_name, d->size, "; need an extent of at least ",
                   d->size);
        for (int8_t a : d->axes) p.split[static_cast<size_t>(placement.dim)].push_back(a);
      }
    }
    WEFT_CHECK(any, "plan: rule '", rule.pattern, "' matches no parameter; the nearest name is '",
               nearest(s, rule.pattern), "'");
  }
}

void pin_experts(Strategy& s) {
  const Axes ep = s.axes("ep");
  bool any = false;
  for (int32_t id = 0; id < s.graph.size(); ++id) {
    const Node& n = s.graph.node(id);
    if (n.backward || !n.op->is(kContraction)) continue;
    for (size_t i = 0; i < 2; ++i) {
      const int32_t cell = parameter_behind(s.graph, n.inputs[i]);
      ParameterPin* p = cell < 0 ? nullptr : s.find(cell);
      if (!p || p->shape.size() != 3) continue;
      const bool grouped = n.op == &grouped_dot_op && i == 1;
      const bool batched = n.op == &dot_op && n.attrs.ints(i == 0 ? "a_batch" : "b_batch").size() == 1;
      if (!grouped && !batched) continue;
      any = true;
      p->expert = grouped;
      if (ep.empty() || p->split_by_rule || Strategy::uses(*p, ep)) continue;
      WEFT_CHECK(p->shape[0] >= s.mesh.parts(ep), "mesh ", s.mesh.to_string(), ": ", p->shape[0], " experts ('",
                 p->name, "') over ep", s.mesh.parts(ep), "; need ep of at most ", p->shape[0]);
      p->split[0] = ep;
      p->why = "ep: experts";
    }
  }
  if (!any && !ep.empty()) s.notes.push_back("ep: the step has no experts; ep is one more data dimension");
}

namespace {

// Which positions of sequences the ranks along cp have.
Layout sequence_layout(Strategy& s, std::span<const TensorType> types) {
  const std::string& how = s.plan.cp_layout;
  if (how == "contiguous") return Layout::kBlock;
  if (how == "documents") {
    WEFT_CHECK(s.axes("tp").empty() || !s.plan.sequence,
               "plan: cp_layout documents with tp needs sequence off; use contiguous");
    s.pins.documents = find_documents(s.graph);
    if (s.pins.documents.empty()) {
      s.notes.push_back(
          "cp_layout documents: the step has no attention, or verify_numerics took it apart; sequences lie in order");
      return Layout::kBlock;
    }
    const int64_t length = s.graph.type(s.pins.documents[0]).shape.back();
    for (Value v : s.graph.inputs) {
      const Shape& shape = s.graph.type(v).shape;
      WEFT_CHECK(shape.size() < 2 || shape[1] == length, "plan: cp_layout documents with ids of ", length,
                 " positions; argument ", s.graph.type(v), " has sequences of ", shape[1], "; need as many");
    }
    return Layout::kDocuments;
  }
  return head_tail_fits(s.mesh, s.plan, types) ? Layout::kHeadTail : Layout::kBlock;
}

// The axes that a batch is split over.
Axes batch_axes(const Mesh& mesh) {
  Axes batch;
  for (const Mesh::Dim& d : mesh.dims())
    if (d.over.empty() && (d.name == "dp" || d.name == "fsdp" || d.name == "ep"))
      for (int8_t a : d.axes) batch.push_back(a);
  return batch;
}

void check_dimensions(const Mesh& mesh) {
  for (const Mesh::Dim& d : mesh.dims()) {
    static constexpr const char* kKnown[] = {"dp", "fsdp", "tp", "cp", "ep"};
    const bool known = std::any_of(std::begin(kKnown), std::end(kKnown), [&](const char* k) { return d.name == k; });
    WEFT_CHECK(d.name != "pp" || d.size == 1, "mesh ", mesh.to_string(),
               ": pipeline stages (pp) cannot be cut yet; need dp, fsdp, tp, cp or ep");
    WEFT_CHECK(known || d.size == 1, "mesh ", mesh.to_string(), ": no strategy for dimension '", d.name,
               "'; need dp, fsdp, tp, cp or ep");
  }
}

}  // namespace

void check_arguments(const Mesh& mesh, const Plan& plan, std::span<const TensorType> types) {
  check_dimensions(mesh);
  const Axes batch = batch_axes(mesh), cp = axes_of(mesh, "cp");
  const int64_t n = mesh.parts(batch), c = mesh.parts(cp);
  WEFT_CHECK(c == 1 || plan.cp_layout != "headtail" || head_tail_fits(mesh, plan, types),
             "plan: cp_layout headtail needs sequences that divide into ", 2 * c,
             " chunks, and no tp with sequence parallelism; use contiguous");
  for (const TensorType& t : types) {
    const Shape& shape = t.shape;
    WEFT_CHECK(shape.size() < 1 || shape[0] % n == 0, "mesh ", mesh.to_string(), ": a batch of ", shape[0],
               " (argument ", t, ") does not divide over ", mesh.name(batch), " (", n, " ranks); ",
               nearest("batches", shape[0], n));
    WEFT_CHECK(shape.size() < 2 || shape[1] % c == 0, "mesh ", mesh.to_string(), ": sequences of ", shape[1],
               " (argument ", t, ") do not divide over cp (", c, " ranks); ", nearest("lengths", shape[1], c));
  }
}

void pin_data_parallel(Strategy& s) {
  std::vector<TensorType> types;
  for (Value v : s.graph.inputs) types.push_back(s.graph.type(v));
  check_arguments(s.mesh, s.plan, types);
  const Axes batch = batch_axes(s.mesh), cp = s.axes("cp");
  const Layout layout = cp.empty() ? Layout::kBlock : sequence_layout(s, types);
  for (Value v : s.graph.inputs) {
    const Shape& shape = s.graph.type(v).shape;
    Spec spec = Spec::replicated(shape);
    if (shape.size() > 0 && s.mesh.parts(batch) > 1) spec.dims[0] = one_segment(shape[0], batch);
    if (shape.size() > 1 && s.mesh.parts(cp) > 1) spec.dims[1] = one_segment(shape[1], cp, layout);
    s.pins.inputs.push_back(spec);
  }
}

void pin_sharded(Strategy& s) {
  const Axes fsdp = s.axes("fsdp");
  const int stage = s.plan.zero >= 0 ? s.plan.zero : fsdp.empty() ? 0 : 3;
  if (stage == 0) return;
  Axes over = fsdp.empty() ? s.axes("dp") : fsdp;
  for (const char* more : {"ep", "cp"})
    if (const Mesh::Dim* d = s.mesh.find(more); d && d->over.empty())
      for (int8_t a : d->axes) over.push_back(a);
  if (over.empty())
    s.notes.push_back(
        str_cat("zero ", stage, ": the mesh has no dp, fsdp, cp or ep to shard over; every rank keeps what it uses"));
  for (ParameterPin& p : s.parameters) {
    Axes own, all = over;
    if (p.expert && s.plan.sequence)
      for (int8_t a : s.axes("tp")) all.push_back(a);
    for (int8_t a : all) {
      Axes one;
      one.push_back(a);
      if (!Strategy::uses(p, one)) own.push_back(a);
    }
    const int64_t n = s.mesh.parts(own);
    if (n == 1 || p.shape.numel() < n) continue;
    // The first dim that divides; else the largest, unevenly.
    int best = -1;
    for (int d = 0; d < p.shape.size() && best < 0; ++d)
      if (p.shape[d] % (n * s.mesh.parts(p.split[static_cast<size_t>(d)])) == 0) best = d;
    for (int d = 0; d < p.shape.size() && p.shape.size() > 0; ++d)
      if (best < 0 ||
          (p.shape[best] % (n * s.mesh.parts(p.split[static_cast<size_t>(best)])) != 0 && p.shape[d] > p.shape[best]))
        best = d;
    if (best < 0 || p.shape[best] < n * s.mesh.parts(p.split[static_cast<size_t>(best)])) continue;
    p.sharded = own;
    p.sharded_dim = best;
  }
}

Pins make_pins(const Mesh& mesh, const Graph& joint, const Plan& plan, std::vector<std::string>* notes) {
  check_dimensions(mesh);
  WEFT_CHECK(std::ranges::count(kCpKinds, plan.cp), "plan: cp is '", plan.cp, "'; need allgather, ring or ulysses");
  WEFT_CHECK(std::ranges::count(kCpLayouts, plan.cp_layout), "plan: cp_layout is '", plan.cp_layout,
             "'; need auto, contiguous, headtail or documents");
  WEFT_CHECK(plan.zero >= -1 && plan.zero <= 3, "plan: zero is ", plan.zero, "; need a stage from 0 to 3");
  Strategy s{mesh, joint, plan};
  s.pins.cells.resize(joint.cells.size());
  for (size_t c = 0; c < joint.cells.size(); ++c) {
    const Cell& cell = *joint.cells[c];
    if (!cell.is_parameter) continue;
    s.parameters.push_back({static_cast<int32_t>(c), cell.name, cell.type.shape,
                            std::vector<Axes>(static_cast<size_t>(cell.type.shape.size()))});
  }
  pin_rules(s);
  pin_experts(s);
  pin_tensor_parallel(s);
  pin_data_parallel(s);
  pin_sharded(s);
  const int stage = plan.zero >= 0 ? plan.zero : s.axes("fsdp").empty() ? 0 : 3;
  for (const ParameterPin& p : s.parameters) {
    Spec use = Spec::replicated(p.shape);
    for (int d = 0; d < p.shape.size(); ++d)
      if (!p.split[static_cast<size_t>(d)].empty())
        use.dims[static_cast<size_t>(d)] = one_segment(p.shape[d], p.split[static_cast<size_t>(d)]);
    Spec shards = use;
    std::string why = p.why;
    if (p.sharded_dim >= 0) {
      Axes all = p.split[static_cast<size_t>(p.sharded_dim)];
      for (int8_t a : p.sharded) all.push_back(a);
      shards.dims[static_cast<size_t>(p.sharded_dim)] = one_segment(p.shape[p.sharded_dim], all);
      why += str_cat(why.empty() ? "" : "; ", "zero-", stage, ": dim ", p.sharded_dim, " over ", mesh.name(p.sharded));
    }
    CellPin pin{.rest = stage == 3 ? shards : use,
                .use = use,
                .home = shards,
                .gather_again = stage == 3,
                .reduce_each = stage >= 2,
                .why = why};
    s.pins.cells[static_cast<size_t>(p.cell)] = pin;
  }
  int64_t uneven = 0;
  std::string first;
  for (const ParameterPin& p : s.parameters) {
    const Spec& home = s.pins.cells[static_cast<size_t>(p.cell)]->home;
    if (even(mesh, home)) continue;
    if (++uneven == 1) first = str_cat("'", p.name, "' as ", to_string(mesh, home));
  }
  if (uneven)
    s.notes.push_back(str_cat(uneven, uneven == 1 ? " parameter lies" : " parameters lie", " unevenly: ", first,
                              uneven > 1 ? ", ..." : "", "; ranks have shards of different sizes"));
  s.pins.activations = s.axes("tp");
  s.pins.sequence = plan.sequence && !s.pins.activations.empty();
  for (const ParameterPin& p : s.parameters)
    if (Strategy::uses(p, s.axes("ep"))) s.pins.experts = s.axes("ep");
  s.pins.expert_room = plan.expert_room;
  s.pins.context = s.axes("cp");
  s.pins.cp = plan.cp == "ring" ? CpKind::kRing : plan.cp == "ulysses" ? CpKind::kUlysses : CpKind::kAllGather;
  s.pins.keep_gathered = plan.keep_gathered;
  if (notes) *notes = std::move(s.notes);
  return std::move(s.pins);
}

}  // namespace weft::dist
