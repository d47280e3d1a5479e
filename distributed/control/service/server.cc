#include "distributed/control/service/server.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "distributed/control/control.grpc.pb.h"
#include "distributed/control/grpc_log.h"
#include "distributed/control/service/journal.h"
#include "distributed/control/service/listener.h"
#include "distributed/control/service/token.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/mutex.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

constexpr int64_t kTickMs = 50;
constexpr size_t kSpareStreams = 64;                // for members that reconnect
constexpr size_t kMostOutgoing = size_t{64} << 20;  // limit of bytes for a member that does not read
constexpr size_t kMostMemory = size_t{512} << 20;   // limit of gRPC's buffers

/// One call of Talk. A gRPC operation uses the address of one of `tags` until it is complete.
struct ServerStream {
  enum ServerCall { kAccept, kRead, kWrite, kFinish };
  struct Tag {
    ServerStream* stream;
    ServerCall kind;
  };

  explicit ServerStream(uint64_t n) : number(n) {}

  const uint64_t number;
  grpc::ServerContext context;
  grpc::ServerAsyncReaderWriter<ServiceMessage, MemberMessage> io{&context};
  Tag tags[4] = {{this, kAccept}, {this, kRead}, {this, kWrite}, {this, kFinish}};
  MemberMessage incoming;
  std::deque<ServiceMessage> outgoing;
  size_t outgoing_bytes = 0;
  int operations = 0;  // number of operations that are not complete
  bool open = false, writing = false, finishing = false;
};

bool on_loopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

}  // namespace

struct Server::Impl {
  Impl(const ServerOptions& o, std::unique_ptr<ServiceLogic> l)
      : options(o),
        logic(checked(o, std::move(l))),
        start_ns(internal::now_ns()),
        listener(o.address, 2 * logic->connections() + kSpareStreams) {
    quiet_grpc();
    if (!o.journal.empty()) {
      journal = std::make_unique<Journal>(
          o.journal, logic->title(), [this](const std::string& record) { return logic->commit(record); },
          logic->keeps_history(), o.earlier);
      if (journal->continued()) logic->restart(0);
    }
    build();
    {
      MutexLock lock(mutex);
      accept_next();
    }
    thread = std::thread([this] { run(); });
    listener.start([this](int fd) { grpc::AddInsecureChannelFromFd(server.get(), fd); });
  }

  ~Impl() {
    listener.stop();
    {
      MutexLock lock(mutex);
      stopping = true;
    }
    server->Shutdown(std::chrono::system_clock::now());  // gRPC accepts no other clock here; the deadline has passed
    queue->Shutdown();
    thread.join();
    streams.clear();
  }

  static std::unique_ptr<ServiceLogic> checked(const ServerOptions& o, std::unique_ptr<ServiceLogic> logic) {
    WEFT_CHECK_AS(kPermissionDenied, !o.token.empty() || on_loopback(o.address),
                  "coordination service: no token, and address ", one_line(o.address, 100),
                  " can be reached from other hosts; need a token, or 127.0.0.1");
    return logic;
  }

  void build() {
    grpc::ServerBuilder b;
    b.RegisterService(&service);
    b.SetMaxReceiveMessageSize(static_cast<int>(logic->message_bytes()));
    b.SetResourceQuota(grpc::ResourceQuota("coordination").Resize(kMostMemory));
    b.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 4);
    b.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 5000);  // for strangers: members have a call
    b.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
    b.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
    b.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    b.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    b.AddChannelArgument(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    queue = b.AddCompletionQueue();
    server = b.BuildAndStart();
    WEFT_CHECK_AS(kUnavailable, server != nullptr, "coordination service: gRPC cannot start a server");
  }

  // ---- the thread ----
  int64_t now_ms() const { return (internal::now_ns() - start_ns) / 1000000; }

  void run() {
    while (true) {
      void* tag = nullptr;
      bool ok = false;
      const gpr_timespec deadline =
          gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(kTickMs, GPR_TIMESPAN));
      const auto got = queue->AsyncNext(&tag, &ok, deadline);
      if (got == grpc::CompletionQueue::SHUTDOWN) break;
      MutexLock lock(mutex);
      if (got == grpc::CompletionQueue::GOT_EVENT) complete(*static_cast<ServerStream::Tag*>(tag), ok);
      if (const int64_t now = now_ms(); now - ticked_ms >= kTickMs) {
        ticked_ms = now;
        handle({.kind = ServiceEvent::ServiceEventKind::kTick, .now_ms = now});
      }
    }
  }

  /// Here and below, the caller holds `mutex`.
  void accept_next() {
    if (stopping) return;
    const uint64_t n = ++last_stream;
    ServerStream& s = *(streams[n] = std::make_unique<ServerStream>(n));
    ++s.operations;
    service.RequestTalk(&s.context, &s.io, queue.get(), queue.get(), &s.tags[ServerStream::kAccept]);
  }

  void complete(const ServerStream::Tag& tag, bool ok) {
    ServerStream& s = *tag.stream;
    --s.operations;
    switch (tag.kind) {
      case ServerStream::kAccept:
        accept_next();
        if (ok) accepted(s);
        break;
      case ServerStream::kRead:
        if (ok) {
          handle({.kind = ServiceEvent::ServiceEventKind::kMessage,
                  .now_ms = now_ms(),
                  .connection = s.number,
                  .message = s.incoming});
          read(s);
        } else {
          close(s);
        }
        break;
      case ServerStream::kWrite:
        s.writing = false;
        s.outgoing_bytes -= s.outgoing.front().ByteSizeLong();
        s.outgoing.pop_front();
        if (!ok) close(s);
        write(s);
        break;
      case ServerStream::kFinish:
        break;
    }
    if (s.operations == 0) streams.erase(s.number);
  }

  void accepted(ServerStream& s) {
    if (stopping) return;
    const auto& metadata = s.context.client_metadata();
    const auto at = metadata.find(kTokenKey);
    const std::string_view given =
        at == metadata.end() ? std::string_view() : std::string_view(at->second.data(), at->second.size());
    if (!options.token.empty() && !same_token(given, options.token)) {
      ++refused;
      return finish(s, grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "the token is not the job's token"));
    }
    if (open_streams >= logic->connections() + kSpareStreams)
      return finish(s, grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many connections"));
    s.open = true;
    ++open_streams;
    read(s);
  }

  void read(ServerStream& s) {
    if (stopping || !s.open) return;
    ++s.operations;
    s.io.Read(&s.incoming, &s.tags[ServerStream::kRead]);
  }

  void write(ServerStream& s) {
    if (stopping || !s.open || s.writing || s.outgoing.empty()) return;
    s.writing = true;
    ++s.operations;
    s.io.Write(s.outgoing.front(), &s.tags[ServerStream::kWrite]);
  }

  void finish(ServerStream& s, const grpc::Status& status) {
    if (stopping || s.finishing) return;
    s.finishing = true;
    ++s.operations;
    s.io.Finish(status, &s.tags[ServerStream::kFinish]);
  }

  void close(ServerStream& s) {
    if (!s.open) return;
    s.open = false;
    --open_streams;
    s.context.TryCancel();  // completes the pending operations
    finish(s, grpc::Status::CANCELLED);
    if (!stopping)
      handle({.kind = ServiceEvent::ServiceEventKind::kClosed, .now_ms = now_ms(), .connection = s.number});
  }

  void handle(const ServiceEvent& event) {
    if (stopping) return;
    LogicOutcome out = logic->apply(event);
    if (journal) {
      for (const std::string& record : out.records) journal->append(record);
      if (!out.records.empty() && !logic->keeps_history() && journal->is_long()) journal->rewrite(logic->changes());
    }
    std::vector<ServerStream*> full;
    for (Addressed& r : out.replies) {
      const auto at = streams.find(r.connection);
      if (at == streams.end() || !at->second->open) continue;
      ServerStream& s = *at->second;
      s.outgoing_bytes += r.message.ByteSizeLong();
      s.outgoing.push_back(std::move(r.message));
      if (s.outgoing_bytes > kMostOutgoing) full.push_back(&s);
      write(s);
    }
    for (ServerStream* s : full) close(*s);
  }

  const ServerOptions options;
  mutable Mutex mutex;
  const std::unique_ptr<ServiceLogic> logic;
  const int64_t start_ns;
  std::unique_ptr<Journal> journal;
  Coordination::AsyncService service;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::unique_ptr<grpc::Server> server;
  Listener listener;
  std::map<uint64_t, std::unique_ptr<ServerStream>> streams;
  uint64_t last_stream = 0, open_streams = 0, refused = 0;
  bool stopping = false;
  int64_t ticked_ms = 0;
  std::thread thread;
};

Server::Server(const ServerOptions& options, std::unique_ptr<ServiceLogic> logic)
    : impl_(std::make_unique<Impl>(options, std::move(logic))) {}
Server::~Server() = default;

int Server::port() const { return impl_->listener.port(); }

std::string Server::address() const {
  const std::string& a = impl_->options.address;
  return str_cat(a.substr(0, a.rfind(':')), ":", impl_->listener.port());
}

void Server::handle(ServiceEvent event) {
  MutexLock lock(impl_->mutex);
  event.now_ms = impl_->now_ms();
  impl_->handle(event);
}

void Server::look(const std::function<void()>& fn) const {
  MutexLock lock(impl_->mutex);
  fn();
}

int64_t Server::connections() const { return static_cast<int64_t>(impl_->open_streams); }
int64_t Server::refused() const { return static_cast<int64_t>(impl_->refused); }

}  // namespace weft::control
