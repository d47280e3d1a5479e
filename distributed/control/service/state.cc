#include "distributed/control/service/state.h"

#include <algorithm>

#include "distributed/control/service/check.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

End cause_of(Code code, int64_t rank, const std::string& text) {
  End end;
  *end.mutable_cause() = failure_of(code, text);
  end.set_rank(rank);
  return end;
}

Code code_of(uint32_t sent) { return sent >= 3 && sent <= 15 ? static_cast<Code>(sent) : Code::kAborted; }

/// The transition for one event.
class ServiceTransition {
 public:
  explicit ServiceTransition(ServiceState& s) : s_(s) {}

  Outcome run(const ServiceEvent& e) {
    pass_time(e.now_ms);
    switch (e.kind) {
      case ServiceEvent::ServiceEventKind::kMessage:
        message(e.connection, e.message);
        break;
      case ServiceEvent::ServiceEventKind::kClosed:
        closed(e.connection);
        break;
      case ServiceEvent::ServiceEventKind::kTick:
        break;
      case ServiceEvent::ServiceEventKind::kDeath:
        death(e.death, "the launcher");
        break;
    }
    if (e.kind == ServiceEvent::ServiceEventKind::kTick) {
      end_waits();
      find_deaths();
    }
    return std::move(out_);
  }

 private:
  // ---- output ----
  ServiceMessage& reply(uint64_t connection, uint64_t incarnation, uint64_t sequence) {
    Addressed& a = out_.replies.emplace_back();
    a.message.set_incarnation(incarnation);
    a.connection = connection;
    a.message.set_epoch(s_.epoch);
    a.message.set_sequence(sequence);
    return a.message;
  }
  ServiceMessage& reply(const Member& m, uint64_t sequence) {
    return reply(m.connection, m.process.incarnation(), sequence);
  }
  /// Replies to the sender of the event's message.
  ServiceMessage& reply(uint64_t connection, uint64_t sequence) { return reply(connection, sender_, sequence); }
  void refuse(uint64_t connection, uint64_t sequence, Code code, const std::string& text) {
    *reply(connection, sequence).mutable_failure() = failure_of(code, text);
  }
  void change(const Change& c) {
    if (commit(s_, c)) out_.changes.push_back(c);
  }
  /// Keeps the answer of a request, and sends it.
  void answer(const Member& m, uint64_t sequence, const Failure& failure) {
    Change c;
    Answered& a = *c.mutable_answered();
    a.set_rank(m.process.rank());
    a.set_sequence(sequence);
    a.set_floor(m.floor);
    *a.mutable_failure() = failure;
    change(c);
    repeat(m, sequence, failure);
  }
  void repeat(const Member& m, uint64_t sequence, const Failure& failure) {
    if (failure.code() == 0) {
      reply(m, sequence).mutable_done();
    } else {
      *reply(m, sequence).mutable_failure() = failure;
    }
  }
  /// Ends the epoch. The first cause stays.
  void end(const End& cause) {
    if (s_.stage == ServiceState::Stage::kEnded) return;
    Change c;
    *c.mutable_ended() = cause;
    change(c);
    for (const auto& [rank, m] : s_.members)
      if (!m.left && m.connection != 0) *reply(m, 0).mutable_end() = cause;
  }

  // ---- joins ----
  Process process_of(const MemberMessage& message) {
    const Join& join = message.join();
    Process p;
    p.set_rank(message.rank());
    p.set_incarnation(message.incarnation());
    p.set_host(join.host());
    p.set_pid(join.pid());
    *p.mutable_endpoints() = join.endpoints();
    return p;
  }

  void join(uint64_t connection, const MemberMessage& message) {
    const Join& join = message.join();
    const std::string who = name_of(process_of(message));
    if (join.job() != s_.config.job)
      return refuse(connection, 0, Code::kFailedPrecondition,
                    str_cat("join: ", who, " belongs to job '", one_line(join.job(), 80),
                            "'; this is the coordination service of job '", one_line(s_.config.job, 80),
                            "': need another address or port"));
    if (message.epoch() < s_.epoch || message.epoch() > s_.epoch + 1)
      return refuse(connection, 0, Code::kAborted,
                    str_cat("join: ", who, " is of epoch ", message.epoch(), "; the service is in epoch ", s_.epoch));
    if (message.epoch() > s_.epoch) {
      if (s_.stage != ServiceState::Stage::kEnded) {
        reply(connection, 0).mutable_waiting()->set_text(str_cat("epoch ", s_.epoch, " has not ended"));
        return;
      }
      Change c;
      c.set_open(message.epoch());
      change(c);
    }
    const auto at = s_.members.find(message.rank());
    const bool known = at != s_.members.end() && at->second.process.incarnation() == message.incarnation();
    if (s_.stage == ServiceState::Stage::kEnded) {
      *reply(connection, 0).mutable_end() = s_.end;
    } else if (known) {
      join_again(connection, message, at->second);
    } else if (s_.stage == ServiceState::Stage::kRunning) {
      const std::string other =
          at == s_.members.end() ? "" : str_cat("; ", name_of(at->second.process), " is a member");
      refuse(connection, 0, Code::kFailedPrecondition,
             str_cat("join: ", who, " came when the world of ", s_.config.size, " ranks was complete", other,
                     ": need one process for each rank"));
    } else {
      join_first(connection, message, who);
    }
  }

  /// Accepts a repeated join, also from a member that has left: it may have missed the answer.
  void join_again(uint64_t connection, const MemberMessage& message, Member& m) {
    if (message.sequence() <= m.signal) return;  // arrived late, or twice
    connect(connection, message, m);
    admit(m);
  }

  void connect(uint64_t connection, const MemberMessage& message, Member& m) {
    m.connection = connection;
    m.signal = message.sequence();
    m.heard_ms = std::max(m.heard_ms, s_.now_ms);
    m.closed_ms = -1;
  }

  void join_first(uint64_t connection, const MemberMessage& message, const std::string& who) {
    if (const auto at = s_.members.find(message.rank()); at != s_.members.end()) {
      end(cause_of(Code::kFailedPrecondition, message.rank(),
                   str_cat("join: rank ", message.rank(), " was started twice: ", name_of(at->second.process), " and ",
                           who, "; need one process for each rank")));
      *reply(connection, 0).mutable_end() = s_.end;
      return;
    }
    if (message.join().size() != s_.config.size) {
      end(cause_of(Code::kFailedPrecondition, message.rank(),
                   str_cat("join: ", who, " was started for a world of ", message.join().size(), " ranks; need ",
                           s_.config.size, ", the size of the coordination service")));
      *reply(connection, 0).mutable_end() = s_.end;
      return;
    }
    if (message.join().has_failure()) {
      const Failure& f = message.join().failure();
      end(cause_of(code_of(f.code()), message.rank(), str_cat(who, " failed before it joined: ", one_line(f.text()))));
      *reply(connection, 0).mutable_end() = s_.end;
      return;
    }
    if (message.join().again())
      return refuse(connection, 0, Code::kDataLoss,
                    str_cat("join: ", who,
                            " is a member of a world that the coordination service does not know; need its "
                            "journal when it restarts"));
    Change c;
    *c.mutable_joined()->mutable_process() = process_of(message);
    *c.mutable_joined()->mutable_facts() = message.join().facts();
    change(c);
    Member& m = s_.members[message.rank()];
    connect(connection, message, m);
    if (s_.stage != ServiceState::Stage::kRunning) return admit(m);
    if (const End differ = difference_of(s_.members); differ.cause().code() != 0) return end(differ);
    for (const auto& [rank, member] : s_.members) admit(member);
  }

  /// Sends the world, or the missing ranks.
  void admit(const Member& m) {
    ServiceMessage& r = reply(m, 0);
    if (s_.stage == ServiceState::Stage::kRunning) {
      World& world = *r.mutable_world();
      for (const auto& [rank, member] : s_.members) *world.add_members() = member.process;
      return;
    }
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; rank < s_.config.size; ++rank)
      if (!s_.members.count(rank)) missing.push_back(rank);
    r.mutable_waiting()->set_text(
        str_cat(ranks_text(missing), " of ", s_.config.size,
                s_.config.host.empty() ? "" : str_cat(" (host ", one_line(s_.config.host, 80), ")"),
                missing.size() == 1 ? " has" : " have", " not joined"));
  }

  // ---- messages of members ----
  void message(uint64_t connection, const MemberMessage& message) {
    sender_ = message.incarnation();
    if (const std::string problem = problem_of(message, s_.config.limits); !problem.empty())
      return refuse(connection, is_request(message) ? message.sequence() : 0, Code::kInvalidArgument,
                    str_cat("the coordination service got ", problem));
    if (message.has_join()) return join(connection, message);
    const uint64_t sequence = is_request(message) ? message.sequence() : 0;
    const auto at = s_.members.find(message.rank());
    if (message.epoch() != s_.epoch || at == s_.members.end() ||
        at->second.process.incarnation() != message.incarnation())
      return refuse(connection, sequence, Code::kAborted,
                    str_cat("rank ", message.rank(), " of epoch ", message.epoch(),
                            " is no member; the coordination service is in epoch ", s_.epoch));
    Member& m = at->second;
    if (connection != m.connection) {  // an earlier connection, or a late join has replaced the member's latest one
      ServiceMessage& r = reply(connection, 0);
      if (s_.stage == ServiceState::Stage::kEnded) {
        *r.mutable_end() = s_.end;
      } else {
        r.mutable_rejoin();
      }
      return;
    }
    if (message.has_beat()) {
      beat(m, message);
    } else {
      request(m, message);
    }
  }

  static bool is_request(const MemberMessage& m) { return !m.has_join() && !m.has_beat(); }

  void beat(Member& m, const MemberMessage& message) {
    if (message.sequence() <= m.signal || m.left) return;
    m.signal = message.sequence();
    m.heard_ms = std::max(m.heard_ms, s_.now_ms);
    m.step = message.beat().step();
    m.phase = message.beat().phase();
    ServiceMessage& r = reply(m, 0);
    if (s_.stage == ServiceState::Stage::kEnded)
      *r.mutable_end() = s_.end;  // the message about it may have been lost
    else
      r.mutable_heard();
  }

  void request(Member& m, const MemberMessage& message) {
    const uint64_t n = message.sequence();
    if (message.floor() > n || n >= std::max(m.floor, message.floor()) + s_.config.limits.requests)
      return refuse(m.connection, n, Code::kResourceExhausted,
                    str_cat(name_of(m.process), ": request ", n, " while request ", message.floor(),
                            " has no answer; need at most ", s_.config.limits.requests, " requests without an answer"));
    raise_floor(m, message.floor());
    if (n < m.floor) return;  // the member has the answer already
    if (const auto a = m.answers.find(n); a != m.answers.end()) return repeat(m, n, a->second);
    if (s_.waiting.count({m.process.rank(), n})) return;
    if (s_.stage == ServiceState::Stage::kEnded) {
      *reply(m, 0).mutable_end() = s_.end;
      return;
    }
    if (m.left) return;
    if (s_.stage == ServiceState::Stage::kJoining && !message.has_abort() && !message.has_death())
      return refuse(m.connection, n, Code::kFailedPrecondition,
                    str_cat(name_of(m.process), ": a request before the world is complete"));
    carry_out(m, n, message);
  }

  void carry_out(Member& m, uint64_t n, const MemberMessage& message) {
    switch (message.kind_case()) {
      case MemberMessage::kSet:
        return set(m, n, message.set());
      case MemberMessage::kGet:
        return get(m, n, message.get());
      case MemberMessage::kBarrier:
        return barrier(m, n, message.barrier());
      case MemberMessage::kAbort: {
        return end(cause_of(code_of(message.abort().code()), m.process.rank(),
                            str_cat(name_of(m.process), ": ", one_line(message.abort().text()))));
      }
      case MemberMessage::kDeath: {
        const std::string by = name_of(m.process);
        return answer(m, n, death(message.death(), by));
      }
      case MemberMessage::kLeave:
        return leave(m, n);
      default:
        return;
    }
  }

  /// Requests below the floor need no answer any more: the member has the answer, or has given up.
  void raise_floor(Member& m, uint64_t floor) {
    if (floor <= m.floor) return;
    m.floor = floor;
    m.answers.erase(m.answers.begin(), m.answers.lower_bound(floor));
    const uint32_t rank = m.process.rank();
    for (auto w = s_.waiting.lower_bound({rank, 0}); w != s_.waiting.end() && w->first < RequestId{rank, floor};)
      w = remove(w);
  }

  // ---- keys ----
  void set(Member& m, uint64_t n, const Set& set) {
    const auto at = s_.keys.find(set.key());
    const size_t before = at == s_.keys.end() ? 0 : set.key().size() + at->second.size();
    const ServiceLimits& limits = s_.config.limits;
    if (at == s_.keys.end() && s_.keys.size() >= limits.keys)
      return answer(m, n,
                    failure_of(Code::kResourceExhausted,
                               str_cat("set of key '", one_line(set.key(), 80), "' by ", name_of(m.process),
                                       ": the coordination service has ", limits.keys, " keys, its limit")));
    if (s_.stored_bytes - before + set.key().size() + set.value().size() > limits.stored_bytes)
      return answer(
          m, n,
          failure_of(Code::kResourceExhausted,
                     str_cat("set of key '", one_line(set.key(), 80), "' by ", name_of(m.process), ": ",
                             set.value().size(), " bytes more than the coordination service can keep; it has ",
                             s_.stored_bytes, " of ", limits.stored_bytes)));
    Change c;
    *c.mutable_stored() = set;
    change(c);
    answer(m, n, Failure());
    const auto waiting = s_.gets.find(set.key());
    if (waiting == s_.gets.end()) return;
    for (const RequestId& id : std::vector<RequestId>(waiting->second)) {
      reply(s_.members[id.first], id.second).set_value(set.value());
      remove(s_.waiting.find(id));
    }
  }

  void get(Member& m, uint64_t n, const Get& get) {
    if (const auto at = s_.keys.find(get.key()); at != s_.keys.end()) {
      reply(m, n).set_value(at->second);
      return;
    }
    wait(m, n, {.barrier = false, .name = get.key()}, get.wait_ms());
  }

  // ---- barriers ----
  void barrier(Member& m, uint64_t n, const Barrier& barrier) {
    if (const auto at = s_.barriers.find(barrier.name()); at != s_.barriers.end())
      for (const RequestId& id : at->second)
        if (id.first == m.process.rank())
          return answer(m, n,
                        failure_of(Code::kFailedPrecondition,
                                   str_cat("barrier '", one_line(barrier.name(), 80), "': ", name_of(m.process),
                                           " entered twice at once; need one entry of each rank")));
    wait(m, n, {.barrier = true, .name = barrier.name()}, barrier.wait_ms());
    release(barrier.name());
  }

  /// Lets the members through if all that have not left are in the barrier.
  void release(const std::string& name) {
    const auto at = s_.barriers.find(name);
    if (at == s_.barriers.end()) return;
    size_t live = 0;
    for (const auto& [rank, m] : s_.members) live += !m.left;
    if (at->second.size() < live) return;
    for (const RequestId& id : std::vector<RequestId>(at->second)) {
      remove(s_.waiting.find(id));
      answer(s_.members[id.first], id.second, Failure());
    }
  }

  void leave(Member& m, uint64_t n) {
    const uint32_t rank = m.process.rank();
    for (auto w = s_.waiting.lower_bound({rank, 0}); w != s_.waiting.end() && w->first.first == rank;) w = remove(w);
    Change c;
    c.set_left(rank);
    change(c);
    answer(m, n, Failure());
    std::vector<std::string> names;
    for (const auto& [name, ids] : s_.barriers) names.push_back(name);
    for (const std::string& name : names) release(name);
    for (const auto& [other, member] : s_.members)
      if (!member.left) return;
    End finished;
    finished.set_finished(true);
    finished.set_rank(-1);
    end(finished);
  }

  // ---- waiting ----
  void wait(const Member& m, uint64_t n, WaitingRequest w, uint64_t ms) {
    w.begin_ms = s_.now_ms;
    w.deadline_ms = s_.now_ms + static_cast<int64_t>(ms);
    const RequestId id{m.process.rank(), n};
    (w.barrier ? s_.barriers : s_.gets)[w.name].push_back(id);
    s_.waiting.emplace(id, std::move(w));
  }

  using Waits = std::map<RequestId, WaitingRequest>;
  Waits::iterator remove(Waits::iterator w) {
    auto& by_name = w->second.barrier ? s_.barriers : s_.gets;
    const auto at = by_name.find(w->second.name);
    at->second.erase(std::find(at->second.begin(), at->second.end(), w->first));
    if (at->second.empty()) by_name.erase(at);
    return s_.waiting.erase(w);
  }

  void end_waits() {
    for (auto w = s_.waiting.begin(); w != s_.waiting.end();) {
      if (w->second.deadline_ms > s_.now_ms) {
        ++w;
        continue;
      }
      const RequestId id = w->first;
      const std::string text = late_text(s_.members[id.first], w->second);
      w = remove(w);
      answer(s_.members[id.first], id.second, failure_of(Code::kDeadlineExceeded, text));
    }
  }

  std::string late_text(const Member& m, const WaitingRequest& w) {
    const std::string waited = str_cat(name_of(m.process), " waited ", seconds_text(s_.now_ms - w.begin_ms));
    const std::string name = one_line(w.name, 80);
    if (!w.barrier) return str_cat("get of key '", name, "': ", waited, ", and no rank has set it");
    std::vector<const Process*> missing;
    const std::vector<RequestId>& in = s_.barriers[w.name];
    for (const auto& [rank, member] : s_.members) {
      const bool entered = std::any_of(in.begin(), in.end(), [&](const RequestId& id) { return id.first == rank; });
      if (!entered && !member.left) missing.push_back(&member.process);
    }
    return str_cat("barrier '", name, "': ", waited, " for ", names_text(missing), "; need all ranks: check ",
                   missing.size() == 1 ? "this rank" : "these ranks");
  }

  // ---- deaths ----
  void pass_time(int64_t now_ms) {
    const int64_t gap = now_ms - s_.now_ms;
    if (gap <= 0) return;
    s_.now_ms = now_ms;
    if (gap <= s_.config.stall_ms) return;
    for (auto& [rank, m] : s_.members) {
      m.heard_ms += gap;
      if (m.closed_ms >= 0) m.closed_ms += gap;
    }
  }

  void closed(uint64_t connection) {
    for (auto& [rank, m] : s_.members)
      if (m.connection == connection) {
        m.connection = 0;
        m.closed_ms = s_.now_ms;
      }
  }

  void find_deaths() {
    if (s_.stage == ServiceState::Stage::kEnded) return;
    for (const auto& [rank, m] : s_.members) {
      if (m.left) continue;
      const int64_t silent = s_.now_ms - m.heard_ms;
      const bool gone = m.closed_ms >= 0 && s_.now_ms - m.closed_ms > s_.config.reconnect_ms;
      if (!gone && silent <= s_.config.silence_ms) continue;
      const std::string why = gone ? "its connection closed, and it did not connect again"
                                   : str_cat("no heartbeat for ", seconds_text(silent));
      const std::string last =
          m.step == 0 && m.phase.empty()
              ? ""
              : str_cat("; it was in step ", m.step, m.phase.empty() ? "" : ", phase " + one_line(m.phase, 80));
      return end(cause_of(Code::kUnavailable, rank,
                          str_cat(name_of(m.process), " is dead or stopped: ", why, last,
                                  "; see its output, and whether its host ran out of memory")));
    }
  }

  Failure death(const Death& death, const std::string& by) {
    const auto at = s_.members.find(death.rank());
    if (at == s_.members.end() && s_.stage == ServiceState::Stage::kJoining && death.rank() < s_.config.size) {
      end(cause_of(
          Code::kUnavailable, death.rank(),
          str_cat("rank ", death.rank(), " died before it joined: ", one_line(death.text()), "; reported by ", by)));
      return Failure();
    }
    if (at == s_.members.end() || at->second.left)
      return failure_of(Code::kInvalidArgument, str_cat("death of rank ", death.rank(), " reported by ", by,
                                                        ": it is no member of epoch ", s_.epoch));
    end(cause_of(Code::kUnavailable, death.rank(),
                 str_cat(name_of(at->second.process), " died: ", one_line(death.text()), "; reported by ", by)));
    return Failure();
  }

  ServiceState& s_;
  Outcome out_;
  uint64_t sender_ = 0;  // the incarnation in the event's message
};

}  // namespace

Outcome apply(ServiceState& state, const ServiceEvent& event) { return ServiceTransition(state).run(event); }

}  // namespace weft::control
