#include "distributed/control/client.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>

#include "distributed/control/service/check.h"
#include "distributed/control/service/state.h"
#include "distributed/control/session.h"
#include "distributed/control/talker.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

int64_t ms_of(Deadline t) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count();
}
int64_t now_ms() { return internal::now_ns() / 1000000; }

uint64_t random_number() {
  uint64_t n = 0;
  WEFT_CHECK_AS(kUnavailable, ::getrandom(&n, sizeof n, 0) == sizeof n, "the kernel gave no random bytes");
  return n | 1;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

SessionConfig config_of(const ClientOptions& o) {
  const ServiceLimits limits;
  WEFT_CHECK(o.size >= 1 && o.size <= limits.members && o.rank >= 0 && o.rank < o.size, "coordination client: rank ",
             o.rank, " of ", o.size, "; need a rank below the number of ranks, and at most ", limits.members, " ranks");
  SessionConfig c{.job = o.job,
                  .epoch = o.epoch,
                  .rank = static_cast<uint32_t>(o.rank),
                  .size = static_cast<uint32_t>(o.size),
                  .incarnation = random_number()};
  c.host = o.host.empty() ? host_name() : o.host;
  c.pid = static_cast<uint32_t>(::getpid());
  c.service = o.address;
  c.endpoints = o.endpoints;
  c.facts = o.facts;
  if (o.failure)
    c.failure = failure_of(o.failure->code(), one_line(o.failure->what(), static_cast<int>(limits.text_bytes) - 100));
  c.beat_ms = o.beat.count();
  c.service_rank = static_cast<int32_t>(o.service_rank);
  c.join_begin_ms = now_ms();
  c.join_deadline_ms = c.join_begin_ms + o.timeout.count();
  return c;
}

Ending ending_of(const End& e) {
  return {e.finished(), static_cast<Code>(e.cause().code()), e.cause().text(), e.rank()};
}

[[noreturn]] void fail(const Failure& f) { internal::fail(static_cast<Code>(f.code()), f.text()); }

}  // namespace

struct Client::Impl final : TalkUser {
  explicit Impl(const ClientOptions& o)
      : options(o), session(config_of(o)), talker(o.address, o.token, *this), mutex(talker.mutex()) {
    MemberMessage probe;  // finds here the errors that the service would report
    probe.set_incarnation(1);
    probe.set_sequence(1);
    probe.set_rank(session.config().rank);
    probe.mutable_join()->set_size(session.config().size);
    probe.mutable_join()->set_job(o.job);
    probe.mutable_join()->set_host(session.config().host);
    for (const std::string& e : o.endpoints) probe.mutable_join()->add_endpoints(e);
    for (const auto& [name, value] : o.facts) {
      Fact& f = *probe.mutable_join()->add_facts();
      f.set_name(name);
      f.set_value(value);
    }
    const std::string problem = problem_of(probe, ServiceLimits());
    WEFT_CHECK(problem.empty(), "coordination client: ", problem);
    talker.start();
  }

  // ---- the talker ----
  bool wants_connection() const override { return !session.end() && !session.left(); }
  void connected(int64_t now) override {
    Session::SessionOutput out;
    session.connected(now, out);
    pass_on(out);
  }
  void closed() override { session.closed(); }
  void received(int64_t now, const ServiceMessage& message) override {
    Session::SessionOutput out;
    session.received(now, message, out);
    pass_on(out);
  }
  void refused(int64_t now) override {
    ServiceMessage m;
    m.set_incarnation(session.config().incarnation);
    m.mutable_failure()->set_code(static_cast<uint32_t>(Code::kPermissionDenied));
    m.mutable_failure()->set_text(str_cat("join: rank ", options.rank, " (host ", one_line(session.config().host, 80),
                                          ", pid ", session.config().pid,
                                          ") has another token than the coordination service at ",
                                          one_line(options.address, 100), "; need the token of the job on all ranks"));
    received(now, m);
  }
  void tick(int64_t now) override {
    session.progress(step.load(), options.phase ? options.phase() : "");
    Session::SessionOutput out;
    session.tick(now, out);
    pass_on(out);
  }
  void after() override {
    std::function<void()> call;
    {
      MutexLock lock(mutex);
      if (!on_end || !session.end() || session.end()->finished()) return;
      call = [fn = std::move(on_end), e = ending_of(*session.end())] { fn(e); };
      on_end = nullptr;
    }
    call();
  }

  /// Sends messages and wakes all waiting threads. The caller holds `mutex`.
  void pass_on(Session::SessionOutput& out) {
    for (MemberMessage& m : out.messages) talker.send(std::move(m));
    for (Answer& a : out.answers) answers[a.sequence] = std::move(a);
    changed.notify_all();
  }

  // ---- callers ----
  /// Starts a request and waits for its answer.
  std::string request(MemberMessage m, Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex.native());
    WEFT_CHECK_AS(kFailedPrecondition, !session.left(), "coordination client: rank ", options.rank,
                  " has left; need requests before leave()");
    MemberMessage probe = m;  // finds here the errors that the service would report
    probe.set_incarnation(1);
    probe.set_sequence(1);
    const std::string problem = problem_of(probe, ServiceLimits());
    WEFT_CHECK(problem.empty(), "coordination client: ", problem);
    WEFT_CHECK_AS(kResourceExhausted, session.has_room(), "coordination client: ", Session::kRequests,
                  " requests of other threads wait; need fewer at once");
    Session::SessionOutput out;
    const uint64_t n = session.request(now_ms(), std::move(m), ms_of(deadline), out);
    pass_on(out);
    // The session answers each request at the latest a second after its deadline.
    changed.wait(lock, [&] { return answers.count(n) != 0; });
    Answer a = std::move(answers.extract(n).mapped());
    lock.unlock();
    if (a.failure.code() != 0) fail(a.failure);
    return std::move(a.value);
  }

  const ClientOptions options;
  std::condition_variable changed;
  Session session;
  std::map<uint64_t, Answer> answers;  // answers that are not fetched yet
  std::vector<PeerRank> peers;
  std::function<void(const Ending&)> on_end;
  std::atomic<uint64_t> step{0};
  Talker talker;
  Mutex& mutex;
};

Client::Client(const ClientOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Client::~Client() = default;

const std::vector<PeerRank>& Client::join() {
  Impl& i = *impl_;
  std::unique_lock<std::mutex> lock(i.mutex.native());
  // The session ends the join at its deadline.
  const auto over = [&] { return i.session.world() || i.session.end(); };
  while (!i.changed.wait_for(lock, i.options.report_every, over)) {
    if (!i.options.waiting) continue;
    const std::string text = i.session.missing();
    lock.unlock();
    i.options.waiting(text);
    lock.lock();
  }
  if (i.session.end() && !(i.session.world() && i.session.end()->finished())) {
    const Failure cause = i.session.end()->cause();
    lock.unlock();
    fail(cause);
  }
  if (i.peers.empty())
    for (const Process& p : i.session.world()->members())
      i.peers.push_back({p.rank(), p.host(), p.pid(), {p.endpoints().begin(), p.endpoints().end()}});
  return i.peers;
}

void Client::set(const std::string& key, const std::string& value) {
  set(key, value, std::chrono::steady_clock::now() + impl_->options.timeout);
}

void Client::set(const std::string& key, const std::string& value, Deadline deadline) {
  MemberMessage m;
  m.mutable_set()->set_key(key);
  m.mutable_set()->set_value(value);
  impl_->request(std::move(m), deadline);
}

std::string Client::get(const std::string& key, Deadline deadline) {
  MemberMessage m;
  m.mutable_get()->set_key(key);
  return impl_->request(std::move(m), deadline);
}

void Client::barrier(const std::string& name, Deadline deadline) {
  MemberMessage m;
  m.mutable_barrier()->set_name(name);
  impl_->request(std::move(m), deadline);
}

void Client::progress(uint64_t step) { impl_->step.store(step, std::memory_order_relaxed); }

void Client::abort(Code code, const std::string& text) {
  MemberMessage m;
  m.mutable_abort()->set_code(static_cast<uint32_t>(code));
  m.mutable_abort()->set_text(one_line(text, ServiceLimits().text_bytes - 100));
  try {
    impl_->request(std::move(m), std::chrono::steady_clock::now());
  } catch (const Error&) {
    // The epoch has ended for another cause, or the service is away and the others will miss this rank.
  }
}

void Client::report_death(int64_t rank, const std::string& text) {
  MemberMessage m;
  m.mutable_death()->set_rank(static_cast<uint32_t>(rank));
  m.mutable_death()->set_text(one_line(text, ServiceLimits().text_bytes - 100));
  impl_->request(std::move(m), std::chrono::steady_clock::now() + impl_->options.timeout);
}

void Client::leave() {
  MemberMessage m;
  m.mutable_leave();
  impl_->request(std::move(m), std::chrono::steady_clock::now() + impl_->options.timeout);
}

std::optional<Ending> Client::ended() const {
  MutexLock lock(impl_->mutex);
  if (!impl_->session.end()) return std::nullopt;
  return ending_of(*impl_->session.end());
}

void Client::on_end(std::function<void(const Ending&)> fn) {
  MutexLock lock(impl_->mutex);
  impl_->on_end = std::move(fn);
}

}  // namespace weft::control
