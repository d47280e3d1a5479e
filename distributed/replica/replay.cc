#include "distributed/replica/replay.h"

#include <algorithm>

#include "distributed/control/group/group.h"
#include "distributed/control/service/journal.h"
#include "distributed/replica/replica_run.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::dist {

using FactList = std::vector<std::pair<std::string, std::string>>;

Replay::Replay(const std::string& path) : path_(path) {
  std::vector<control::ReplicaView> views;
  control::GroupState state{.config = {.replicas = control::kReplicas}};
  const std::string title = control::read_journal(path, [&](const std::string& record) {
    const std::string problem = control::commit(state, record);
    if (problem.empty()) views.push_back(state.view);
    return problem;
  });
  WEFT_CHECK(title.starts_with(control::kGroupTitle), path, ": is the journal of a job; need the journal of replicas");
  WEFT_CHECK(!views.empty(), path, ": has no view: no replica has made a step");
  replicas_ = control::replicas_in(title);
  WEFT_CHECK(replicas_ > 0, path, ": its title '", one_line(title, 200), "' has no number of replicas");
  history_ = control::history_of(views, views.back().number);
  all_ = control::history_of(views, views.back().number, /*all=*/true);
}

const control::ReplicaView& Replay::view_at(int64_t step) const {
  const auto next = std::ranges::upper_bound(history_, step, {}, &control::ReplicaView::start);
  WEFT_CHECK_AS(kOutOfRange, next != history_.begin(), "replay: the views of ", path_, " begin after step ", step);
  return next[-1];
}

std::vector<control::ReplicaView> Replay::views_from(int64_t step) const {
  const auto same = std::ranges::equal_range(all_, step, {}, &control::ReplicaView::start);
  return {same.begin(), same.end()};
}

// Throws if a fact differs from the line of a view with its name.
static void check_facts(const std::string& path, const std::string& of_view, const FactList& facts) {
  for (const auto& [name, value] : facts) {
    const std::string line = fact_line(name, value), all = "\n" + of_view + "\n";
    const size_t other = all.find("\n" + name + " ");
    if (other == all.npos || all.find("\n" + line) != all.npos) continue;
    const std::string was = all.substr(other + 1, all.find('\n', other + 1) - other - 1);
    internal::fail(
        Code::kFailedPrecondition,
        str_cat("replay: the views of ", path, " are of a run with ", one_line(was, 300), ", and this run has ",
                one_line(line.substr(0, line.size() - 1), 300), "; give the flags and the data of that run"));
  }
}

void Replay::check(const RunPosition& from, int64_t rows, const FactList& facts) const {
  check_facts(path_, history_.back().facts, facts);
  const control::ReplicaView& first = history_[0];
  WEFT_CHECK_AS(kFailedPrecondition, from.step >= first.start, "replay: the views of ", path_, " begin at step ",
                first.start, ", and this run at step ", from.step, "; need a checkpoint of the elastic run from there");
  if (from.step == first.start) return;
  WEFT_CHECK_AS(kFailedPrecondition, rows > 0, "replay: the views of ", path_,
                " begin before the state of this run; need the state with which they begin, because each replica has a "
                "state of its own");
  const int64_t made_by = at(from.step - 1).view;
  WEFT_CHECK_AS(kFailedPrecondition, from.view == made_by, "replay: the checkpoint of step ", from.step, " is of view ",
                from.view, ", and the views of ", path_, " make this step in view ", made_by,
                "; need a checkpoint of the elastic run that no later view has cancelled");
  const int64_t samples = at(from.step).first * rows;
  WEFT_CHECK_AS(kFailedPrecondition, first.start > 0 || from.samples == samples, "replay: the checkpoint of step ",
                from.step, " is at sample ", from.samples, ", and the views of ", path_, " at sample ", samples,
                "; need the batch and the mesh of the elastic run");
}

}  // namespace weft::dist
