#include "distributed/replica/replica_step.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <sstream>

#include "distributed/control/group/replica_identity.h"
#include "distributed/launch/processes.h"
#include "distributed/placement/replica.h"
#include "framework/base/error.h"

namespace weft::dist {
namespace {

// The position as ReplicaState::record.
std::string record_of(const RunPosition& p) { return str_cat(p.step, " ", p.samples, " ", p.view); }

RunPosition position_of(const std::string& record) {
  RunPosition p;
  std::istringstream text(record);
  text >> p.step >> p.samples >> p.view;
  WEFT_CHECK_AS(kUnavailable, !text.fail() && text.eof() && std::min({p.step, p.samples, p.view}) >= 0,
                "replicas: the position of another replica is damaged");
  return p;
}

}  // namespace

int ranks_of_job(const Mesh& mesh) { return (control::replica_identity() ? replica_mesh(mesh) : mesh).size(); }

ReplicaLoop::ReplicaLoop(Job& job, const CompileOptions& compile, const ReplicaStepOptions& options,
                         const std::optional<OwnSteps>& own)
    : compile_(compile), options_(options), position_(options.position), shown_(position_.step), job_(job) {
  const int64_t first = own ? own->group_step : position_.step;
  const std::optional<control::ReplicaIdentity> id = control::replica_identity();
  const Mesh& mesh = compile.mesh;
  const char* const needs_replicas =
      id ? "REPLICAS is set, so this program is one of several replicas" : "the journal is of several replicas";
  WEFT_CHECK(options.rows > 0, "replica: got ", options.rows, " rows of each replica; need 1 or more");
  WEFT_CHECK(!id || options.journal.empty(), "replica: got the journal ", options.journal,
             ", and REPLICAS is set; drop one of them: one process makes a run again");
  WEFT_CHECK((!id && options.journal.empty()) || has_replicas(mesh), "replica: ", needs_replicas, ", and the mesh is ",
             mesh.to_string(), "; need a mesh with a dimension replica");
  WEFT_CHECK(own || position_.samples % options.rows == 0, "replica: got the position ", position_.samples,
             " in the data and ", options.rows, " rows of each replica; need a multiple of these rows");
  std::vector<std::pair<std::string, std::string>> sizes;
  if (own)
    sizes = {{"the outer options", own->text}, {"verify_numerics", compile.verify_numerics ? "true" : "false"}};
  else
    sizes = {{"the mesh", mesh.to_string()}, {"the rows of a replica", str_cat(options.rows)}};
  if (!options.journal.empty()) {
    WEFT_CHECK(!Processes::current(), "replica: got the journal ", options.journal,
               " in one of several processes; need one process, which makes the run again");
    replay_ = std::make_shared<const Replay>(options.journal);
    WEFT_CHECK(replay_->replicas() == replica_count(mesh), options.journal, ": is of replica", replay_->replicas(),
               ", and the mesh is ", mesh.to_string(), "; need the mesh of the elastic run");
    auto facts = job.facts();
    facts.insert(facts.end(), sizes.begin(), sizes.end());
    replay_->check({first, position_.samples, position_.view}, own ? 0 : options.rows, facts);
  }
  if (!id) return;
  std::string facts;
  for (const auto& list : {program_facts(job.facts(), own.has_value()), sizes})
    for (const auto& [name, value] : list) facts += fact_line(name, value);
  run_ = std::make_unique<ReplicaRun>(
      ReplicaOptions{.name = id->name,
                     .address = id->address,
                     .token = id->token,
                     .incarnation = id->incarnation,
                     .facts = facts,
                     .own = own ? own_values(replica_mesh(mesh), options.rows) : "",
                     .replicas = replica_count(mesh),
                     .step = first,
                     .state_view = position_.view,
                     .ranks = replica_mesh(mesh).size(),
                     .job = Processes::current(),
                     .store = job.store(),
                     .transport = options.transport,
                     .timeout = std::chrono::nanoseconds(static_cast<int64_t>(compile.timeout * 1e9))},
      own ? own->made_before : nullptr);
}
ReplicaLoop::~ReplicaLoop() = default;

// Without the value of one of the step's cells, a replica that comes back would compute something else.
void ReplicaLoop::check_cells(const CellShards& used) const {
  std::set<const Cell*> given;
  for (const auto& [name, handle] : options_.cells) given.insert(&handle.cell());
  std::string lacks;
  int64_t more = 0;
  for (const auto& [cell, shards] : used) {
    if (given.contains(cell.get())) continue;
    if (++more <= 3)
      lacks += str_cat(lacks.empty() ? "" : ", ", cell->name.empty() ? "?" : cell->name, " ", cell->type);
  }
  WEFT_CHECK(more == 0, "replica: the step uses ", more, " cells that ReplicaStepOptions::cells lacks: ", lacks,
             more > 3 ? ", ..." : "",
             "; need all cells that it reads or writes: named_cells() of models and optimisers, and the seed and step "
             "of default_generator()");
}

ReplicaState ReplicaLoop::state() {
  return {.prepare = [this](int64_t live) -> World& {
            World& world = prepare(live);
            check_cells(shards(live, /*made=*/false));
            return world;
          },
          .shards = [this](int64_t live, bool made) { return shards(live, made); },
          .cells = options_.cells,
          .record = [this] { return record_of(position_); },
          .adopt = [this](const std::string& record) { position_ = position_of(record); }};
}

bool ReplicaLoop::enter() {
  try {
    return enter_view();
  } catch (const Error& e) {
    fail(e);
    throw;
  }
}

bool ReplicaLoop::enter_view() {
  if (!run_) {
    if (Processes* const job = Processes::current(); job && !stopped_) {
      int64_t most = asked_;
      job->max({&most, kInt64, {1}, {1}});
      asked_ = static_cast<int>(most);
    }
    if (asked_ >= 0) stopped_ = asked_;
    return !finished_;
  }
  if (run_->has_view()) return shows(true);
  const bool goes_on = run_->enter(state());
  stopped_ = run_->stops() ? std::optional<int>(run_->code()) : std::nullopt;
  if (!goes_on) return shows(false);
  print_view();
  return shows(true);
}

void ReplicaLoop::print_view() const {
  if (!run_->writes() || !is_first()) return;
  std::printf("%s\n", run_->text().c_str());
  std::fflush(stdout);
}

DataPart ReplicaLoop::part() const {
  if (run_) return run_->part(position_.samples / options_.rows);
  if (replay_) return replay_->at(position_.step);
  return {.first = position_.samples / options_.rows, .live = replica_count(compile_.mesh)};
}

CompileOptions ReplicaLoop::options_of(int64_t live) const {
  CompileOptions options = compile_;
  if (run_ || replay_) options.mesh = with_replicas(options.mesh, live);
  return options;
}

void ReplicaLoop::committed() {
  const DataPart made = part();
  ++position_.step;
  position_.samples += made.live * options_.rows;
  position_.view = made.view;
  if (!run_) return;
  if (run_->stops()) stopped_ = run_->code();
  if (run_->has_view()) run_->prepare_next(state());
}

void ReplicaLoop::stop(int code) {
  asked_ = code;
  if (run_) run_->stop(code);
}

void ReplicaLoop::finish() {
  finished_ = true;
  if (run_) run_->finish();
}

}  // namespace weft::dist
