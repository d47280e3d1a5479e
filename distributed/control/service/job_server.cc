#include "distributed/control/service/job_server.h"

#include "distributed/control/service/server.h"
#include "distributed/control/service/state.h"
#include "framework/base/error.h"
#include "framework/io/checksum.h"

namespace weft::control {
namespace {

ServiceConfig config_of(const JobServerOptions& o) {
  ServiceConfig c;
  WEFT_CHECK(o.size >= 1 && o.size <= c.limits.members, "coordination service: ", o.size, " ranks; need 1 to ",
             c.limits.members);
  WEFT_CHECK(o.epoch >= 1, "coordination service: epoch 0; need 1 or more");
  WEFT_CHECK(o.job.size() <= c.limits.name_bytes, "coordination service: a job's name of ", o.job.size(),
             " bytes; need at most ", c.limits.name_bytes);
  c.job = o.job;
  c.size = static_cast<uint32_t>(o.size);
  c.host = o.host;
  c.epoch = o.epoch;
  c.silence_ms = o.silence_ms;
  c.reconnect_ms = o.reconnect_ms;
  c.restart_ms = o.restart_ms;
  return c;
}

class JobLogic final : public ServiceLogic {
 public:
  explicit JobLogic(const ServiceConfig& c) : state(c) {}

  LogicOutcome apply(const ServiceEvent& event) override {
    Outcome out = control::apply(state, event);
    LogicOutcome all{.replies = std::move(out.replies)};
    if (!out.changes.empty()) all.records.push_back(record_of(out.changes));
    return all;
  }
  std::string commit(const std::string& record) override { return control::commit(state, record); }
  std::vector<std::string> changes() const override {
    std::vector<std::string> records;
    for (const Change& c : changes_of(state)) records.push_back(record_of({c}));
    return records;
  }
  std::string title() const override { return title_of(state); }
  void restart(int64_t now_ms) override { control::restart(state, now_ms); }
  size_t connections() const override { return state.config.size; }
  size_t message_bytes() const override { return state.config.limits.value_bytes + 4096; }

  ServiceState state;
};

}  // namespace

struct JobServer::Impl {
  explicit Impl(const JobServerOptions& o)
      : logic(new JobLogic(config_of(o))),
        server({.address = o.address, .token = o.token, .journal = o.journal}, std::unique_ptr<ServiceLogic>(logic)) {}

  JobLogic* const logic;  // the server owns it
  Server server;
};

JobServer::JobServer(const JobServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
JobServer::~JobServer() = default;

int JobServer::port() const { return impl_->server.port(); }
std::string JobServer::address() const { return impl_->server.address(); }

void JobServer::report_death(int64_t rank, const std::string& text) {
  ServiceEvent e{.kind = ServiceEvent::ServiceEventKind::kDeath, .now_ms = 0};
  e.death.set_rank(static_cast<uint32_t>(rank));
  e.death.set_text(text.substr(0, ServiceLimits().text_bytes));
  impl_->server.handle(e);
}

JobServerStatus JobServer::status() const {
  JobServerStatus out{};
  impl_->server.look([&] {
    const ServiceState& s = impl_->logic->state;
    out.epoch = s.epoch;
    out.stage = static_cast<JobServerStatus::Stage>(s.stage);
    for (const auto& [rank, m] : s.members) out.members += !m.left;
    out.keys = static_cast<int64_t>(s.keys.size());
    out.connections = impl_->server.connections();
    out.refused = impl_->server.refused();
    out.cause = s.end.cause().text();
    Changes all;
    for (const Change& c : changes_of(s)) *all.add_changes() = c;
    out.fingerprint = io::checksum(all.SerializeAsString());
  });
  return out;
}

}  // namespace weft::control
