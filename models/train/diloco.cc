#include "models/train/diloco.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "distributed/placement/replica.h"
#include "framework/base/clock.h"
#include "framework/base/units.h"

namespace weft::train {
namespace {

dist::DilocoStep step_of(const dist::ReplicaState& s, bool on_mesh, std::function<void()> prepare,
                         std::function<void(int64_t step, int64_t row, int64_t rows)> make) {
  const auto [trained, others] = dist::trained_and_others(s.cells);
  return {.prepare = [=, world = s.prepare]() -> dist::World* {
            if (on_mesh) return &world(1);
            prepare();
            return nullptr;
          },
          .shards = [shards = s.shards](bool made) { return shards(1, made); },
          .parameters = trained,
          .others = others,
          .record = s.record,
          .adopt = s.adopt,
          .make = std::move(make)};
}

}  // namespace

Flags diloco_flags(TrainOptions& o) {
  return {
      {"diloco",
       &o.diloco,
       "steps that each of the replicas of --mesh makes by itself before they exchange outer gradients (DiLoCo); 0: "
       "they exchange gradients in each step",
       {0}},
      {"outer_lr", &o.outer_lr, "with --diloco, learning rate of the outer optimizer", {0, 1000}},
      {"outer_momentum", &o.outer_momentum, "with --diloco, Nesterov momentum of the outer optimizer", {0, 1}},
      {"outer_fragments",
       &o.outer_fragments,
       "with --diloco, parts of the parameters, each of which has exchanges of its own; divides --diloco",
       {1}},
      {"outer_delay",
       &o.outer_delay,
       "with --diloco, steps that replicas make while an exchange is under way; below --diloco",
       {0}},
      {"outer_alpha",
       &o.outer_alpha,
       "with --diloco, the share of its own parameters that a replica keeps in an exchange",
       {0, 1}},
      {"outer_wire", &o.outer_wire,
       "with --diloco, type of outer gradients between replicas: f32, bf16, int8 or int4; the last two with a scale "
       "for each 256 values"},
      {"outer_rows",
       &o.outer_rows,
       "with --diloco, rows of this replica in a step, by its speed, if replicas are started by hand; 0: --batch_size "
       "over the number of replicas",
       {0, 1e9}},
  };
}

void restart_diloco(TrainOptions& o) {
  const bool alone = o.ranks == "processes" && o.replay.empty() && !dist::started() && !std::getenv("REPLICAS");
  if (o.diloco > 0 && alone && !o.given["restarts"] && o.checkpoint_every != "0") o.restarts = 3;
}

void settle_diloco(Setup& p, const TrainOptions& o) {
  TrainOptions copy = o, plain;
  const Flags flags = diloco_flags(copy), defaults = diloco_flags(plain);
  for (size_t i = 0; i < flags.size(); ++i)
    check_flag(flags[i].name.c_str(), o.diloco > 0 || same_value(flags[i], defaults[i]), flag_text(flags[i]),
               "--diloco above 0 as well");
  if (o.diloco == 0) return;
  const std::string steps = str_cat(o.diloco), mesh = o.mesh.empty() ? "none" : o.step.mesh.to_string();
  check_flag("mesh", dist::replica_count(o.step.mesh) > 1, mesh, "a dimension replica: --diloco is for replicas");
  check_flag("diloco", p.replica || p.replay || starts_replicas(o), steps,
             "--restarts above 0 and --ranks processes, REPLICAS or --replay: replicas are jobs of their own");
  check_flag("checkpoint_every", o.checkpoint_every != "0" || !starts_replicas(o), o.checkpoint_every,
             "a number above 0 or auto: this process restarts the replicas of --diloco from checkpoints");
  check_flag("mesh", !o.step.mesh.find("pp"), mesh, "a mesh without pp: --diloco has no pipelines");
  check_flag("memory_every", o.memory_every == "0", o.memory_every, "0 with --diloco: other replicas have the state");
  check_flag("microbatches", p.rows % o.microbatches == 0, str_cat(o.microbatches),
             str_cat("a divisor of ", p.rows, ", the rows of a replica"));
  dist::OuterOptions outer{.every = o.diloco,
                           .fragments = o.outer_fragments,
                           .delay = o.outer_delay,
                           .steps = o.steps,
                           .lr = o.outer_lr,
                           .momentum = o.outer_momentum,
                           .alpha = o.outer_alpha};
  as_usage_error("--outer_wire: ", [&] { outer.wire = dist::parse_outer_wire(o.outer_wire); });
  as_usage_error("--", [&] { outer.check(); });
  p.outer = outer;
}

std::string diloco_text(const Setup& p, const TrainOptions& o, int64_t parameters) {
  const int64_t replicas = dist::replica_count(o.step.mesh);
  return str_cat(
      "diloco: ", replicas, " replicas make ", o.diloco, " steps by themselves; outer gradients as ", o.outer_wire,
      " in ", o.outer_fragments, o.outer_fragments == 1 ? " exchange: " : " exchanges: ",
      bytes_text(p.outer->bytes_per_step(parameters, replicas)), " for each step and replica",
      o.outer_rows > 0 ? str_cat(", ", p.rows, p.rows == 1 ? " row" : " rows", " of this replica in a step") : "");
}

DilocoRun::DilocoRun(const Setup& p, const TrainOptions& o, const dist::ReplicaState& exchanged,
                     std::function<void()> prepare, std::function<void(int64_t step, int64_t row, int64_t rows)> make,
                     TrainState& state)
    : DilocoReplica(*p.outer,
                    step_of(exchanged, dist::replica_mesh(o.step.mesh).size() > 1, std::move(prepare), std::move(make)),
                    p.rows),
      state_(state) {}

void DilocoRun::begin(dist::ReplicaRun* run, std::shared_ptr<const dist::Replay> replay) {
  DilocoReplica::begin({state_.step, state_.samples, state_.state_view}, run, std::move(replay));
}

bool DilocoRun::exchange() {
  const bool begins = between();
  const int64_t begin = internal::now_ns();
  advance();
  const int64_t end = internal::now_ns();
  if (first_ == 0)
    first_ = end;
  else
    waited_ += end - begin;
  if (begins || !between()) return false;
  state_.samples = position().samples;
  state_.state_view = position().view;
  return true;
}

std::string DilocoRun::end_text() const {
  int64_t bytes = sent();
  if (dist::Processes* const job = dist::Processes::current()) {
    const std::vector<std::string> all = job->gather(str_cat(bytes));
    bytes = 0;
    for (const std::string& of_process : all) bytes += std::stoll(of_process);
  }
  const double sent = static_cast<double>(bytes), made = static_cast<double>(std::max<int64_t>(1, steps()));
  const int64_t time = std::max<int64_t>(1, internal::now_ns() - first_);
  return str_cat("diloco: this replica has sent ", bytes_text(sent), " to others in ", steps(),
                 " steps: ", bytes_text(sent / made), " for each step; utilisation ",
                 formatted("%.3f", 1 - static_cast<double>(waited_) / static_cast<double>(time)));
}

}  // namespace weft::train
