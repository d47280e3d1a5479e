#include "distributed/control/group/member.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::control {
namespace {

using Kind = MemberEvent::Kind;

class MemberTransition {
 public:
  explicit MemberTransition(MemberState& m) : m_(m) {}

  std::vector<MemberAction> run(const MemberEvent& e) {
    if (m_.stage == MemberStage::kEnded) return {};
    if (e.kind == Kind::kStatus) {
      status(e.status);
    } else if (e.kind == Kind::kLeave) {
      m_.leaves = m_.stop = true;
      if (!takes_part()) report();
    } else if (e.view == m_.view.number) {
      step(e);
    }
    return std::move(out_);
  }

 private:
  void act(MemberAction action) { out_.push_back(action); }
  /// Whether collectives of the view may run.
  bool takes_part() const {
    return m_.stage == MemberStage::kHealing || m_.stage == MemberStage::kComputing || m_.stage == MemberStage::kAck;
  }

  void step(const MemberEvent& e) {
    switch (m_.stage) {
      case MemberStage::kHealing:
        if (e.kind == Kind::kFailed) return fail();
        if (e.kind != Kind::kHealed) return;
        m_.step = m_.view.start;
        m_.note = m_.group_note = 0;  // the state is of others
        m_.state_view = m_.view.number;
        m_.stage = MemberStage::kComputing;
        return;
      case MemberStage::kComputing:
        if (e.kind == Kind::kFailed) return fail();
        if (e.kind == Kind::kFinished) return finish();
        if (e.kind != Kind::kSums) return;
        m_.sums = true;
        m_.note = e.note;
        m_.stage = MemberStage::kAck;
        return act(MemberAction::kEnterAck);
      case MemberStage::kAck:
        if (e.kind == Kind::kAckFailed) return fail();
        if (e.kind != Kind::kAckComplete) return;
        commit(e.note);
        m_.stage = MemberStage::kComputing;
        if (e.stop) fail();
        return;
      default:
        return;
    }
  }

  void commit(int64_t note) {
    act(MemberAction::kCommit);
    ++m_.step;
    m_.sums = false;
    m_.note = m_.group_note = note;
  }

  /// Ends its part in the view.
  void fail() {
    act(MemberAction::kCloseGroups);
    m_.stage = MemberStage::kReported;
    report();
  }

  /// Keeps the groups open, because the last ack of other members may not be complete.
  void finish() {
    m_.finished = true;
    m_.stage = MemberStage::kReported;
    report();
  }

  void report() {
    act(MemberAction::kReport);
    if (m_.leaves) end();
  }

  void end() {
    act(MemberAction::kEnd);
    m_.stage = MemberStage::kEnded;
  }

  void status(const GroupStatus& g) {
    if (g.incarnation != 0 && g.incarnation <= m_.incarnation) return;  // it answers a status of an earlier incarnation
    if (g.incarnation != 0 && !m_.accepted) {                           // the clock of this host is behind
      m_.incarnation = g.incarnation + 1;
      return act(MemberAction::kReport);
    }
    if (!g.refused.empty()) return refuse(g.refused);
    m_.accepted = true;
    if (g.view.number > m_.view.number) take(g.view);
    if (g.number != m_.view.number || !takes_part()) return;
    m_.stop |= g.stop_wanted;
    if (g.report_wanted) fail();
  }

  void refuse(const std::string& text) {
    if (takes_part()) act(MemberAction::kCloseGroups);
    m_.refused = text;
    end();
  }

  /// Enters a new view, or joins again if it is not in it.
  void take(const ReplicaView& view) {
    if (takes_part()) act(MemberAction::kCloseGroups);
    const bool is_new = m_.view.number == 0;  // it was started after the end of the run, perhaps to continue it
    m_.view = view;
    m_.stop = m_.leaves;
    m_.finished = false;
    const ViewMember* self = find(view, m_.name, m_.incarnation);
    if (self && !self->heals && m_.sums && m_.step + 1 == view.start) {
      commit(view.note);
    } else {
      act(MemberAction::kRetry);
      m_.sums = false;
      m_.note = m_.group_note;
    }
    if (view.ended && !is_new) {
      m_.note = m_.group_note = view.note;  // also if this process has not made the last step
      return end();
    }
    if (!self || view.ended) {
      m_.stage = MemberStage::kJoining;
      return report();
    }
    if (!self->heals && m_.step != view.start)
      return refuse(str_cat("replica '", m_.name, "' is at step ", m_.step, ", and view ", view.number,
                            " starts at step ", view.start, " without healing it; need equal versions of Weft"));
    act(MemberAction::kForm);
    if (self->heals) {
      m_.stage = MemberStage::kHealing;
      act(MemberAction::kHeal);
    } else {
      m_.stage = MemberStage::kComputing;
      m_.state_view = view.number;
    }
  }

  MemberState& m_;
  std::vector<MemberAction> out_;
};

}  // namespace

std::vector<MemberAction> apply(MemberState& member, const MemberEvent& event) {
  return MemberTransition(member).run(event);
}

ReplicaStatus status_of(const MemberState& m) {
  using Stand = ReplicaStatus::Stand;
  ReplicaStatus s{.name = m.name, .incarnation = m.incarnation, .view = m.view.number};
  if (m.stage == MemberStage::kEnded) s.stand = Stand::kLeaves;
  if (m.stage == MemberStage::kJoining)
    s.stand = Stand::kJoins, s.facts = m.facts, s.replicas = m.replicas, s.own = m.own;
  if (m.stage == MemberStage::kReported) s.stand = Stand::kReports;
  if (s.stand == Stand::kWorks || s.stand == Stand::kLeaves) return s;
  s.state_view = m.state_view;
  s.step = m.step;
  s.sums = m.sums;
  s.finished = m.finished;
  if (s.stand == Stand::kReports) s.note = std::max(m.note, m.group_note);
  return s;
}

}  // namespace weft::control
