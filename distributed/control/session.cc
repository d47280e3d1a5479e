#include "distributed/control/session.h"

#include <algorithm>
#include <utility>

#include "distributed/control/service/check.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

std::string name_of(const SessionConfig& c) {
  Process p;
  p.set_rank(c.rank);
  p.set_host(c.host);
  p.set_pid(c.pid);
  return name_of(p);
}

std::string what_of(const MemberMessage& m) {
  switch (m.kind_case()) {
    case MemberMessage::kSet:
      return str_cat("set of key '", one_line(m.set().key(), 80), "'");
    case MemberMessage::kGet:
      return str_cat("get of key '", one_line(m.get().key(), 80), "'");
    case MemberMessage::kBarrier:
      return str_cat("barrier '", one_line(m.barrier().name(), 80), "'");
    case MemberMessage::kAbort:
      return "abort";
    case MemberMessage::kDeath:
      return "report of a death";
    case MemberMessage::kLeave:
      return "leave";
    default:
      return "request";
  }
}

}  // namespace

MemberMessage Session::headed(MemberMessage m, uint64_t sequence) const {
  m.set_epoch(config_.epoch);
  m.set_rank(config_.rank);
  m.set_incarnation(config_.incarnation);
  m.set_sequence(sequence);
  m.set_floor(pending_.empty() ? sequence_ + 1 : pending_.begin()->first);
  return m;
}

void Session::send_join(int64_t now_ms, SessionOutput& out) {
  MemberMessage m;
  Join& join = *m.mutable_join();
  join.set_job(config_.job);
  join.set_size(config_.size);
  join.set_host(config_.host);
  join.set_pid(config_.pid);
  for (const std::string& e : config_.endpoints) join.add_endpoints(e);
  for (const auto& [name, value] : config_.facts) {
    Fact& fact = *join.add_facts();
    fact.set_name(name);
    fact.set_value(value);
  }
  join.set_again(world_.has_value());
  if (config_.failure) *join.mutable_failure() = *config_.failure;
  signalled_ms_ = now_ms;
  out.messages.push_back(headed(std::move(m), ++signal_));
}

void Session::connected(int64_t now_ms, SessionOutput& out) {
  connected_ = true;
  bound_ = false;
  for (auto& [sequence, p] : pending_) p.sent_ms = -1;
  if (!end_ && !left_) send_join(now_ms, out);
}

void Session::send(int64_t now_ms, PendingMessage& p, SessionOutput& out) {
  const auto wait = static_cast<uint64_t>(
      std::clamp<int64_t>(p.deadline_ms - now_ms, 0, static_cast<int64_t>(ServiceLimits().wait_ms)));
  if (p.message.has_get()) p.message.mutable_get()->set_wait_ms(wait);
  if (p.message.has_barrier()) p.message.mutable_barrier()->set_wait_ms(wait);
  p.sent_ms = now_ms;
  out.messages.push_back(headed(p.message, p.message.sequence()));
}

void Session::send_pending(int64_t now_ms, SessionOutput& out) {
  for (auto& [sequence, p] : pending_) {
    const bool may = bound_ || (connected_ && p.message.has_abort());  // an abort may come before the world
    if (may && (p.sent_ms < 0 || now_ms - p.sent_ms >= config_.resend_ms)) send(now_ms, p, out);
  }
}

uint64_t Session::request(int64_t now_ms, MemberMessage content, int64_t deadline_ms, SessionOutput& out) {
  const uint64_t n = ++sequence_;
  content.set_sequence(n);
  const bool leaves = content.has_leave();
  pending_[n] = {std::move(content), now_ms, deadline_ms, -1};
  if (end_) {  // the epoch has ended: a leave has nothing left to do
    finish(n, leaves ? Failure() : end_->cause(), "", out);
  } else {
    send_pending(now_ms, out);
  }
  return n;
}

void Session::finish(uint64_t sequence, Failure failure, std::string value, SessionOutput& out) {
  const auto at = pending_.find(sequence);
  if (at == pending_.end()) return;  // a repeated answer
  if (at->second.message.has_leave() && failure.code() == 0) left_ = true;
  pending_.erase(at);
  out.answers.push_back({sequence, std::move(failure), std::move(value)});
}

void Session::set_end(const End& end, SessionOutput& out) {
  if (end_) return;
  end_ = end;
  while (!pending_.empty()) {
    const auto& [sequence, p] = *pending_.begin();
    // An abort wants this end, and after the end a leave has nothing left to do.
    const bool done = end.finished() || p.message.has_abort() || p.message.has_death() || p.message.has_leave();
    finish(sequence, done ? Failure() : end.cause(), "", out);
  }
}

void Session::received(int64_t now_ms, const ServiceMessage& m, SessionOutput& out) {
  if (m.incarnation() != config_.incarnation) return;
  heard_ms_ = now_ms;
  if (m.sequence() != 0) {
    if (m.has_done()) finish(m.sequence(), Failure(), "", out);
    if (m.has_value()) finish(m.sequence(), Failure(), m.value(), out);
    if (m.has_failure()) finish(m.sequence(), m.failure(), "", out);
    return;
  }
  if (m.has_failure()) {  // refused
    End end;
    *end.mutable_cause() = m.failure();
    end.set_rank(config_.rank);
    set_end(end, out);
  }
  if (m.has_waiting()) missing_ = m.waiting().text();
  if (m.epoch() != config_.epoch) return;
  if (m.has_end()) set_end(m.end(), out);
  if (m.has_rejoin()) bound_ = false;  // the next beat is a join
  if (m.has_world()) {
    if (!world_) world_ = m.world();
    bound_ = connected_;
    send_pending(now_ms, out);
  }
}

std::string Session::missing() const {
  if (!missing_.empty()) return str_cat(missing_, " the coordination service at ", config_.service);
  const std::string host = config_.service.substr(0, config_.service.rfind(':'));
  const bool here = host == "localhost" || host == "[::1]" || host.starts_with("127.");
  const std::string who = config_.service_rank < 0
                              ? "the coordination service"
                              : str_cat("rank ", config_.service_rank, " (host ",
                                        one_line(here ? config_.host : host, 80), "), with the coordination service,");
  return str_cat(who, " did not answer at ", config_.service, "; need its address and port, and rank ",
                 std::max(config_.service_rank, 0), " running and not stopped");
}

void Session::give_up_join(int64_t now_ms, SessionOutput& out) {
  const std::string text = str_cat("the join reached its deadline of ",
                                   seconds_text(config_.join_deadline_ms - config_.join_begin_ms), ": ", missing());
  if (!gave_up_) {  // the others need not wait longer; the service keeps the first cause
    gave_up_ = true;
    MemberMessage m;
    m.mutable_abort()->set_code(static_cast<uint32_t>(Code::kDeadlineExceeded));
    m.mutable_abort()->set_text(text);
    request(now_ms, std::move(m), now_ms + config_.grace_ms, out);
  }
  if (now_ms < config_.join_deadline_ms + config_.grace_ms) return;
  End end;
  *end.mutable_cause() = failure_of(Code::kDeadlineExceeded, str_cat(name_of(config_), ": ", text));
  end.set_rank(-1);
  set_end(end, out);
}

// The service's process ends connections when it dies, but not when it is stopped or its host is away.
void Session::find_silence(int64_t now_ms, SessionOutput& out) {
  const int64_t since = std::exchange(ticked_ms_, now_ms);
  if (now_ms - since >= config_.stall_ms && heard_ms_ != 0) heard_ms_ += now_ms - since;
  if (heard_ms_ == 0 || config_.service_rank < 0 || now_ms - heard_ms_ <= config_.silence_ms) return;
  const auto rank = static_cast<uint32_t>(config_.service_rank);
  End end;
  *end.mutable_cause() =
      failure_of(Code::kUnavailable,
                 str_cat(world_ ? control::name_of(world_->members(static_cast<int>(rank))) : str_cat("rank ", rank),
                         " is dead or stopped: its coordination service has not answered for ",
                         seconds_text(now_ms - heard_ms_), "; see its output, and whether its host ran out of memory"));
  end.set_rank(rank);
  set_end(end, out);
}

void Session::tick(int64_t now_ms, SessionOutput& out) {
  for (auto p = pending_.begin(); p != pending_.end();) {
    const auto& [sequence, request] = *p++;
    if (now_ms < request.deadline_ms + config_.grace_ms) continue;
    finish(
        sequence,
        failure_of(Code::kDeadlineExceeded, str_cat(what_of(request.message), ": ", name_of(config_), " waited ",
                                                    seconds_text(now_ms - request.begin_ms),
                                                    " for the coordination service, which did not answer; see whether "
                                                    "the process of rank 0 or the launcher runs")),
        "", out);
  }
  if (end_ || left_) return;
  find_silence(now_ms, out);
  if (end_) return;
  if (!world_ && now_ms >= config_.join_deadline_ms) give_up_join(now_ms, out);
  if (end_) return;
  if (!connected_) return;
  if (now_ms - signalled_ms_ >= config_.beat_ms) {
    if (!bound_) {
      send_join(now_ms, out);
    } else {
      MemberMessage m;
      m.mutable_beat()->set_step(step_);
      m.mutable_beat()->set_phase(phase_);
      signalled_ms_ = now_ms;
      out.messages.push_back(headed(std::move(m), ++signal_));
    }
  }
  send_pending(now_ms, out);
}

}  // namespace weft::control
