#include "distributed/control/client.h"

#include <grpcpp/grpcpp.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <thread>

#include "distributed/control/control.grpc.pb.h"
#include "distributed/control/grpc_log.h"
#include "distributed/control/service/check.h"
#include "distributed/control/service/state.h"
#include "distributed/control/session.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

constexpr int64_t kTickMs = 50;
constexpr int64_t kReconnectMs = 50;
constexpr int kMostMessage = 16 << 20;

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

/// One call of Talk.
struct ClientStream {
  enum ClientCall { kStart, kRead, kWrite, kFinish };
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<MemberMessage, ServiceMessage>> io;
  ServiceMessage incoming;
  std::deque<MemberMessage> outgoing;
  grpc::Status status;
  int operations = 0;  // number of operations that are not complete
  bool open = false, writing = false, finishing = false;
};

void* tag_of(ClientStream::ClientCall kind) { return reinterpret_cast<void*>(static_cast<intptr_t>(kind) + 1); }

}  // namespace

struct Client::Impl {
  explicit Impl(const ClientOptions& o) : options(o), session(config_of(o)) {
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
    WEFT_CHECK(o.address.rfind(':') != std::string::npos, "coordination client: address '", one_line(o.address, 100),
               "'; need host:port");
    quiet_grpc();
    grpc::ChannelArguments a;
    a.SetMaxReceiveMessageSize(kMostMessage);
    a.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    a.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
    a.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
    a.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 2000);
    a.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2000);
    a.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    a.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    a.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each client has a separate connection
    stub = Coordination::NewStub(grpc::CreateCustomChannel(o.address, grpc::InsecureChannelCredentials(), a));
    thread = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      MutexLock lock(mutex);
      stopping = true;
      if (stream) stream->context.TryCancel();
    }
    thread.join();
  }

  // ---- the thread ----
  void run() {
    int64_t ticked_ms = 0, tried_ms = 0;
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const gpr_timespec deadline =
          gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kTickMs, GPR_TIMESPAN));
      const auto got = queue.AsyncNext(&tag, &ok, deadline);
      std::function<void()> call;
      {
        MutexLock lock(mutex);
        const int64_t now = now_ms();
        if (got == grpc::CompletionQueue::GOT_EVENT)
          complete(static_cast<ClientStream::ClientCall>(reinterpret_cast<intptr_t>(tag) - 1), ok, now);
        if (stopping && !stream) break;
        if (!stopping && !stream && !session.end() && !session.left() && now - tried_ms >= kReconnectMs) {
          tried_ms = now;
          connect();
        }
        if (now - ticked_ms >= kTickMs) {
          ticked_ms = now;
          session.progress(step.load(), options.phase ? options.phase() : "");
          Session::SessionOutput out;
          session.tick(now, out);
          pass_on(out);
        }
        call = end_call();
      }
      if (call) call();
    }
    queue.Shutdown();
    void* tag;
    bool ok;
    while (queue.Next(&tag, &ok)) {
    }
  }

  /// Here and below, the caller holds `mutex`.
  std::function<void()> end_call() {
    if (!on_end || !session.end() || session.end()->finished()) return nullptr;
    auto call = [fn = std::move(on_end), e = ending_of(*session.end())] { fn(e); };
    on_end = nullptr;
    return call;
  }

  void connect() {
    stream = std::make_unique<ClientStream>();
    if (!options.token.empty()) stream->context.AddMetadata(kTokenKey, options.token);
    stream->io = stub->PrepareAsyncTalk(&stream->context, &queue);
    ++stream->operations;
    stream->io->StartCall(tag_of(ClientStream::kStart));
  }

  void complete(ClientStream::ClientCall kind, bool ok, int64_t now) {
    ClientStream& s = *stream;
    --s.operations;
    Session::SessionOutput out;
    switch (kind) {
      case ClientStream::kStart:
        if (ok && !stopping) {
          s.open = true;
          session.connected(now, out);
          read();
        } else {
          finish();
        }
        break;
      case ClientStream::kRead:
        if (ok) {
          session.received(now, s.incoming, out);
          read();
        } else {
          finish();
        }
        break;
      case ClientStream::kWrite:
        s.writing = false;
        s.outgoing.pop_front();
        if (!ok) finish();
        break;
      case ClientStream::kFinish:
        if (s.status.error_code() == grpc::StatusCode::UNAUTHENTICATED) refused(now, out);
        break;
    }
    if (s.operations == 0) stream.reset();
    pass_on(out);
  }

  void read() {
    ++stream->operations;
    stream->io->Read(&stream->incoming, tag_of(ClientStream::kRead));
  }

  void finish() {
    ClientStream& s = *stream;
    if (s.open) session.closed();
    s.open = false;
    if (s.finishing) return;
    s.finishing = true;
    ++s.operations;
    s.io->Finish(&s.status, tag_of(ClientStream::kFinish));
  }

  void refused(int64_t now, Session::SessionOutput& out) {
    ServiceMessage m;
    m.set_incarnation(session.config().incarnation);
    m.mutable_failure()->set_code(static_cast<uint32_t>(Code::kPermissionDenied));
    m.mutable_failure()->set_text(str_cat("join: rank ", options.rank, " (host ", one_line(session.config().host, 80),
                                          ", pid ", session.config().pid,
                                          ") has another token than the coordination service at ",
                                          one_line(options.address, 100), "; need the token of the job on all ranks"));
    session.received(now, m, out);
  }

  /// Sends messages and wakes all waiting threads.
  void pass_on(Session::SessionOutput& out) {
    if (stream && stream->open) {
      for (MemberMessage& m : out.messages) stream->outgoing.push_back(std::move(m));
      if (!stream->writing && !stream->outgoing.empty()) {
        stream->writing = true;
        ++stream->operations;
        stream->io->Write(stream->outgoing.front(), tag_of(ClientStream::kWrite));
      }
    }
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
  mutable Mutex mutex;
  std::condition_variable changed;
  Session session;
  std::map<uint64_t, Answer> answers;  // answers that are not fetched yet
  std::vector<PeerRank> peers;
  std::function<void(const Ending&)> on_end;
  std::atomic<uint64_t> step{0};
  grpc::CompletionQueue queue;
  std::unique_ptr<Coordination::Stub> stub;
  std::unique_ptr<ClientStream> stream;
  bool stopping = false;
  std::thread thread;
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
