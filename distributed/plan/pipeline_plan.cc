#include "distributed/plan/pipeline_plan.h"

#include <algorithm>
#include <set>

#include "compiler/cost/keep_cost.h"
#include "compiler/cost/node_seconds.h"
#include "compiler/cost/roofline.h"
#include "compiler/passes/recompute.h"
#include "distributed/overlap/dependencies.h"
#include "distributed/overlap/network.h"
#include "distributed/pipeline/check.h"
#include "distributed/pipeline/communication.h"
#include "distributed/pipeline/schedules.h"
#include "distributed/pipeline/table_text.h"
#include "distributed/stages/recomputed.h"
#include "distributed/strategies/strategies.h"
#include "framework/base/parse_number.h"
#include "framework/base/units.h"
#include "framework/io/file.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"

namespace weft::dist {
namespace {

using pipeline::ActionKind;

pipeline::Table read_table(const std::string& path, int ranks, int64_t microbatches) {
  const std::string file = io::resolve_path(path);
  pipeline::Table table = pipeline::parse_table(io::read_file(file), file);
  WEFT_CHECK(static_cast<int>(table.ranks.size()) == ranks, "pipeline: ", file, " is for ", table.ranks.size(),
             table.ranks.size() == 1 ? " rank" : " ranks", "; need a table for the ranks of the mesh, pp", ranks);
  for (const std::vector<pipeline::Action>& rank : table.ranks)
    for (const pipeline::Action& a : rank)
      WEFT_CHECK(pipeline::computes(a.kind) || pipeline::transfers(a.kind), "pipeline: ", file, " has ", a.to_string(),
                 "; need F, I, W, B, SEND and RECV: the plan of the other mesh dimensions gathers and reduces");
  WEFT_CHECK(table.microbatches == microbatches, "pipeline: ", file, " is for ", table.microbatches,
             table.microbatches == 1 ? " microbatch" : " microbatches", "; the step has ", microbatches);
  return table;
}

std::vector<std::string> modules_of(const std::string& stages) {
  if (stages == "auto") return {};
  std::vector<std::string> modules;
  for (size_t at = 0; at < stages.size();) {
    const size_t comma = std::min(stages.find(',', at), stages.size());
    modules.push_back(stages.substr(at, comma - at));
    WEFT_CHECK(!modules.back().empty() && comma + 1 != stages.size(), "plan: stages is '", stages,
               "'; need names of modules with commas between them, as 'blocks.3,blocks.6', or auto");
    at = comma + 1;
  }
  return modules;
}

// For each stage, the most microbatches between their F and the end of their backward, in the order of the table.
std::vector<double> alive_of(const pipeline::Table& table) {
  std::vector<double> now(static_cast<size_t>(table.stages())), most(now);
  for (const std::vector<pipeline::Action>& rank : table.ranks)
    for (const pipeline::Action& a : rank) {
      const auto s = static_cast<size_t>(a.stage);
      if (a.kind == ActionKind::kForward) most[s] = std::max(most[s], ++now[s]);
      if (a.kind == ActionKind::kBackward || a.kind == ActionKind::kWeight) --now[s];
    }
  return most;
}

std::vector<pipeline::StageLink> links_of(const std::vector<Crossing>& crossings) {
  std::vector<pipeline::StageLink> links;
  for (const Crossing& c : crossings) links.push_back(c.link);
  return links;
}

// Adds the time of gathers of parameters to each action that reads them.
void add_gathers(const Mesh& mesh, const Graph& g, const PipelinePartition& p, const Machine& machine,
                 pipeline::ActionCosts& costs) {
  std::vector<std::set<std::pair<int, ActionKind>>> readers(static_cast<size_t>(g.size()));
  for (int32_t id = g.size() - 1; id >= 0; --id) {
    const StageOf& s = p.cut.nodes[id];
    std::set<std::pair<int, ActionKind>>& own = readers[id];
    if (s.region == StageOf::kStage)
      own = {{s.stage, !s.backward ? ActionKind::kForward : s.weight ? ActionKind::kWeight : ActionKind::kInput}};
    const Node& n = g.node(id);
    for (Value v : n.inputs)
      if (p.cut.nodes[v.node].region == StageOf::kOutside) readers[v.node].insert(own.begin(), own.end());
    if (s.region != StageOf::kOutside || !collective_of(n)) continue;
    const double seconds = communication_seconds(machine, mesh, g, n);
    std::set<int> backward;
    for (const auto& [stage, kind] : own) {
      costs.time(stage, kind) += seconds;
      if (kind != ActionKind::kForward && backward.insert(stage).second)
        costs.time(stage, ActionKind::kBackward) += seconds;
    }
  }
}

// Seconds to compute a forward node again. Omits the traffic of pointwise ops: most run inside the kernels that read
// their results.
double again_seconds(const Machine& machine, const Graph& g, const Node& n) {
  Cost work = op_cost(g, n);
  if (n.op->is(kPointwise) || n.op->view) work.bytes = work.written = 0;
  return roofline_seconds(machine, work, product_shape(g, n));
}

pipeline::ActionCosts costs_of(const Mesh& mesh, const Graph& g, const PipelinePartition& p, const Machine& machine,
                               const pipeline::StageLinks& links) {
  pipeline::ActionCosts costs;
  const auto stages = static_cast<size_t>(p.cut.stages);
  costs.times.resize(stages);
  costs.activation.assign(stages, 0);
  std::vector<std::set<Value>> kept(stages);  // forward values that B, I or W reads
  const Recomputed again(g, p.cut);
  for (int32_t id = 0; id < g.size(); ++id) {
    const StageOf& s = p.cut.nodes[id];
    if (s.region != StageOf::kStage) continue;
    const Node& n = g.node(id);
    const double seconds = collective_of(n) ? communication_seconds(machine, mesh, g, n)
                           : n.op->view     ? 0
                                            : p.sharing(machine) * node_seconds(machine, g, n);
    const ActionKind kind = !s.backward ? ActionKind::kForward : s.weight ? ActionKind::kWeight : ActionKind::kInput;
    costs.time(s.stage, kind) += seconds;
    if (s.backward) costs.time(s.stage, ActionKind::kBackward) += seconds;
    if (!s.backward && !again.any(id)) continue;
    if (!s.backward) {
      const double more = p.sharing(machine) * again_seconds(machine, g, n);
      if (again.input[id]) costs.time(s.stage, ActionKind::kInput) += more;
      if (again.weight[id]) costs.time(s.stage, ActionKind::kWeight) += more;
      costs.time(s.stage, ActionKind::kBackward) += more;
    }
    for (Value v : n.inputs) {
      const StageOf& own = p.cut.nodes[v.node];
      if (own.region != StageOf::kStage || own.backward || (own.stage == s.stage && again.any(v.node))) continue;
      if (kept[s.stage].insert(v).second) costs.activation[s.stage] += static_cast<double>(g.type(v).nbytes());
    }
  }
  if (!p.gather_once) add_gathers(mesh, g, p, machine, costs);
  for (const Crossing& c : p.crossings) {
    const auto link = static_cast<size_t>(links.find(c.link.from, c.link.to));
    if (costs.wire.size() <= link) costs.wire.resize(link + 1);
    costs.wire[link] =
        collective_seconds(Collective::kSend, static_cast<double>(std::max(c.forward_bytes, c.backward_bytes)), 2,
                           p.ranks > machine.links.node ? 2 : 1, machine);
  }
  return costs;
}

}  // namespace

std::vector<std::vector<bool>> recompute_policies(const Graph& g, bool budget) {
  const KeepCosts costs(g, RecomputePolicy().small);
  std::vector<RecomputeResult> all{recompute_by(g, {}, costs)};
  for (double price : kStoredBytePrices)
    if (budget)
      all.push_back(
          recompute_by(g, {.stored_byte = price, .expensive = true, .span = 1, .late_stored_byte = price}, costs));
  std::stable_sort(all.begin() + 1, all.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  std::vector<std::vector<bool>> policies;
  int64_t least = INT64_MAX;
  for (RecomputeResult& r : all) {
    if (r.kept_bytes >= least) continue;
    least = r.kept_bytes;
    r.again.resize(static_cast<size_t>(g.size()));
    policies.push_back(std::move(r.again));
  }
  return policies;
}

pipeline::Table pipeline_table(const std::string& schedule, int ranks, int64_t microbatches) {
  if (schedule.ends_with(".csv")) return read_table(schedule, ranks, microbatches);
  const size_t colon = schedule.find(':');
  pipeline::ScheduleOptions o{.ranks = ranks, .microbatches = static_cast<int>(microbatches)};
  if (colon != schedule.npos) {
    const std::optional<int> stages = parse_number<int>(std::string_view(schedule).substr(colon + 1), 1);
    WEFT_CHECK(stages, "pipeline: got '", schedule,
               "'; need the stages of a rank after the colon, as 'interleaved_1f1b:4'");
    o.stages_per_rank = *stages;
  }
  return pipeline::make_schedule(schedule.substr(0, colon), o);
}

int64_t default_microbatches(const Mesh& mesh, const Plan& plan, int64_t batch) {
  const int ranks = pipeline_ranks(mesh);
  int64_t found = 1;
  for (int64_t n = 2; ranks > 1 && n <= batch && (n <= 2 * ranks || found == 1); ++n) {
    if (batch % n != 0) continue;
    const TensorType rows{.dtype = kInt32, .shape = {batch / n}};
    try {
      check_arguments(mesh, plan, {&rows, 1});
      pipeline_table(plan.pipeline, ranks, n);
      found = n;
    } catch (const Error&) {  // another number may work
    }
  }
  return found;
}

int pipeline_ranks(const Mesh& mesh) {
  const Mesh::Dim* pp = mesh.find("pp");
  return pp ? pp->size : 1;
}

Mesh without_pipeline(const Mesh& mesh) {
  if (!mesh.find("pp")) return mesh;
  std::vector<std::pair<std::string, int>> dims;
  for (const Mesh::Dim& d : mesh.dims()) {
    if (d.name == "pp") continue;
    WEFT_CHECK(str_cat(",", d.over, ",").find(",pp,") == std::string::npos, "mesh ", mesh.to_string(), ": ", d.name,
               " is a view over pp; need a view over other dimensions: stages are different parts of the model");
    dims.emplace_back(d.over.empty() ? d.name : str_cat(d.name, "(", d.over, ")"), d.size);
  }
  return Mesh(dims);
}

void plan_pipeline(PipelinePartition& p, const Mesh& mesh, const Plan& options, const Machine& machine,
                   int64_t memory_budget, std::span<const Ref<Graph>> locals) {
  for (const Ref<Graph>& g : locals)
    WEFT_CHECK_AS(kUnimplemented, same_structure(*locals[0], *g),
                  "pp: ranks of the other mesh dimensions have graphs of different structure; need sizes that divide");
  p.gather_once = options.pipeline_gather == "once";
  p.schedule = pipeline_table(options.pipeline, p.ranks, p.microbatch.count);
  p.cutting = {.stages = p.schedule.stages(),
               .begins = modules_of(options.stages),
               .machine = machine,
               .memory = memory_budget,
               .alive = alive_of(p.schedule),
               .stages_of_rank = p.schedule.stages() / p.ranks};
  if (p.recompute.empty()) p.recompute.emplace_back(static_cast<size_t>(locals[0]->size()));
  lay_out(p, mesh, locals, 0);
}

bool lay_out(PipelinePartition& p, const Mesh& mesh, std::span<const Ref<Graph>> locals, size_t choice) {
  const Graph& g = *locals[0];
  const std::vector<bool>& recompute = p.recompute[choice / 2];
  CutOptions how = p.cutting;
  how.memory = 0;
  StageCut cut = cut_stages(g, p.microbatch.arguments, how);
  if (choice % 2 == 1) {
    how.memory = p.cutting.memory;
    how.may_recompute = recompute;
    StageCut limited = cut_stages(g, p.microbatch.arguments, how);
    if (how.memory == 0 || !limited.fits || limited.first == cut.first) return false;
    cut = std::move(limited);
  }
  for (size_t id = 0; id < cut.nodes.size(); ++id) {
    StageOf& s = cut.nodes[id];
    s.may_recompute = s.region == StageOf::kStage && !s.backward && recompute[id];
  }
  p.choice = choice;
  p.cut = std::move(cut);
  p.crossings = crossings(g, p.cut);
  const pipeline::StageLinks links(p.schedule.stages(), links_of(p.crossings));
  const auto transfers = [](const std::vector<pipeline::Action>& rank) {
    return std::any_of(rank.begin(), rank.end(), [](const auto& a) { return pipeline::transfers(a.kind); });
  };
  p.table = p.schedule;
  if (std::none_of(p.table.ranks.begin(), p.table.ranks.end(), transfers))
    p.table = pipeline::add_communication(p.table, links, costs_of(mesh, g, p, p.cutting.machine, links));
  p.order = pipeline::check(p.table, links).order;
  p.splits.clear();
  for (const Ref<Graph>& local : locals) p.splits.push_back(split_step(p.call(*local)));
  return true;
}

std::vector<PlannedCollective> transfers_of(const PipelinePartition& p, const Graph& g) {
  std::vector<PlannedCollective> all;
  for (const Crossing& c : p.crossings) {
    const auto rank = [&](int stage) { return p.table.rank_of_stage[stage]; };
    if (rank(c.link.from) == rank(c.link.to)) continue;
    for (const std::vector<Value>* values : {&c.forward, &c.backward})
      for (Value v : *values)
        for (Collective kind : {Collective::kSend, Collective::kRecv}) {
          const Node& n = g.node(v);
          all.push_back({.kind = kind,
                         .axes = "pp",
                         .dtype = g.type(v).dtype,
                         .bytes = g.type(v).nbytes(),
                         .phase = values == &c.forward ? Phase::kForward : Phase::kBackward,
                         .what = str_cat(n.scope, *n.scope ? ": " : "", n.op->name),
                         .line = n.line.to_string(),
                         .why = "a stage of another rank reads it"});
        }
  }
  return all;
}

void PipelinePartition::predict(const Mesh& mesh, const Graph& local, const Machine& machine) {
  const pipeline::StageLinks links(table.stages(), links_of(crossings));
  costs = costs_of(mesh, local, *this, machine, links);
  simulation = pipeline::simulate(table, links, costs);
}

std::string PipelinePartition::to_string() const {
  std::string s =
      str_cat("pipeline: ", cut.stages, " stages on ", ranks, " ranks, ", microbatch.count, " microbatches\n");
  for (int stage = 0; stage < cut.stages; ++stage) {
    const auto i = static_cast<size_t>(stage);
    int64_t forth = 0, back = 0;
    for (const Crossing& c : crossings) {
      if (c.link.from == stage) forth += c.forward_bytes;
      if (c.link.to == stage) back += c.backward_bytes;
    }
    s += str_cat("  stage ", stage, " on rank ", table.rank_of_stage[i], ": from ", cut.first[i], "; F ",
                 seconds_text(costs.time(stage, ActionKind::kForward)), ", I ",
                 seconds_text(costs.time(stage, ActionKind::kInput)), ", W ",
                 seconds_text(costs.time(stage, ActionKind::kWeight)), "; sends ",
                 bytes_text(static_cast<double>(forth)), " on and ", bytes_text(static_cast<double>(back)), " back\n");
  }
  double busy = 0;
  for (size_t r = 0; r < simulation.ranks.size(); ++r) {
    const pipeline::Simulation::RankUse& rank = simulation.ranks[r];
    busy += rank.busy;
    s += str_cat("  rank ", r, ": busy ", seconds_text(rank.busy), ", bubble ", seconds_text(rank.idle),
                 ", of it in its own span ", seconds_text(rank.idle_inside), "; at most ", rank.alive,
                 " microbatches alive, ", bytes_text(rank.activation), "\n");
  }
  const double share = 1 - busy / (static_cast<double>(simulation.ranks.size()) * simulation.makespan);
  return s + str_cat("  microbatches take ", seconds_text(simulation.makespan), ", bubble ",
                     formatted("%.1f", 100 * share), "%\n");
}

}  // namespace weft::dist
