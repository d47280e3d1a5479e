#include "distributed/control/group/group_client.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "distributed/control/group/messages.h"
#include "distributed/control/group/replica_identity.h"
#include "distributed/control/talker.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = MemberEvent::Kind;

constexpr int64_t kBeatMs = 200;

MemberState member_of(const GroupClientOptions& o) {
  const auto name = one_line(o.name, 80);
  WEFT_CHECK(!o.name.empty() && o.name.size() <= kReplicaNameBytes, "replica: got the name '", name, "'; need 1 to ",
             kReplicaNameBytes, " bytes");
  WEFT_CHECK(o.facts.size() <= kReplicaFactsBytes, "replica '", name, "': got facts of ", o.facts.size(),
             " bytes; need at most ", kReplicaFactsBytes);
  WEFT_CHECK(o.own.size() <= kReplicaOwnBytes, "replica '", name, "': got own values of ", o.own.size(),
             " bytes; need at most ", kReplicaOwnBytes);
  WEFT_CHECK(o.step >= 0 && o.state_view >= 0, "replica '", name, "': got step ", o.step, " of view ", o.state_view,
             "; need 0 or more");
  return {.name = o.name,
          .incarnation = o.incarnation > 0 ? o.incarnation : new_incarnation(),
          .facts = o.facts,
          .own = o.own,
          .replicas = o.replicas,
          .step = o.step,
          .state_view = o.state_view};
}

/// The coordination service of a job needs a header before it looks at the kind, and refuses it.
MemberMessage headed() {
  MemberMessage m;
  m.set_incarnation(1);
  m.set_sequence(1);
  return m;
}

bool takes_part(const MemberState& m) {
  return m.stage == MemberStage::kHealing || m.stage == MemberStage::kComputing || m.stage == MemberStage::kAck;
}

}  // namespace

struct GroupClient::Impl final : TalkUser {
  explicit Impl(const GroupClientOptions& o) : options(o), m(member_of(o)), talker(o.address, o.token, *this) {
    talker.start();
  }

  // ---- the talker ----
  bool wants_connection() const override { return m.stage != MemberStage::kEnded; }
  void connected(int64_t now) override {
    is_connected = true;
    send_status(now);
    send_cards();
  }
  void closed() override { is_connected = false; }
  void received(int64_t, const ServiceMessage& message) override {
    if (message.has_cards() && message.cards().view() == cards_view && message.cards().round() < kCardRounds) {
      auto& values = rounds[message.cards().round()];
      values.assign(message.cards().values().begin(), message.cards().values().end());
    }
    if (message.has_failure()) drive({.kind = Kind::kStatus, .status = {.refused = message.failure().text()}});
    if (message.has_group()) {
      if (message.group().ended()) code = Code::kAborted;  // another process of this replica has failed
      try {
        drive({.kind = Kind::kStatus, .status = status_of(message.group())});
      } catch (const Error& e) {
        drive({.kind = Kind::kStatus,
               .status = {.refused = str_cat("the service of replicas sent a damaged status: ", e.what())}});
      }
    }
    changed.notify_all();
  }
  void refused(int64_t) override {
    code = Code::kPermissionDenied;
    drive({.kind = Kind::kStatus,
           .status = {.refused = str_cat("replica '", one_line(options.name, 80),
                                         "' has another token than the service of replicas at ",
                                         one_line(options.address, 100), "; need its token in REPLICAS_TOKEN")}});
    changed.notify_all();
  }
  void tick(int64_t now) override {
    if (now - sent_ms >= kBeatMs) send_status(now);
  }
  void after() override { close_views(); }

  // ---- with the mutex ----
  std::vector<MemberAction> drive(const MemberEvent& event) {
    const int64_t view = m.view.number;
    std::vector<MemberAction> actions = control::apply(m, event);
    for (const MemberAction a : actions) {
      if (a == MemberAction::kCloseGroups) closing = view;
      if (a == MemberAction::kReport || a == MemberAction::kEnd) send_status(internal::now_ns() / 1000000);
    }
    return actions;
  }

  void send_status(int64_t now) {
    sent_ms = now;
    MemberMessage message = headed();
    *message.mutable_report() = message_of(status_of(m));
    talker.send(std::move(message));
  }

  void send_cards() {
    if (cards.empty()) return;
    MemberMessage message = headed();
    ReplicaCards& c = *message.mutable_cards();
    c.set_name(m.name);
    c.set_incarnation(m.incarnation);
    c.set_view(cards_view);
    for (const std::string& v : cards) c.add_values(v);
    talker.send(std::move(message));
  }

  // ---- without the mutex ----
  void close_views() {
    int64_t view = 0;
    {
      MutexLock lock(talker.mutex());
      view = std::exchange(closing, 0);
    }
    if (view != 0 && options.close) options.close(view, str_cat("view ", view, " of the replicas is over"));
  }

  /// Why a wait continues.
  std::string missing() const {
    if (!is_connected)
      return str_cat("the service of replicas, which does not answer at ", one_line(options.address, 100));
    if (m.stage == MemberStage::kJoining)
      return m.view.number == 0 ? "other replicas" : str_cat("a place among the replicas of view ", m.view.number);
    return str_cat("the other replicas of view ", m.view.number);
  }

  const GroupClientOptions options;
  std::condition_variable changed;
  MemberState m;
  Code code = Code::kFailedPrecondition;  // the code of a refusal
  bool is_connected = false;
  int64_t sent_ms = 0;
  int64_t closing = 0;  // the view whose collectives have to end; 0: none
  int64_t cards_view = 0;
  std::vector<std::string> cards;                // the values given in this view
  std::vector<std::string> rounds[kCardRounds];  // the values of all members
  Talker talker;
};

GroupClient::GroupClient(const GroupClientOptions& options) : impl_(std::make_unique<Impl>(options)) {}
GroupClient::~GroupClient() = default;

MemberState GroupClient::member() const {
  MutexLock lock(impl_->talker.mutex());
  return impl_->m;
}

bool GroupClient::apply(Kind kind, int64_t view, MemberAction action, bool stop, int64_t note) {
  std::vector<MemberAction> actions;
  {
    MutexLock lock(impl_->talker.mutex());
    actions = impl_->drive({.kind = kind, .view = view, .stop = stop, .note = note});
  }
  impl_->close_views();
  return std::ranges::count(actions, action) > 0;
}

MemberState GroupClient::await(const std::function<bool(const MemberState&)>& over, Deadline deadline, Deadline look) {
  Impl& i = *impl_;
  const auto begin = Clock::now();
  auto line = begin + i.options.report_every;
  std::unique_lock<std::mutex> lock(i.talker.mutex().native());
  while (i.m.stage != MemberStage::kEnded && !over(i.m)) {
    const bool is_spare = i.is_connected && i.m.stage == MemberStage::kJoining;
    const auto now = Clock::now();
    if (is_spare && now >= look) return i.m;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - begin).count();
    WEFT_CHECK_AS(kDeadlineExceeded, is_spare || now < deadline, "replica '", one_line(i.options.name, 80),
                  "' has waited ", waited, " s for ", i.missing());
    if (now >= line) {
      line = now + i.options.report_every;
      const std::string text =
          str_cat("replica '", one_line(i.options.name, 80), "' has waited ", waited, " s for ", i.missing());
      lock.unlock();  // a full pipe must not keep the thread from its beats
      internal::warn(text);
      lock.lock();
      continue;
    }
    i.changed.wait_until(lock, std::min(line, is_spare ? look : deadline));
  }
  if (i.m.stage != MemberStage::kEnded || i.m.refused.empty()) return i.m;
  const Error refusal(i.code, i.m.refused);
  lock.unlock();
  throw refusal;
}

std::vector<std::string> GroupClient::exchange(int64_t view, const std::string& mine, Deadline deadline) {
  Impl& i = *impl_;
  WEFT_CHECK_AS(kResourceExhausted, mine.size() <= kCardBytes, "replica '", one_line(i.options.name, 80), "' gives ",
                mine.size(), " bytes to the other replicas; need at most ", kCardBytes);
  size_t round = 0;
  const auto is_over = [&](const MemberState& m) { return m.view.number != view || !takes_part(m); };
  {
    MutexLock lock(i.talker.mutex());
    if (i.cards_view != view) {
      i.cards_view = view;
      i.cards.clear();
      for (auto& values : i.rounds) values.clear();
    }
    round = i.cards.size();
    if (!is_over(i.m) && round < kCardRounds) {
      i.cards.push_back(mine);
      i.send_cards();
    }
  }
  const MemberState m =
      await([&](const MemberState& now) { return is_over(now) || round == kCardRounds || !i.rounds[round].empty(); },
            deadline);
  WEFT_CHECK_AS(kAborted, !is_over(m) && round < kCardRounds, "view ", view, " of the replicas is over");
  MutexLock lock(i.talker.mutex());
  return i.rounds[round];
}

namespace {

struct DeathReport final : TalkUser {
  DeathReport(const std::string& address, const std::string& token, const ReplicaDeath& death)
      : message(headed()), talker(address, token, *this) {
    *message.mutable_replica_death() = death;
    talker.start();
  }
  bool wants_connection() const override { return !done; }
  void connected(int64_t) override { talker.send(message); }
  void closed() override {}
  void received(int64_t, const ServiceMessage& m) override { end(m.has_done()); }
  void refused(int64_t) override { end(false); }
  void tick(int64_t) override {}
  void end(bool good) {
    done = true, heard = good;
    changed.notify_all();
  }

  MemberMessage message;
  std::condition_variable changed;
  bool done = false, heard = false;
  Talker talker;
};

}  // namespace

bool report_death_of_replica(const std::string& address, const std::string& token, const std::string& name,
                             int64_t incarnation) {
  ReplicaDeath death;
  death.set_name(name);
  death.set_incarnation(incarnation);
  DeathReport report(address, token, death);
  std::unique_lock<std::mutex> lock(report.talker.mutex().native());
  report.changed.wait_for(lock, std::chrono::seconds(1), [&] { return report.done; });
  return report.heard;
}

}  // namespace weft::control
