#include "distributed/control/talker.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <thread>
#include <utility>

#include "distributed/control/address.h"
#include "distributed/control/control.grpc.pb.h"
#include "distributed/control/grpc_log.h"
#include "framework/base/clock.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::control {
namespace {

constexpr int64_t kTickMs = 50;
constexpr int64_t kReconnectMs = 50;
constexpr int kMostMessage = 64 << 20;

int64_t now_ms() { return internal::now_ns() / 1000000; }

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

struct Talker::Impl {
  Impl(const std::string& address, std::string t, TalkUser& u) : token(std::move(t)), user(u) {
    (void)parse_address(address, "coordination client");
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
    stub = Coordination::NewStub(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), a));
  }

  ~Impl() {
    {
      MutexLock lock(mutex);
      stopping = true;
      if (stream) stream->context.TryCancel();
    }
    if (thread.joinable()) thread.join();
    queue.Shutdown();
    void* tag;
    bool ok;
    while (queue.Next(&tag, &ok)) {
    }
  }

  void run() {
    int64_t ticked_ms = 0, tried_ms = 0;
    for (int64_t wait_ms = 0; true; wait_ms = kTickMs) {  // it connects at once
      void* tag = nullptr;
      bool ok = false;
      const gpr_timespec deadline =
          gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));
      const auto got = queue.AsyncNext(&tag, &ok, deadline);
      {
        MutexLock lock(mutex);
        const int64_t now = now_ms();
        if (got == grpc::CompletionQueue::GOT_EVENT)
          complete(static_cast<ClientStream::ClientCall>(reinterpret_cast<intptr_t>(tag) - 1), ok, now);
        if (stopping && !stream) break;
        if (!stopping && !stream && user.wants_connection() && now - tried_ms >= kReconnectMs) {
          tried_ms = now;
          connect();
        }
        if (now - ticked_ms >= kTickMs) {
          ticked_ms = now;
          user.tick(now);
        }
      }
      user.after();
    }
  }

  /// Here and below, the caller holds `mutex`.
  void connect() {
    stream = std::make_unique<ClientStream>();
    if (!token.empty()) stream->context.AddMetadata(kTokenKey, token);
    stream->io = stub->PrepareAsyncTalk(&stream->context, &queue);
    ++stream->operations;
    stream->io->StartCall(tag_of(ClientStream::kStart));
  }

  void complete(ClientStream::ClientCall kind, bool ok, int64_t now) {
    ClientStream& s = *stream;
    --s.operations;
    switch (kind) {
      case ClientStream::kStart:
        if (ok && !stopping) {
          s.open = true;
          user.connected(now);
          read();
        } else {
          finish();
        }
        break;
      case ClientStream::kRead:
        if (ok) {
          user.received(now, s.incoming);
          read();
        } else {
          finish();
        }
        break;
      case ClientStream::kWrite:
        s.writing = false;
        s.outgoing.pop_front();
        if (!ok) finish();
        write();
        break;
      case ClientStream::kFinish:
        if (s.status.error_code() == grpc::StatusCode::UNAUTHENTICATED) user.refused(now);
        break;
    }
    if (s.operations == 0) stream.reset();
  }

  void read() {
    ++stream->operations;
    stream->io->Read(&stream->incoming, tag_of(ClientStream::kRead));
  }

  void write() {
    if (!stream || !stream->open || stream->writing || stream->outgoing.empty()) return;
    stream->writing = true;
    ++stream->operations;
    stream->io->Write(stream->outgoing.front(), tag_of(ClientStream::kWrite));
  }

  void finish() {
    ClientStream& s = *stream;
    if (s.open) user.closed();
    s.open = false;
    if (s.finishing) return;
    s.finishing = true;
    ++s.operations;
    s.io->Finish(&s.status, tag_of(ClientStream::kFinish));
  }

  const std::string token;
  TalkUser& user;
  Mutex mutex;
  grpc::CompletionQueue queue;
  std::unique_ptr<Coordination::Stub> stub;
  std::unique_ptr<ClientStream> stream;
  bool stopping = false;
  std::thread thread;
};

Talker::Talker(const std::string& address, const std::string& token, TalkUser& user)
    : impl_(std::make_unique<Impl>(address, token, user)) {}
Talker::~Talker() = default;

void Talker::start() {
  impl_->thread = std::thread([this] { impl_->run(); });
}

void Talker::send(MemberMessage message) {
  if (!impl_->stream || !impl_->stream->open) return;
  impl_->stream->outgoing.push_back(std::move(message));
  impl_->write();
}

Mutex& Talker::mutex() { return impl_->mutex; }

}  // namespace weft::control
