// Data parallelism (dp, fsdp, replica): each rank gets a part of the batch, dim 0 of the arguments. An argument with
// another extent that does not divide over the ranks, such as weights of classes, is whole on each rank. Outside of
// experts, ep is one more data dimension. sharded_state.cc decides which part of the state each rank keeps.
#include <algorithm>
#include <map>
#include <set>

#include "distributed/placement/replica.h"
#include "distributed/strategies/strategy.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

Axes batch_axes(const Mesh& mesh) {
  Axes batch;
  for (const Mesh::Dim& d : mesh.dims())
    if (d.over.empty() && (d.name == "replica" || d.name == "dp" || d.name == "fsdp" || d.name == "ep"))
      for (int8_t a : d.axes) batch.push_back(a);
  return batch;
}

// The argument whose dim 0 is the batch: of the extents of dim 0, the one of most arguments, or of the first of equals;
// -1 if all arguments are 0-d.
int batch_argument(std::span<const TensorType> arguments) {
  int best = -1;
  int64_t most = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].shape.empty()) continue;
    const int64_t with = std::count_if(arguments.begin(), arguments.end(), [&](const TensorType& t) {
      return !t.shape.empty() && t.shape[0] == arguments[i].shape[0];
    });
    if (with > most) most = with, best = static_cast<int>(i);
  }
  return best;
}

void check(const Mesh& mesh, const Plan&, std::span<const TensorType> arguments) {
  const Axes batch = batch_axes(mesh);
  const int64_t n = mesh.parts(batch);
  const int i = batch_argument(arguments);
  if (i < 0) return;
  const TensorType& type = arguments[static_cast<size_t>(i)];
  WEFT_CHECK(type.shape[0] % n == 0, "mesh ", mesh.to_string(), ": a batch of ", type.shape[0], " (argument ", type,
             ") does not divide over ", mesh.name(batch), " (", n, " ranks); ",
             nearest_multiples("batches", type.shape[0], n));
}

// Whether dim 0 of a value has the rows of an argument.
bool has_rows_of_argument(const Graph& g, Value v) {
  std::set<Value> seen;
  std::vector<Value> todo{v};
  while (!todo.empty()) {
    const Value at = todo.back();
    todo.pop_back();
    const Node& n = g.node(at);
    const Shape& shape = g.type(at).shape;
    if (shape.empty() || !seen.insert(at).second) continue;
    if (is_argument(n)) return true;
    if (n.inputs.empty()) continue;
    const Rule rule = rule_of(g, n);
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if (const DimFactors& in = rule.map.in[i]; !in.empty() && in[0] == rule.map.out[at.index][0])
        todo.push_back(n.inputs[i]);
  }
  return false;
}

// The most parts of a batch, by rows of the batch. A step reads such a batch part by part, like the unrolled loop of
// accumulate(): it reads each entry of dim 0 of a view [parts, rows, ...] separately.
std::map<int64_t, int64_t> parts_of_batches(const Graph& g) {
  std::map<int32_t, std::set<int64_t>> entries;  // view -> the entries that are read
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.op->placing != Placing::kSlice || n.backward) continue;
    if (g.node(n.inputs[0]).op->placing != Placing::kReshape) continue;
    const Shape &all = g.type(n.inputs[0]).shape, &part = n.outputs[0].shape;
    if (all.size() < 2 || all[0] < 2 || part[0] != 1 || part[1] != all[1]) continue;
    entries[n.inputs[0].node].insert(n.attrs.ints("begin")[0]);
  }
  std::map<int64_t, int64_t> parts;
  for (const auto& [view, read] : entries) {
    const Shape& all = g.type({view, 0}).shape;
    const Value batch = g.node(view).inputs[0];
    const Shape& shape = g.type(batch).shape;
    if (static_cast<int64_t>(read.size()) != all[0] || shape.empty() || shape[0] != all[0] * all[1] ||
        !has_rows_of_argument(g, batch))
      continue;
    int64_t& most = parts[shape[0]];
    most = std::max(most, all[0]);
  }
  return parts;
}

// A rank has rows of every part. If the whole batch were split, a rank would have all rows of some parts, and all ranks
// would repeat the same work for each part.
void annotate(StrategyContext& s) {
  if (s.plan.wire == "bf16") s.pins.wire = kBFloat16;
  const Axes batch = batch_axes(s.mesh);
  if (s.mesh.parts(batch) == 1) return;
  std::map<int64_t, DimSpec> split;  // key: rows
  for (const auto& [all, parts] : parts_of_batches(s.graph)) {
    const int64_t rows = all / parts;
    Axes axes;
    for (int8_t a : batch) {
      axes.push_back(a);
      if (rows % s.mesh.parts(axes) != 0) axes.pop_back();
    }
    WEFT_CHECK(replica_axis(s.mesh) < 0 || (axes.size() > 0 && axes[0] == replica_axis(s.mesh)), "mesh ",
               s.mesh.to_string(), ": ", parts, " parts of a batch of ", all, " have ", rows,
               " rows, which do not divide over replica; ", nearest_multiples("parts", rows, replica_count(s.mesh)));
    if (axes.size() < batch.size())
      s.notes.push_back(str_cat(parts, " parts of a batch of ", all, ": ", rows, " rows do not divide over ",
                                s.mesh.name(batch), " (", s.mesh.parts(batch),
                                " ranks): ", s.mesh.parts(batch) / s.mesh.parts(axes), " ranks compute the same rows"));
    split[all] = join(s.mesh, {one_segment(parts), one_segment(rows, axes)});
  }
  for (size_t i = 0; i < s.graph.inputs.size(); ++i) {
    const Shape& shape = s.graph.type(s.graph.inputs[i]).shape;
    if (shape.empty()) continue;
    if (shape[0] % s.mesh.parts(batch) != 0) {
      s.notes.push_back(str_cat("argument ", i, ", ", s.graph.type(s.graph.inputs[i]), ", does not divide over ",
                                s.mesh.name(batch), ": each rank has all of it"));
      continue;
    }
    const auto at = split.find(shape[0]);
    s.pins.inputs[i].dims[0] = at != split.end() ? at->second : one_segment(shape[0], batch);
  }
}

std::string avoid(const Mesh&, const PlannedCollective& c) {
  if (c.subject != Subject::kGradient) return {};
  return str_cat("gradients are summed over every dimension that splits the batch: a mesh without ", c.axes,
                 " has none of it");
}

std::vector<int> sizes(const MeshSearch& s) { return {s.world / s.inner}; }  // all remaining ranks

constexpr std::string_view kDimensions[] = {"dp", "fsdp"};
constexpr std::string_view kWires[] = {"f32", "bf16"};
constexpr OptionRow kOptions[] = {
    {.name = "wire",
     .field = &Plan::wire,
     .allowed = kWires,
     .help =
         "dtype of exchanged f32 gradients: f32, or bf16 with half the bytes (terms are rounded, summed in f32, and "
         "the sum is rounded)"},
};

}  // namespace

const Strategy data_parallel = {.name = "data_parallel",
                                .dimensions = kDimensions,
                                .options = kOptions,
                                .annotate = annotate,
                                .check = check,
                                .avoid = avoid,
                                .sizes = sizes,
                                .level = 3};

}  // namespace weft::dist
