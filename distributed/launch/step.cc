#include "distributed/launch/step.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "compiler/exec/plan/failing.h"
#include "compiler/passes/pass_options.h"
#include "distributed/launch/planned_step.h"
#include "distributed/launch/processes.h"
#include "distributed/launch/rank_plan.h"
#include "distributed/placement/replica.h"
#include "distributed/stages/recomputed.h"
#include "framework/base/actor.h"
#include "framework/base/tracer.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/generator.h"
#include "framework/dispatch/state/torn.h"
#include "framework/io/checksum.h"
#include "ops/core/collectives/collective.h"

namespace weft::dist {
namespace {

// The world of all steps on equal meshes in this process. The steps for all numbers of live replicas share a world.
std::shared_ptr<World> world_of(const Mesh& mesh, LiveReplicas* replicas) {
  static auto* all = new std::map<std::tuple<pid_t, LiveReplicas*, std::string>, std::weak_ptr<World>>;
  static auto* mutex = new std::mutex;
  std::lock_guard lock(*mutex);
  const Mesh own = replicas ? replica_mesh(mesh) : mesh;
  std::weak_ptr<World>& slot = (*all)[{getpid(), replicas, own.to_string()}];
  std::shared_ptr<World> w = slot.lock();
  if (!w) slot = w = std::make_shared<World>(own, WorldOptions{.replicas = replicas});
  return w;
}

// The ranks of the job: all ranks of the mesh, or one replica, whose places do not depend on the number of replicas.
std::vector<MeshPartition::RankPlace> places_of(const MeshPartition& p, LiveReplicas* replicas) {
  std::vector<MeshPartition::RankPlace> all = p.places();
  if (replicas) all.resize(all.size() / static_cast<size_t>(replica_count(p.world)));
  return all;
}

// Sets the commit point: the launch before which a rank waits for all others. It must not come after the first launch
// that writes a cell in place. Ranks of other shape classes may write earlier, but all ranks must wait between the same
// two collectives, or they deadlock. If `replicas`, the ranks also agree if nothing is written in place, and the commit
// point comes after the last sum over replicas (failing_nodes).
void set_commit_points(std::vector<internal::PreparedGraph>& planned, bool replicas) {
  auto first_write = [](const internal::MemoryLayout& p) {
    size_t first = p.launches.size();
    for (const internal::CellUse& c : p.cells)
      if (c.first_write >= 0) first = std::min(first, static_cast<size_t>(c.first_write));
    return first;
  };
  auto starts_collective = [](const internal::MemoryLayout& p, size_t t) {
    const internal::Launch& l = p.launches[t];
    return !l.copy && collective_of(p.graph->node(l.node)).has_value();
  };
  const auto writes = [&](const internal::PreparedGraph& e) { return first_write(e.plan) < e.plan.launches.size(); };
  if (std::none_of(planned.begin(), planned.end(), writes)) {
    if (replicas)
      for (internal::PreparedGraph& e : planned) e.plan.commit_point = static_cast<int32_t>(e.plan.launches.size());
    return;
  }
  int64_t least = std::numeric_limits<int64_t>::max();  // collectives that every rank starts before it writes
  for (const internal::PreparedGraph& e : planned) {
    const size_t first = first_write(e.plan);
    WEFT_BUG_IF(!writes(e), "mesh: the ranks of one class write no cell, and others do");
    int64_t before = 0;
    for (size_t t = 0; t < first; ++t) before += starts_collective(e.plan, t);
    least = std::min(least, before);
  }
  for (internal::PreparedGraph& e : planned) {
    const size_t first = first_write(e.plan);
    size_t t = 0;
    for (int64_t before = 0; t < first; ++t)
      if (starts_collective(e.plan, t) && before++ == least) break;
    e.plan.commit_point = static_cast<int32_t>(t);
    WEFT_BUG_IF(std::any_of(e.plan.launches.begin() + t, e.plan.launches.end(),
                            [&](const internal::Launch& l) {
                              return !l.copy && internal::ends_sum_over_replicas(*e.plan.graph, l.node);
                            }),
                "mesh: a sum over replicas ends after the commit point");
  }
}

// The sites of the collectives that start before the commit point and end after it.
std::vector<uint64_t> open_at_commit(const internal::MemoryLayout& p) {
  std::set<uint64_t> open;
  for (size_t t = 0; t < static_cast<size_t>(std::max(0, p.commit_point)); ++t) {
    if (p.launches[t].copy) continue;
    const Node& n = p.graph->node(p.launches[t].node);
    const auto site = static_cast<uint64_t>(n.attrs.i("site", 0));
    if (n.op == &collective_wait_op)
      open.erase(site);
    else if (collective_of(n) && !communicates(n))
      open.insert(site);
  }
  return {open.begin(), open.end()};
}

// Whether the sizes of a collective are values, which a rank lacks after an op that has thrown.
bool moves_counted_rows(const internal::MemoryLayout& p) {
  return std::ranges::any_of(p.launches, [&](const internal::Launch& l) {
    return !l.copy && p.graph->node(l.node).op == &all_to_all_rows_op;
  });
}

}  // namespace

struct MeshStep::Ranks {
  std::shared_ptr<World> world;
  std::vector<internal::SharedArena> arenas;
  std::vector<std::unique_ptr<internal::Executable>> executables;
  std::vector<Ref<ShardedCell>> cells;
  std::vector<Ref<Cell>> joint_cells;       // in gate order
  std::vector<std::vector<uint64_t>> open;  // index: program; open_at_commit()
};

MeshStep::~MeshStep() = default;

MeshStep::MeshStep(const Ref<Graph>& joint, const CompileOptions& options)
    : timeout_(std::chrono::nanoseconds(static_cast<int64_t>(options.timeout * 1e9))),
      verify_(options.verify),
      plan_(plan_mesh(joint, options)),
      replicas_(has_replicas(plan_.world) ? LiveReplicas::current() : nullptr),
      places_(places_of(plan_, replicas_)) {
  if (plan_.pipeline) {
    plan_stages(options);
  } else {
    plan_classes(options);
  }
  for (internal::PreparedGraph& p : planned_)
    if (!plan_.on_meta) internal::load_kernels(p, options);
}

// If there is a budget, uses the first choice of cut and recomputation whose plans fit: plans decide, not estimates.
void MeshStep::plan_stages(const CompileOptions& options) {
  if (options.memory_budget <= 0) return plan_ranks(options);
  PipelinePartition& p = *plan_.pipeline;
  internal::Rematerialisation tried{.tried = true, .least_peak = INT64_MAX};
  const auto largest = [&] {
    return std::max_element(planned_.begin(), planned_.end(),
                            [](const auto& a, const auto& b) { return a.plan.peak_bytes() < b.plan.peak_bytes(); });
  };
  std::optional<internal::PreparedGraph> first;  // the largest rank of the first choice
  for (size_t k = 0; k < p.choices() && tried.least_peak > options.memory_budget; ++k) {
    if (!lay_out(p, plan_.mesh, plan_.arranged, k)) continue;
    plan_ranks(options);
    tried.least_peak = std::min(tried.least_peak, largest()->plan.peak_bytes());
    if (!first) first = *largest();
  }
  if (tried.least_peak > options.memory_budget) internal::check_budget(*first, tried, options);
  if (p.choice == 0) return;
  const Recomputed again(*plan_.arranged[0], p.cut);
  int copies = 0;
  for (int32_t id = 0; id < plan_.arranged[0]->size(); ++id)
    copies += again.any(id) && !plan_.arranged[0]->node(id).op->view;
  plan_.notes.push_back(str_cat("memory_budget ", options.memory_budget, ": ", copies,
                                " nodes of a microbatch are computed again",
                                p.choice % 2 ? ", and stages differ in work" : "", "; the peak of a rank is ",
                                tried.least_peak, " bytes instead of ", first->plan.peak_bytes()));
}

void MeshStep::plan_ranks(const CompileOptions& options) {
  planned_.clear();
  plan_.launched.clear();
  for (size_t c = 0; c < plan_.locals.size(); ++c) {
    const SplitCall step = plan_.pipeline->call(*plan_.arranged[c]);
    for (int r = 0; r < plan_.pipeline->ranks; ++r) {
      RankProgram rank =
          plan_rank({step, plan_.pipeline->splits[c], plan_.pipeline->crossings, options, plan_.pipeline->order}, r);
      planned_.push_back(std::move(rank.planned));
      const internal::MemoryLayout& plan = planned_.back().plan;
      std::vector<int32_t> nodes;
      for (const internal::Launch& l : plan.launches)
        if (!l.copy) nodes.push_back(l.node);
      std::vector<PlannedCollective>& known = rank.transfers;
      known.insert(known.end(), plan_.locals[c].collectives.begin(), plan_.locals[c].collectives.end());
      plan_.launched.push_back(collectives_in(*plan.graph, nodes, known));
      const auto key = [](const PlannedCollective& k) { return std::tuple(k.kind, k.axes, k.site); };
      const std::vector<PlannedCollective>& first = plan_.launched[r];
      WEFT_BUG_IF(!std::ranges::equal(first, plan_.launched.back(), {}, key, key), "mesh: ranks of shape class ", c,
                  " and of class 0 start different collectives in stage position ", r);
    }
  }
}

void MeshStep::plan_classes(const CompileOptions& options) {
  for (size_t i = 0; i < plan_.locals.size(); ++i) {
    internal::Entry e;  // one rank's graph, planned like a step of one device
    e.joint = plan_.arranged[i];
    for (Value v : e.joint->inputs) e.key.layouts.push_back({contiguous_strides(e.joint->type(v).shape)});
    internal::plan_within_budget(e, options);
    if (const internal::Rematerialisation& r = e.remat; r.fits && i == 0)
      plan_.notes.push_back(str_cat("memory_budget ", options.memory_budget, ": ", r.copies,
                                    " nodes of a rank are computed again; its peak is ", e.plan.peak_bytes(),
                                    " bytes instead of ", r.peak_before));
    planned_.push_back(std::move(static_cast<internal::PreparedGraph&>(e)));
    plan_.locals[i].collectives = collectives_in(*planned_.back().plan.graph, plan_.locals[i].collectives);
  }
  std::vector<Ref<Graph>> final_order;
  for (const internal::PreparedGraph& p : planned_) final_order.push_back(p.plan.graph);
  check_same_sequence(final_order);
  PassSteps(internal::pass_options(options)).run("commit", [&] {
    set_commit_points(planned_, has_replicas(plan_.world));
  });
}

bool MeshStep::writes(size_t cell) const {
  return std::any_of(planned_.begin(), planned_.end(),
                     [&](const internal::PreparedGraph& p) { return p.plan.cells[cell].written; });
}

// The shards of a replica do not depend on the number of replicas: steps for other numbers, and steps on the mesh
// without `replica`, use the same shards.
std::vector<int> MeshStep::shard_places() const {
  std::vector<int> all;
  for (const MeshPartition::RankPlace& p : places_) all.push_back(p.rank % replica_mesh(plan_.mesh).size());
  return all;
}

ShardedCell::ShardLayout MeshStep::layout_of(size_t cell) const {
  ShardedCell::ShardLayout l{.mesh = replica_mesh(plan_.mesh),
                             .place = shard_places(),
                             .rest = spec_in_replica(plan_.mesh, plan_.decision.cells[cell].rest)};
  if (!plan_.pipeline) return l;
  const std::vector<std::vector<bool>>& has = plan_.pipeline->splits[0].cells;
  for (size_t r = 0; r < l.place.size(); ++r)
    if (!has[places_[r].stage][cell]) l.place[r] = -1;
  return l;
}

World& MeshStep::world() {
  start();
  return *ranks_->world;
}

CellShards MeshStep::shards(bool made) {
  start();
  if (made) {
    std::lock_guard turn(ranks_->world->turn());
    const internal::CellsOwner cells(ranks_->joint_cells, "compile");
    if (const std::optional<Error> unread = shard_cells()) throw *unread;
  }
  CellShards all;
  for (size_t c = 0; c < ranks_->cells.size(); ++c) all.emplace_back(plan_.joint->cells[c], ranks_->cells[c]);
  return all;
}

// The mesh dimensions of all collectives, in the order of the plans.
std::vector<std::string> MeshStep::axes_used() const {
  std::vector<std::string> all{"world"};
  for (const internal::PreparedGraph& p : planned_)
    for (const internal::Launch& l : p.plan.launches) {
      const Node& n = p.plan.graph->node(l.node);
      if (l.copy || !collective_of(n)) continue;
      const std::string& axes = n.attrs.get<std::string>("axes");
      if (std::find(all.begin(), all.end(), axes) == all.end()) all.push_back(axes);
    }
  return all;
}

void MeshStep::start() {
  if (ranks_) return;
  WEFT_CHECK_AS(kFailedPrecondition, !plan_.on_meta,
                "world: the step has values on meta and was only planned for mesh ", plan_.world.to_string(),
                "; need values on the CPU");
  auto ranks = std::make_unique<Ranks>();
  ranks->world = world_of(plan_.world, replicas_);
  ranks->arenas.resize(static_cast<size_t>(this->ranks()));
  ranks->executables.resize(static_cast<size_t>(this->ranks()));
  for (size_t c = 0; c < plan_.joint->cells.size(); ++c) {
    const Cell& cell = *plan_.joint->cells[c];
    ShardedCell::ShardLayout layout = layout_of(c);
    const auto current = [&] {
      const internal::CellReader read(cell, "compile");  // a step of another thread may shard it
      return Ref<ShardedCell>(dynamic_cast<ShardedCell*>(cell.remote.get()));
    }();
    if (current && current->has_layout(layout)) {
      ranks->cells.push_back(current);
    } else {
      ranks->cells.push_back(make_ref<ShardedCell>(std::move(layout), cell.type));
    }
  }
  ranks->joint_cells = internal::in_gate_order(plan_.joint->cells);
  for (const internal::PreparedGraph& p : planned_) ranks->open.push_back(open_at_commit(p.plan));
  std::lock_guard turn(ranks->world->turn());
  check_plan();
  ranks->world->connect(axes_used());
  ranks->world->run([&](int r) {
    const auto i = static_cast<size_t>(r);
    std::vector<Ref<Cell>> own;
    for (const Ref<ShardedCell>& c : ranks->cells) own.push_back(c->shards[i]);
    internal::ExecutableOptions how;
    how.rank.emplace(internal::ExecutableOptions::RankCells{Device::cpu(r), std::move(own)});
    const internal::PreparedGraph& planned = planned_[program(i)];
    how.check = internal::launch_check(planned, verify_);
    if (ReplicaRank* const replica = ranks->world->replica_rank(r); replica && !moves_counted_rows(planned.plan))
      how.holds = [replica] { return replica->holds(); };
    ranks->executables[i] = std::make_unique<internal::Executable>(planned.plan, ranks->arenas[i], std::move(how));
  });
  ranks_ = std::move(ranks);
  save_for_diagnosis();
}

// Ranks that run several steps make them in the same order, so that the numbers are equal on all.
void MeshStep::save_for_diagnosis() {
  if (flight::folder().empty()) return;
  const std::vector<int>& local = ranks_->world->local();
  std::vector<std::pair<int, int>> programs;
  for (int r : local) programs.emplace_back(r, static_cast<int>(program(static_cast<size_t>(r))));
  number_ = save_planned_step(ranks_->world->mesh(), plan_, planned_, programs);
}

// Shards a cell whose value was set or has another layout. A value gathered for a reader stays valid until the step
// writes the cell. Returns the first error of a stored value. The others are sharded all the same: another process may
// have no error, and gathers with this one.
std::optional<Error> MeshStep::shard_cells() {
  std::optional<Error> error;
  const internal::TraceScope trace(TraceEvent::kHost, "shard cells");
  for (size_t c = 0; c < ranks_->cells.size(); ++c) {
    Cell& cell = *plan_.joint->cells[c];
    ShardedCell& own = *ranks_->cells[c];
    check_not_torn(cell);
    const bool sharded = cell.remote.get() == &own && (!cell.value.defined() || own.gathered(cell.value));
    if (sharded && !writes(c)) continue;
    if (!sharded) {
      NoGrad guard;
      const bool by_shards = !cell.value.defined() && cell.type.device == Device::cpu();
      // Threads share the whole value: an initialiser that needs it runs once for all threads.
      auto* const stored = dynamic_cast<StoredValue*>(cell.remote.get());
      try {
        if (stored && by_shards)
          own.read(*stored, cell);
        else if (by_shards && Processes::current() && !cell.remote && cell.init)
          own.initialise(*cell.init);
        else
          own.scatter(internal::owned_value(cell));
      } catch (const Error& e) {
        if (!stored) throw;
        if (!error) error = e;
        continue;
      }
      cell.remote = ranks_->cells[c];
      // A process of a job does not reuse the memory of whole values.
      if (Processes::current()) Allocator::of(Device::cpu()).empty_cache();
    }
    own.forget();
    cell.value = {};
  }
  return error;
}

namespace {

constexpr const char* kFirstCall = "the first call of a compiled step with arguments of these shapes";

// "argument 0, first used at model.cc:12".
std::string argument_name(const Graph& g, size_t i) {
  const Value v = g.inputs[i];
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.line.line && std::find(n.inputs.begin(), n.inputs.end(), v) != n.inputs.end())
      return str_cat("argument ", i, ", first used at ", n.line.to_string(), ",");
  }
  return str_cat("argument ", i);
}

}  // namespace

// All processes must have captured the same step: an error names the first difference as it is in the program's text.
void MeshStep::check_plan() const {
  Processes* const job = Processes::current();
  if (!job) return;
  const Graph& g = *plan_.joint;
  Processes::Facts facts{{"the seed", str_cat(default_generator().seed.value().item<int64_t>())}};
  for (size_t i = 0; i < g.inputs.size(); ++i) facts.emplace_back(argument_name(g, i), str_cat(g.type(g.inputs[i])));
  for (const Ref<Cell>& c : g.cells)
    facts.emplace_back(str_cat(c->is_parameter ? "parameter" : "buffer", " '", c->name, "'"), str_cat(c->type));
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    facts.emplace_back(str_cat("the value of ", n.op->name, internal::origin_text(n.line, n.scope)),
                       n.outputs.empty() ? "nothing" : str_cat(n.outputs[0]));
  }
  facts.emplace_back("the plan of the step", str_cat(plan("cpu").hash()));
  job->check_equal(kFirstCall, facts, "the same model, shapes of arguments, seed and switches in all processes");
}

// Each process passes whole arguments, and its ranks use their parts. If a process passed another batch, the results
// would be silently wrong, so the first call compares the values.
void MeshStep::check_arguments(std::span<const Tensor> args) const {
  Processes* const job = Processes::current();
  if (!job) return;
  Processes::Facts facts;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::span bytes(static_cast<const std::byte*>(args[i].view_for_kernel().data),
                          static_cast<size_t>(args[i].type().nbytes()));
    facts.emplace_back(argument_name(*plan_.joint, i),
                       str_cat(args[i].type(), " with checksum ", io::hex64(io::checksum(bytes))));
  }
  job->check_equal(kFirstCall, facts, "the same whole batch in all processes: the step gives each rank its part");
}

std::vector<Tensor> MeshStep::run(std::span<const Tensor> args) {
  if (plan_.on_meta) {
    std::vector<Tensor> out;
    for (Value v : plan_.joint->outputs) {
      TensorType type = plan_.joint->type(v);
      if (plan_.pipeline) type.device = Device::meta();  // its graph has values of the CPU
      out.push_back(Tensor::empty(type));
    }
    return out;
  }
  if (Processes* const job = Processes::current()) job->take_thread("a step on the mesh");
  WEFT_CHECK_AS(kFailedPrecondition, !replicas_ || replicas_->count() == replica_count(plan_.world), "step: mesh ",
                plan_.world.to_string(), " has ", replica_count(plan_.world), " replicas, and ", replicas_->count(),
                " are live; need a step compiled for this number");
  start();
  std::lock_guard turn(ranks_->world->turn());
  World& world = *ranks_->world;
  const internal::CellsOwner cells(ranks_->joint_cells, "compile");
  const std::optional<Error> unread = shard_cells();
  if (unread && !Processes::current()) throw *unread;
  std::vector<Tensor> whole;
  for (const Tensor& t : args) whole.push_back(t.contiguous());
  if (!std::exchange(checked_, true)) check_arguments(whole);
  std::vector<std::vector<Tensor>> results(static_cast<size_t>(ranks()));
  try {
    world.run([&, caller = internal::actor()](int r) {
      if (unread) throw *unread;  // ends the waits of the other processes
      const internal::ActFor me(caller);
      const auto i = static_cast<size_t>(r);
      world.rank(r).timeout = timeout_;
      const internal::TraceScope trace(TraceEvent::kStep, "step");
      world.rank(r).begin_step(number_);
      if (ReplicaRank* const replica = world.replica_rank(r)) replica->begin(ranks_->open[program(i)]);
      results[i] = ranks_->executables[i]->run(whole);
      world.rank(r).end_step();
    });
    std::vector<Tensor> out = joined_results(results);
    for (const auto& e : ranks_->executables)
      if (e) e->commit();
    return out;
  } catch (const Uncommitted&) {
    for (const auto& e : ranks_->executables)
      if (e) e->discard();
    throw;
  } catch (...) {
    failed();
  }
}

// A cell that one rank has overwritten is torn on all ranks. All other cells keep their values from before the step.
void MeshStep::failed() {
  for (const auto& e : ranks_->executables)
    if (e) e->discard();
  const std::vector<Ref<Cell>>& cells = plan_.joint->cells;
  for (size_t c = 0; c < cells.size(); ++c)
    for (const Ref<Cell>& shard : ranks_->cells[c]->shards) cells[c]->torn |= shard->torn;
  try {
    throw;
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(e.what(), torn_text(cells)));
  }
}

// Joins the results of the ranks into whole results. In a pipeline, the ranks of its first position have the results.
std::vector<Tensor> MeshStep::joined_results(const std::vector<std::vector<Tensor>>& results) const {
  const internal::TraceScope trace(TraceEvent::kHost, "join results");
  std::vector<int> place = shard_places();
  for (size_t r = 0; r < place.size(); ++r)
    if (places_[r].stage != 0) place[r] = -1;
  std::vector<Tensor> out;
  for (size_t i = 0; i < plan_.decision.outputs.size(); ++i) {
    const Spec spec = spec_in_replica(plan_.mesh, plan_.decision.outputs[i]);
    if (spec.is_replicated() && !Processes::current()) {
      out.push_back(results[0][i]);
      continue;
    }
    std::vector<Tensor> mine;
    for (const std::vector<Tensor>& r : results) mine.push_back(i < r.size() ? r[i] : Tensor());
    out.push_back(
        joined(replica_mesh(plan_.mesh), spec, plan_.joint->type(plan_.joint->outputs[i]), place, std::move(mine)));
  }
  return out;
}

StepRecord MeshStep::record(int rank) const {
  const Mesh& mesh = plan_.world;
  WEFT_CHECK_AS(kOutOfRange, rank >= 0 && rank < ranks(), "record: got rank ", rank, "; need 0 to ", ranks() - 1,
                " of mesh ", mesh.to_string());
  const auto i = static_cast<size_t>(rank);
  const internal::PreparedGraph& planned = planned_[program(i)];
  const internal::MemoryLayout& plan = planned.plan;
  StepRecord r = internal::record_of(planned, ranks_ ? ranks_->executables[i].get() : nullptr);
  r.mesh = mesh.to_string();
  r.rank = rank;
  const Machine& machine = machine_preset("cpu");
  for (LaunchRecord& l : r.launches) {
    const Node& n = plan.graph->node(l.node);
    const auto kind = l.copy ? std::nullopt : collective_of(n);
    if (!kind) continue;
    l.axes = n.attrs.get<std::string>("axes");
    l.sent = static_cast<double>(collective_bytes(*plan.graph, n)) *
             bus_factor(*kind, static_cast<double>(collective_parts(mesh, n)));
    l.predicted_us = 1e6 * communication_seconds(machine, mesh, *plan.graph, n);
  }
  return r;
}

PlanReport MeshStep::plan(const std::string& machine) const {
  int64_t peak = 0;  // largest of all ranks
  for (const internal::PreparedGraph& p : planned_) peak = std::max(peak, p.plan.peak_bytes());
  return {plan_, machine, peak};
}

const Graph* MeshStep::graph(const std::string& stage) const {
  if (stage == "partitioned") return plan_.locals[0].graph.get();
  if (stage == "fused") return planned_[0].fused.get();
  if (stage == "scheduled") return planned_[0].plan.graph.get();
  return nullptr;
}

// Fills in the statistics of the rank of this process with the largest peak.
void MeshStep::fill(CompileStats& s) const {
  size_t rank = 0;
  int64_t most = -1;
  for (size_t r = 0; r < places_.size(); ++r) {
    const int64_t peak = planned_[program(r)].plan.peak_bytes();
    if (is_local(static_cast<int>(r)) && peak > most) most = peak, rank = r;
  }
  const internal::MemoryLayout& plan = planned_[program(rank)].plan;
  s.nodes = plan.graph->size();
  s.kernels = static_cast<int64_t>(plan.launches.size());
  s.arena_bytes = plan.arena_bytes;
  s.planned_peak_bytes = plan.peak_bytes();
  if (!ranks_ || !ranks_->executables[rank]) return;
  const internal::ReplayStats& last = ranks_->executables[rank]->last();
  if (last.predicted_peak_bytes > 0) s.planned_peak_bytes = last.predicted_peak_bytes;
  s.measured_peak_bytes = last.measured_peak_bytes;
  s.in_place_writes = last.in_place_writes;
  s.fresh_writes = last.fresh_writes;
}

}  // namespace weft::dist
