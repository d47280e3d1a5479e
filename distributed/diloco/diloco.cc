#include "distributed/diloco/diloco.h"

#include "framework/base/error.h"

namespace weft::dist {

DilocoLoop::DilocoLoop(Job& job, const CompileOptions& compile, const ReplicaStepOptions& options,
                       const OuterOptions& outer)
    : ReplicaLoop(job, compile, options,
                  OwnSteps{DilocoReplica::group_step(outer, options.position.step), DilocoReplica::made_before(outer),
                           outer.text()}),
      replica_(outer, step(), options.rows) {
  WEFT_CHECK(run_ || replay_, "diloco: REPLICAS is not set; need the address of the service of replicas, or a journal");
  WEFT_CHECK(!compile_.mesh.find("pp"), "diloco: got the mesh ", compile_.mesh.to_string(), "; need a mesh without pp");
  if (replay_)
    DilocoReplica::check_replay(*replay_, outer, own_values(replica_mesh(compile_.mesh), options.rows),
                                compile_.verify_numerics);
  replica_.begin(options.position, run_.get(), replay_);
}

DilocoStep DilocoLoop::step() {
  const auto [trained, others] = trained_and_others(options_.cells);
  return {.prepare =
              [this] {
                World* const world = ready_step();
                check_cells(own_shards(/*made=*/false));
                return world;
              },
          .shards = [this](bool made) { return own_shards(made); },
          .parameters = trained,
          .others = others,
          .record = [] { return std::string(); },
          .adopt = [](const std::string&) {},
          .make = [this](int64_t, int64_t row, int64_t) { make(row); }};
}

CompileOptions DilocoLoop::own_options() const {
  CompileOptions options = compile_;
  options.mesh = replica_mesh(options.mesh);
  return options;
}

bool DilocoLoop::enter_view() {
  while (run_ || !finished_) {
    const bool trains = replica_.ready();
    if (run_ && !trains && !run_->has_view()) {
      const bool goes_on = replica_.enter();
      const bool stops = run_->stops() && (!goes_on || replica_.between());
      stopped_ = stops ? std::optional<int>(run_->code()) : std::nullopt;
      if (!goes_on) return replica_.between() && shows(false);
      print_view();
      take_position();
    }
    if (!run_ && replica_.between() && asked_ >= 0) stopped_ = asked_;
    if (replica_.ready() || replica_.between()) return shows(true);
    replica_.advance();
    take_position();
    if (run_ && replica_.between() && run_->stops()) stopped_ = run_->code();
  }
  return false;
}

void DilocoLoop::finish() {
  WEFT_CHECK_AS(kFailedPrecondition, exchanged(), "diloco: got finish() after step ", position_.step,
                ", before the exchange of the latest steps has ended; need a call where exchanged() is true");
  ReplicaLoop::finish();
}

bool DilocoLoop::begin() {
  if (!can_step() && !replica_.ready()) return false;
  if (replica_.between()) replica_.advance();
  return replica_.ready();
}

void DilocoLoop::made() {
  replica_.made();
  take_position();
}

}  // namespace weft::dist
