#include "models/train/elastic.h"

#include <chrono>
#include <thread>
#include <utility>

#include "distributed/launch/processes.h"
#include "distributed/placement/replica.h"
#include "distributed/replica/state_parts.h"
#include "framework/base/error.h"
#include "framework/base/failure_report.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "models/data/dataset.h"
#include "models/train/job.h"

namespace weft::train {
namespace {

std::chrono::nanoseconds timeout_of(const TrainOptions& o) {
  return std::chrono::nanoseconds(static_cast<int64_t>(o.step.timeout * 1e9));
}

std::string fact(const std::string& name, const std::string& value) {
  constexpr size_t kMost = 200;
  return str_cat(name, " ", value.size() <= kMost ? value : str_cat("checksum ", io::hex64(io::checksum(value))), "\n");
}

}  // namespace

std::string run_facts(const TrainOptions& o, const std::map<std::string, std::string>& flags) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) { text += fact(name, value); };
  for (const auto& [name, value] : flags) add("--" + name, value);
  TrainOptions copy = o;
  for (const Flag& flag : train_flags(copy))
    for (const char* name : {"mesh", "numerics", "verify_numerics", "async_tp", "wire", "compile"})
      if (flag.name == name) add("--" + flag.name, flag_text(flag));
  const std::string path = o.data.empty() || o.data == "synthetic" ? o.data : io::resolve_path(o.data);
  add("the content of --data", data::data_identity(path));
  return text;
}

namespace {

// The values that all replicas must have.
std::string facts_of(const TrainOptions& o, const std::map<std::string, std::string>& flags) {
  std::string text;
  for (const auto& [name, value] : dist::program_facts()) text += fact(name, value);
  return text + run_facts(o, flags);
}

dist::ReplicaOptions options_of(const Setup& setup, const TrainOptions& o, const TrainState& state,
                                const std::map<std::string, std::string>& flags, dist::Job& job) {
  return {.name = setup.replica->name,
          .address = setup.replica->address,
          .token = setup.replica->token,
          .incarnation = setup.replica->incarnation,
          .facts = facts_of(o, flags),
          .replicas = dist::replica_count(o.step.mesh),
          .step = state.step,
          .state_view = state.state_view,
          .ranks = dist::replica_mesh(o.step.mesh).size(),
          .job = dist::Processes::current(),
          .store = job.store(),
          .transport = o.transport,
          .timeout = timeout_of(o)};
}

}  // namespace

Elastic::Elastic(const Setup& setup, const TrainOptions& o, const TrainState& state,
                 const std::map<std::string, std::string>& flags, dist::Job& job)
    : setup_(setup),
      replicas_(dist::replica_count(o.step.mesh)),
      timeout_(timeout_of(o)),
      member_(options_of(setup, o, state, flags, job)) {}

bool Elastic::enter(const ElasticState& s) {
  while (!member_.has_view()) {
    const dist::LiveView& live = member_.next_view();
    if (live.ended) return false;
    const auto count = std::ssize(live.view.members);
    std::vector<bool> heals;
    int64_t joiners = 0;
    for (const control::ViewMember& m : live.view.members) heals.push_back(m.heals), joiners += m.heals;
    dist::World& world = s.prepare(count);
    if (joiners == 0) return true;
    const bool takes = live.heals;
    dist::HealedCells healed;
    try {
      healed = dist::heal_cells(
          world, s.cells, s.shards(count, !takes), [&](int rank) { return member_.communicator(rank); }, heals,
          live.place, takes ? "" : record_of(s.record()), std::chrono::steady_clock::now() + timeout_);
    } catch (const Error& e) {
      if (!takes) {  // the next step fails, and another view follows
        member_.close(e.what());
        return true;
      }
      (void)member_.healed(false);
      // The states do not fit: it would be so in each view.
      if (e.code() == Code::kFailedPrecondition || e.code() == Code::kInvalidArgument) throw;
      continue;
    }
    if (!takes) return true;
    if (!member_.healed(true)) continue;
    healed.adopt();
    s.adopt(state_of(healed.record));
    if (dist::is_first()) {
      std::printf("replica %s has the state of step %ld from the others\n", setup_.replica->name.c_str(),
                  live.view.start);
      std::fflush(stdout);
    }
  }
  return true;
}

dist::DataPart Elastic::part(int64_t samples) const {
  const dist::LiveView& live = member_.live();
  return {.view = live.view.number,
          .first = samples / setup_.rows,
          .live = std::ssize(live.view.members),
          .place = live.place};
}

void Elastic::prepare_next(const ElasticState& s) {
  const control::ReplicaView& view = member_.live().view;
  if (std::exchange(prepared_, view.number) == view.number) return;
  const int64_t count = std::ssize(view.members);
  for (const int64_t next : {count - 1, count + 1})
    if (next >= 1 && next <= replicas_) s.prepare(next);
}

int Elastic::code() const {
  const auto note = static_cast<int>(member_.group_note());
  return note == kNoCode ? 0 : note;
}

std::string Elastic::text() const {
  const control::ReplicaView& view = member_.live().view;
  std::string names;
  for (const control::ViewMember& m : view.members) names += (names.empty() ? "" : ", ") + m.name;
  return str_cat("view ", view.number, " from step ", view.start, ": ", view.members.size(), " of ", replicas_,
                 " replicas: ", names);
}

bool take_folder(CheckpointSaver& saver, const Setup& setup, double seconds) {
  if (setup.checkpoint_every == 0 || saver.is_locked()) return true;
  for (const double end = now_seconds() + seconds;;) {
    try {
      (void)saver.lock();
      break;
    } catch (const Error& e) {
      if (e.code() != Code::kFailedPrecondition) throw;
      if (value_of_first(now_seconds() >= end)) {
        if (dist::is_first()) internal::warn(str_cat(e.what(), "; this replica writes no checkpoint until then"));
        return false;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  check_shared(setup.dir);
  saver.set_saved(std::stoll(value_of_first(std::to_string(newest_step(setup.dir)))));
  return true;
}

}  // namespace weft::train
