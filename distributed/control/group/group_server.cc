#include "distributed/control/group/group_server.h"

#include <algorithm>

#include "distributed/control/group/group.h"
#include "distributed/control/group/messages.h"
#include "distributed/control/service/server.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

using Kind = ServiceEvent::ServiceEventKind;

constexpr size_t kCardBytesOfAll = size_t{64} << 20;

class GroupLogic final : public ServiceLogic {
 public:
  explicit GroupLogic(const GroupConfig& c) : state{.config = c} {}

  LogicOutcome apply(const ServiceEvent& e) override {
    out_ = {};
    switch (e.kind) {
      case Kind::kMessage:
        ++messages;
        message(e.now_ms, e.connection, e.message);
        break;
      case Kind::kClosed:
        pass_on({.kind = GroupEvent::Kind::kClosed, .now_ms = e.now_ms, .connection = e.connection});
        break;
      case Kind::kTick:
      case Kind::kDeath:
        pass_on({.kind = GroupEvent::Kind::kTick, .now_ms = e.now_ms});
        break;
    }
    return std::move(out_);
  }
  std::string commit(const std::string& record) override { return control::commit(state, record); }
  std::vector<std::string> changes() const override { return {}; }
  bool keeps_history() const override { return true; }
  std::string title() const override { return title_of(state); }
  void restart(int64_t now_ms) override { control::restart(state, now_ms); }
  size_t connections() const override { return 4 * static_cast<size_t>(state.config.replicas); }
  size_t message_bytes() const override {
    return kCardBytes + kReplicaNameBytes + kReplicaFactsBytes + kReplicaOwnBytes + 4096;
  }

  GroupState state;
  int64_t messages = 0, deaths = 0;

 private:
  /// The values of a member, one for each round.
  struct Cards {
    uint64_t connection = 0;
    std::vector<std::string> values;
  };

  void message(int64_t now_ms, uint64_t connection, const MemberMessage& m) {
    if (m.has_report()) {
      pass_on({.kind = GroupEvent::Kind::kStatus,
               .now_ms = now_ms,
               .connection = connection,
               .status = status_of(m.report())});
    } else if (m.has_cards()) {
      take_cards(connection, m.cards());
    } else if (m.has_replica_death()) {
      ++deaths;
      const ReplicaDeath& d = m.replica_death();
      pass_on({.kind = GroupEvent::Kind::kDeath,
               .now_ms = now_ms,
               .status = {.name = d.name(), .incarnation = d.incarnation()}});
      reply(connection).mutable_done();
    } else {
      ServiceMessage& r = reply(connection);
      r.set_incarnation(m.incarnation());
      r.mutable_failure()->set_code(static_cast<uint32_t>(Code::kFailedPrecondition));
      r.mutable_failure()->set_text(
          "join: this is a service of replicas; need the address of the job's coordination service");
    }
  }

  ServiceMessage& reply(uint64_t connection) {
    out_.replies.push_back({connection, {}});
    return out_.replies.back().message;
  }

  void pass_on(const GroupEvent& event) {
    const GroupOutcome out = control::apply(state, event);
    for (const auto& [connection, status] : out.replies) *reply(connection).mutable_group() = message_of(status);
    for (const ReplicaView& view : out.views) out_.records.push_back(record_of(view));
  }

  // ---- values of members ----
  void take_cards(uint64_t connection, const ReplicaCards& c) {
    const ViewMember* self = find(state.view, c.name(), c.incarnation());
    if (c.view() != state.view.number || !self) return;  // the status of the group tells the process of the next view
    if (cards_view_ != c.view()) {
      cards_view_ = c.view();
      cards_.assign(state.view.members.size(), {});
      rounds_ = 0, card_bytes_ = 0;
    }
    Cards& mine = cards_[static_cast<size_t>(self - state.view.members.data())];
    size_t bytes = 0;
    for (const std::string& v : c.values()) bytes += v.size();
    if (c.values_size() > kCardRounds || bytes > kCardBytes || card_bytes_ + bytes > kCardBytesOfAll) {
      *reply(connection).mutable_group() =
          message_of({.refused = str_cat("the service of replicas got ", c.values_size(), " values of ", bytes,
                                         " bytes from replica '", one_line(c.name(), 80), "'; need at most ",
                                         kCardRounds, " of ", kCardBytes, " bytes")});
      return;
    }
    mine.connection = connection;
    for (int i = static_cast<int>(mine.values.size()); i < c.values_size(); ++i) {
      mine.values.push_back(c.values(i));
      card_bytes_ += c.values(i).size();
    }
    const size_t before = rounds_, asked = static_cast<size_t>(c.values_size());
    while (std::ranges::all_of(cards_, [&](const Cards& m) { return m.values.size() > rounds_; })) ++rounds_;
    for (size_t round = before; round < rounds_; ++round)
      for (const Cards& m : cards_) send_round(m.connection, round);
    if (asked > 0 && asked <= before) send_round(connection, asked - 1);  // it has connected again
  }

  void send_round(uint64_t connection, size_t round) {
    GroupCards& all = *reply(connection).mutable_cards();
    all.set_view(cards_view_);
    all.set_round(static_cast<uint32_t>(round));
    for (const Cards& m : cards_) all.add_values(m.values[round]);
  }

  LogicOutcome out_;
  int64_t cards_view_ = 0;
  std::vector<Cards> cards_;  // index: place in this view
  size_t rounds_ = 0;         // rounds with the values of all members
  size_t card_bytes_ = 0;
};

GroupConfig config_of(const GroupServerOptions& o) {
  WEFT_CHECK(o.replicas >= 1 && o.replicas <= static_cast<int64_t>(kReplicas), "service of replicas: got ", o.replicas,
             " replicas; need 1 to ", kReplicas);
  WEFT_CHECK(o.replicas_min >= 1 && o.replicas_min <= o.replicas, "service of replicas: got replicas_min ",
             o.replicas_min, "; need 1 to ", o.replicas, ", the number of replicas");
  return {.job = o.job, .replicas = o.replicas, .replicas_min = o.replicas_min};
}

}  // namespace

struct GroupServer::Impl {
  explicit Impl(const GroupServerOptions& o)
      : logic(new GroupLogic(config_of(o))),
        server({.address = o.address,
                .token = o.token,
                .journal = o.journal,
                .earlier = o.is_new ? title_of_job(o.job) : std::string()},
               std::unique_ptr<ServiceLogic>(logic)) {}

  GroupLogic* const logic;  // the server owns it
  Server server;
};

GroupServer::GroupServer(const GroupServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
GroupServer::~GroupServer() = default;

int GroupServer::port() const { return impl_->server.port(); }
std::string GroupServer::address() const { return impl_->server.address(); }

GroupServerStatus GroupServer::status() const {
  GroupServerStatus out{};
  impl_->server.look([&] {
    out.view = impl_->logic->state.view;
    out.replicas = static_cast<int64_t>(impl_->logic->state.replicas.size());
    out.connections = impl_->server.connections();
    out.refused = impl_->server.refused();
    out.messages = impl_->logic->messages;
    out.deaths = impl_->logic->deaths;
  });
  return out;
}

}  // namespace weft::control
