// Changes of the service's state for its journal: applies them, and lists the changes that make a whole state.
#include <algorithm>

#include "distributed/control/service/state.h"
#include "framework/base/str_cat.h"

namespace weft::control {
namespace {

bool join(ServiceState& s, const Joined& joined) {
  const uint32_t rank = joined.process().rank();
  if (s.stage != ServiceState::Stage::kJoining || rank >= s.config.size || s.members.count(rank)) return false;
  Member& m = s.members[rank];
  m.process = joined.process();
  m.facts.assign(joined.facts().begin(), joined.facts().end());
  m.heard_ms = s.now_ms;
  if (s.members.size() == s.config.size) s.stage = ServiceState::Stage::kRunning;
  return true;
}

bool store(ServiceState& s, const Set& set) {
  auto [at, is_new] = s.keys.try_emplace(set.key());
  if (is_new) s.stored_bytes += set.key().size();
  s.stored_bytes += set.value().size() - at->second.size();
  at->second = set.value();
  return true;
}

bool answer(ServiceState& s, const Answered& a) {
  const auto at = s.members.find(a.rank());
  if (at == s.members.end()) return false;
  Member& m = at->second;
  m.floor = std::max(m.floor, a.floor());
  m.answers.erase(m.answers.begin(), m.answers.lower_bound(m.floor));
  if (a.sequence() >= m.floor) m.answers[a.sequence()] = a.failure();
  return true;
}

bool end(ServiceState& s, const End& cause) {
  if (s.stage == ServiceState::Stage::kEnded) return false;
  s.stage = ServiceState::Stage::kEnded;
  s.end = cause;
  s.keys.clear();
  s.stored_bytes = 0;
  s.waiting.clear();
  s.barriers.clear();
  s.gets.clear();
  return true;
}

bool open(ServiceState& s, uint64_t epoch) {
  if (epoch <= s.epoch) return false;
  end(s, End());
  s.stage = ServiceState::Stage::kJoining;
  s.end = End();
  s.members.clear();
  s.epoch = epoch;
  return true;
}

}  // namespace

bool commit(ServiceState& s, const Change& change) {
  switch (change.kind_case()) {
    case Change::kOpen:
      return open(s, change.open());
    case Change::kJoined:
      return join(s, change.joined());
    case Change::kStored:
      return store(s, change.stored());
    case Change::kAnswered:
      return answer(s, change.answered());
    case Change::kLeft: {
      const auto at = s.members.find(change.left());
      if (at == s.members.end()) return false;
      at->second.left = true;
      return true;
    }
    case Change::kEnded:
      return end(s, change.ended());
    case Change::KIND_NOT_SET:
      return false;
  }
  return false;
}

std::vector<Change> changes_of(const ServiceState& s) {
  std::vector<Change> out;
  if (s.epoch != s.config.epoch) out.emplace_back().set_open(s.epoch);
  for (const auto& [rank, m] : s.members) {
    Joined& joined = *out.emplace_back().mutable_joined();
    *joined.mutable_process() = m.process;
    joined.mutable_facts()->Assign(m.facts.begin(), m.facts.end());
  }
  for (const auto& [key, value] : s.keys) {
    Set& set = *out.emplace_back().mutable_stored();
    set.set_key(key);
    set.set_value(value);
  }
  for (const auto& [rank, m] : s.members) {
    Answered floor;
    floor.set_rank(rank);
    floor.set_floor(m.floor);
    *out.emplace_back().mutable_answered() = floor;
    for (const auto& [sequence, failure] : m.answers) {
      Answered& a = *out.emplace_back().mutable_answered();
      a = floor;
      a.set_sequence(sequence);
      *a.mutable_failure() = failure;
    }
    if (m.left) out.emplace_back().set_left(rank);
  }
  if (s.stage == ServiceState::Stage::kEnded) *out.emplace_back().mutable_ended() = s.end;
  return out;
}

std::string title_of(const ServiceState& s) {
  return str_cat("weft coordination journal 1, job '", s.config.job, "', ", s.config.size, " ranks");
}

std::string record_of(const std::vector<Change>& changes) {
  Changes record;
  record.mutable_changes()->Assign(changes.begin(), changes.end());
  return record.SerializeAsString();
}

std::string commit(ServiceState& s, const std::string& record) {
  Changes changes;
  if (!changes.ParseFromString(record)) return "its bytes are no changes";
  for (const Change& c : changes.changes())
    if (!commit(s, c)) return "a change does not follow from those before it";
  return "";
}

void restart(ServiceState& s, int64_t now_ms) {
  s.now_ms = now_ms;
  for (auto& [rank, m] : s.members) m.heard_ms = now_ms + s.config.restart_ms - s.config.silence_ms;
}

}  // namespace weft::control
