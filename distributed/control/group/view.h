// Views: which replicas train together from which step on. The views in their order are the journal of a group. The
// history of the run follows from them: the replicas of each step, and the rows of the data that it takes.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/io/fields/fields.h"

namespace weft::control {

struct ViewMember {
  std::string name;         // name of the replica
  int64_t incarnation = 0;  // rises with each start of the replica; 1 or more
  bool heals = false;       // it takes the state at the view's start from the others before its first sum
  std::string own = {};     // values of this replica alone: a line "name value" for each

  bool operator==(const ViewMember&) const = default;
};

struct ReplicaView {
  int64_t number = 0;  // 0: no view
  int64_t start = 0;   // its first step
  int64_t after = 0;   // it continues from the state of this view at `start`, whose later steps are cancelled; 0: none
  std::vector<ViewMember> members = {};
  std::string facts = {};  // values that are equal in all replicas: a line "name value" for each
  bool ended = false;      // the run ended at `start`: the view has no steps
  int64_t note = 0;        // the largest note of the members that reported: of a step that the view commits

  bool operator==(const ReplicaView&) const = default;
};

template <class V>
void fields(V& v, ViewMember& m) {
  v("name", m.name), v("incarnation", m.incarnation), v("heals", m.heals, {.in = io::In::kIfSet});
  v("own", m.own, {.in = io::In::kIfSet});
}
template <class V>
void fields(V& v, ReplicaView& view) {
  v("number", view.number), v("start", view.start), v("after", view.after), v("members", view.members);
  v("facts", view.facts), v("ended", view.ended, {.in = io::In::kIfSet});
  v("note", view.note, {.in = io::In::kIfSet});
}

/// Limits of numbers, lists and texts of a view. kMostSteps steps of kReplicas members have fewer than 2^63 parts.
inline constexpr int64_t kMostSteps = int64_t{1} << 50, kMostIncarnation = int64_t{1} << 62, kMostNote = 0x7fffffff;
inline constexpr size_t kReplicas = 4096, kReplicaNameBytes = 256, kReplicaFactsBytes = 4000, kReplicaOwnBytes = 400;

/// The member that is this process; null if the view has none.
const ViewMember* find(const ReplicaView& view, const std::string& name, int64_t incarnation);
/// The value of the line `name` of a member's own values; "": it has no such line.
std::string own_value(const ViewMember& member, const std::string& name);
/// The names of the values that are the mesh of one replica, and its number of processes.
inline constexpr const char *kMeshValue = "mesh", *kProcessesValue = "processes";
/// Whether all members have one mesh, in equal numbers of processes. Then equal ranks of them exchange, and else their
/// leaders.
bool has_equal_ranks(const ReplicaView& view);
/// Returns why `view` cannot follow `before`, as "view 5 has start ...; need ...", or "". If `before` has no number,
/// any number follows.
std::string problem_of(const ReplicaView& before, const ReplicaView& view);

/// A view as a record of the journal: one line of JSON.
std::string record_of(const ReplicaView& view);
/// The view of a record that follows `before`. Throws InvalidArgument "record: ..." for all other texts.
ReplicaView view_of(std::string_view record, const ReplicaView& before);

/// The views that made the state of view `number`, by rising starts. The steps of each end where the next one begins.
/// `all`: also views without steps, in which replicas have healed.
std::vector<ReplicaView> history_of(const std::vector<ReplicaView>& views, int64_t number, bool all = false);
/// The number of parts of the data that the steps of these views before `step` took: each step takes one part for each
/// member. If the first view starts at step 0, the member at place p takes part parts_before(history, step) + p in
/// `step`.
int64_t parts_before(const std::vector<ReplicaView>& history, int64_t step);

}  // namespace weft::control
