#include "distributed/control/group/messages.h"

namespace weft::control {

ReplicaReport message_of(const ReplicaStatus& s) {
  ReplicaReport m;
  m.set_name(s.name);
  m.set_incarnation(s.incarnation);
  m.set_view(s.view);
  m.set_stand(static_cast<uint32_t>(s.stand));
  m.set_state_view(s.state_view);
  m.set_step(s.step);
  m.set_sums(s.sums);
  m.set_finished(s.finished);
  m.set_facts(s.facts);
  m.set_note(s.note);
  m.set_replicas(s.replicas);
  m.set_own(s.own);
  return m;
}

ReplicaStatus status_of(const ReplicaReport& m) {
  using Stand = ReplicaStatus::Stand;
  const bool known = m.stand() <= static_cast<uint32_t>(Stand::kLeaves);
  return {.name = m.name(),
          .incarnation = known ? m.incarnation() : 0,
          .view = m.view(),
          .stand = known ? static_cast<Stand>(m.stand()) : Stand::kWorks,
          .state_view = m.state_view(),
          .step = m.step(),
          .sums = m.sums(),
          .finished = m.finished(),
          .note = m.note(),
          .facts = m.facts(),
          .replicas = m.replicas(),
          .own = m.own()};
}

GroupReply message_of(const GroupStatus& g) {
  GroupReply m;
  m.set_number(g.number);
  if (g.view.number != 0) m.set_view(record_of(g.view));
  m.set_report_wanted(g.report_wanted);
  m.set_stop_wanted(g.stop_wanted);
  m.set_refused(g.refused);
  m.set_incarnation(g.incarnation);
  m.set_ended(g.ended);
  return m;
}

GroupStatus status_of(const GroupReply& m) {
  return {.number = m.number(),
          .view = m.view().empty() ? ReplicaView() : view_of(m.view(), {}),
          .report_wanted = m.report_wanted(),
          .stop_wanted = m.stop_wanted(),
          .refused = m.refused(),
          .incarnation = m.incarnation(),
          .ended = m.ended()};
}

}  // namespace weft::control
