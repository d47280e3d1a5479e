#include "distributed/control/group/view.h"

#include <algorithm>
#include <ranges>
#include <set>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/fields/json_fields.h"

namespace weft::control {
namespace {

std::string problem_of_members(const ReplicaView& before, const ReplicaView& view) {
  if (view.members.empty() || view.members.size() > kReplicas)
    return str_cat(view.members.size(), " members; need 1 to ", kReplicas);
  std::set<std::string> names;
  bool held = false;
  for (const ViewMember& m : view.members) {
    const std::string name = str_cat("member '", one_line(m.name, 40), "'");
    if (m.name.empty() || m.name.size() > kReplicaNameBytes)
      return str_cat("a member's name of ", m.name.size(), " bytes; need 1 to ", kReplicaNameBytes);
    if (m.incarnation < 1 || m.incarnation > kMostIncarnation)
      return str_cat(name, " with incarnation ", m.incarnation, "; need 1 to ", kMostIncarnation);
    if (m.own.size() > kReplicaOwnBytes)
      return str_cat(name, " with own values of ", m.own.size(), " bytes; need at most ", kReplicaOwnBytes);
    if (m.heals && view.ended)
      return str_cat(name, ", which heals after the end of the run; need only finished members");
    if (!names.insert(m.name).second) return str_cat(name, " twice; need each once");
    held = held || !m.heals;
    const auto earlier = std::ranges::find(before.members, m.name, &ViewMember::name);
    if (earlier == before.members.end()) continue;
    if (earlier->incarnation > m.incarnation)
      return str_cat(name, " with incarnation ", m.incarnation, " after ", earlier->incarnation, "; need a later one");
    const bool continues = earlier->incarnation == m.incarnation && !earlier->heals && !m.heals;
    if (continues && (view.start < before.start || view.after != before.number))
      return str_cat("start ", view.start, " after view ", view.after, " and ", name, ", which was at step ",
                     before.start, " in view ", before.number, "; need a later start in this view");
  }
  return held ? "" : "no member that has the state; need one that does not heal";
}

}  // namespace

const ViewMember* find(const ReplicaView& view, const std::string& name, int64_t incarnation) {
  const auto at = std::ranges::find(view.members, name, &ViewMember::name);
  return at == view.members.end() || at->incarnation != incarnation ? nullptr : &*at;
}

std::string problem_of(const ReplicaView& before, const ReplicaView& view) {
  const std::string place = str_cat("view ", view.number, " has ");
  if (before.number != 0 ? view.number != before.number + 1 : view.number < 1 || view.number > kMostSteps)
    return str_cat("got view ", view.number, " after view ", before.number, "; need the views in their order");
  if (view.start < 0 || view.start > kMostSteps)
    return str_cat(place, "start ", view.start, "; need 0 to ", kMostSteps);
  if (view.after < 0 || view.after >= view.number)
    return str_cat(place, "the state of view ", view.after, "; need an earlier view");
  if (view.facts.size() > kReplicaFactsBytes)
    return str_cat(place, "facts of ", view.facts.size(), " bytes; need at most ", kReplicaFactsBytes);
  if (view.note < 0 || view.note > kMostNote) return str_cat(place, "note ", view.note, "; need 0 to ", kMostNote);
  const std::string members = problem_of_members(before, view);
  return members.empty() ? "" : place + members;
}

std::string own_value(const ViewMember& member, const std::string& name) {
  const std::string all = "\n" + member.own, start = "\n" + name + " ";
  const size_t at = all.find(start);
  if (at == all.npos) return "";
  const size_t begin = at + start.size();
  return all.substr(begin, all.find('\n', begin) - begin);
}

bool has_equal_ranks(const ReplicaView& view) {
  return std::ranges::all_of(view.members, [&](const ViewMember& m) {
    const auto is_equal = [&](const char* name) { return own_value(m, name) == own_value(view.members[0], name); };
    return is_equal(kMeshValue) && is_equal(kProcessesValue);
  });
}

std::string record_of(const ReplicaView& view) { return io::write_json(io::json_of(view)); }

ReplicaView view_of(std::string_view record, const ReplicaView& before) {
  ReplicaView view;
  io::read_fields(view, io::parse_json(record, "record"), "record");
  const std::string problem = problem_of(before, view);
  WEFT_CHECK(problem.empty(), "record: ", problem);
  return view;
}

std::vector<ReplicaView> history_of(const std::vector<ReplicaView>& views, int64_t number, bool all) {
  std::vector<ReplicaView> history;
  for (const ReplicaView& v : views | std::views::reverse) {
    if (v.number != number) continue;
    if (history.empty() || v.start < history.back().start + all) history.push_back(v);
    number = v.after;
  }
  std::ranges::reverse(history);
  return history;
}

int64_t parts_before(const std::vector<ReplicaView>& history, int64_t step) {
  int64_t parts = 0;
  for (size_t i = 0; i < history.size() && history[i].start < step; ++i) {
    const int64_t end = i + 1 < history.size() ? std::min(history[i + 1].start, step) : step;
    parts += (end - history[i].start) * static_cast<int64_t>(history[i].members.size());
  }
  return parts;
}

}  // namespace weft::control
