#include "distributed/replica/replica_run.h"

#include <algorithm>
#include <cstdio>

#include "distributed/launch/processes.h"
#include "distributed/replica/state_parts.h"
#include "framework/base/cpu.h"
#include "framework/base/error.h"
#include "framework/io/checksum.h"

namespace weft::dist {

std::string fact_line(const std::string& name, const std::string& value) {
  constexpr size_t kMost = 200;
  const bool whole = value.size() <= kMost && value.find('\n') == value.npos;
  return str_cat(name, " ", whole ? value : str_cat("checksum ", io::hex64(io::checksum(value))), "\n");
}

std::string own_values(const Mesh& mesh, int64_t rows) {
  const Processes* const job = Processes::current();
  return str_cat(control::kMeshValue, " ", mesh.size() > 1 ? mesh.to_string() : "of one rank", "\n",
                 control::kProcessesValue, " ", job ? job->size() / job->count() : 1, "\n", kInstructionsValue, " ",
                 to_string_view(selected_isa()), "\n", kRowsValue, " ", rows, "\n");
}

ReplicaRun::ReplicaRun(const ReplicaOptions& options, std::function<int64_t(int64_t)> made_before)
    : name_(options.name),
      replicas_(options.replicas),
      timeout_(options.timeout),
      made_before_(std::move(made_before)),
      member_(options) {
  if (!made_before_) scope_.emplace(member_);
}

bool ReplicaRun::enter(const ReplicaState& s) {
  while (!member_.has_view()) {
    const LiveView& live = member_.next_view();
    if (live.ended) return false;
    const auto count = std::ssize(live.view.members);
    std::vector<bool> heals;
    int64_t joiners = 0;
    for (const control::ViewMember& m : live.view.members) heals.push_back(m.heals), joiners += m.heals;
    World& world = s.prepare(count);
    if (joiners == 0) return true;
    const bool takes = live.heals;
    HealedCells healed;
    try {
      healed = heal_cells(
          world, s.cells, s.shards(count, !takes), [&](int rank) { return member_.communicator(rank); }, heals,
          live.place, takes ? "" : s.record(), std::chrono::steady_clock::now() + timeout_, made_before_ != nullptr,
          member_.leaders_only());
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
    s.adopt(healed.record);
    if (is_first()) {
      std::printf("replica %s has the state of step %ld from the others\n", name_.c_str(), first_step());
      std::fflush(stdout);
    }
  }
  return true;
}

bool ReplicaRun::vote(bool has_sums) {
  Processes* const job = Processes::current();
  int64_t words[2] = {!has_sums, member_.note()};
  if (job) job->max({words, kInt64, {2}, {1}});
  if (words[0] != 0) member_.close("a replica has not all sums");
  int64_t result[2] = {};
  if (is_first()) {
    const VoteResult r = member_.vote(words[0] == 0, words[1], std::chrono::steady_clock::now() + timeout_);
    result[0] = r.committed, result[1] = r.note;
  }
  if (job) job->broadcast(0, {result, kInt64, {2}, {1}});
  member_.decided({result[0] != 0, result[1]});
  return result[0] != 0;
}

// The number of training steps before the view.
int64_t ReplicaRun::first_step() const {
  const int64_t start = member_.live().view.start;
  return made_before_ ? made_before_(start) : start;
}

DataPart ReplicaRun::part(int64_t parts) const {
  const LiveView& live = member_.live();
  return {.view = live.view.number, .first = parts, .live = std::ssize(live.view.members), .place = live.place};
}

void ReplicaRun::prepare_next(const ReplicaState& s) {
  const control::ReplicaView& view = member_.live().view;
  if (std::exchange(prepared_, view.number) == view.number) return;
  const int64_t count = std::ssize(view.members);
  for (const int64_t next : {count - 1, count + 1})
    if (next >= 1 && next <= replicas_) s.prepare(next);
}

int ReplicaRun::code() const { return static_cast<int>(std::max<int64_t>(member_.group_note(), 1) - 1); }

std::string ReplicaRun::text() const {
  const control::ReplicaView& view = member_.live().view;
  std::string names;
  for (const control::ViewMember& m : view.members) names += (names.empty() ? "" : ", ") + m.name;
  return str_cat("view ", view.number, " from step ", first_step(), ": ", view.members.size(), " of ", replicas_,
                 " replicas: ", names);
}

}  // namespace weft::dist
