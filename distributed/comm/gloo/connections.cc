// Connections over Gloo's TCP transport. All frames of a connection have one tag, and the receiver keeps a few receives
// pending, so frames arrive in order and the sender cannot run ahead.
#include <fcntl.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "distributed/comm/gloo/link.h"
#include "framework/base/error.h"

namespace weft::dist::wire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Buffer = std::unique_ptr<::gloo::transport::UnboundBuffer>;

constexpr int kBuffers = 4;  // frames that a connection has under way in each direction
constexpr size_t kFrameBytes = sizeof(FrameHeader) + kMaxPayload;
constexpr uint64_t kTag = 1;
// If a wait of Gloo times out, Gloo closes all connections. So our waits set no timeout.
constexpr milliseconds kForever = std::chrono::hours(24 * 3650);
constexpr milliseconds kFlush{1000}, kInterval{250};

// Gloo writes to connections that the other side has closed: this thread must not get SIGPIPE from it.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set_, &old_);
  }
  ~NoSigpipe() {
    if (sigismember(&old_, SIGPIPE)) return;
    const timespec now = {};
    while (sigtimedwait(&set_, nullptr, &now) == SIGPIPE) continue;
    pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;

 private:
  sigset_t set_, old_;
};

// The connected socket with this local address; Gloo does not give it away. The caller owns the copy.
int copy_of_socket(const std::vector<char>& address) {
  const sockaddr_storage want = ::gloo::transport::tcp::Address(address).getSockaddr();
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(entry.path().filename().c_str());
    sockaddr_storage own = {}, peer = {};
    socklen_t length = sizeof own, peer_length = sizeof peer;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length) != 0)
      continue;
    if (own.ss_family == want.ss_family && std::memcmp(&own, &want, length) == 0) return fcntl(fd, F_DUPFD_CLOEXEC, 0);
  }
  return -1;
}

class GlooLink final : public Link {
 public:
  GlooLink(::gloo::transport::Context& context, int process) : process_(process) {
    for (Slot& s : out_) s.make(context);
    for (Slot& s : in_) s.make(context);
  }
  ~GlooLink() override { close(); }

  // Has the kernel ask the other host for a sign of life, whether its process runs or not.
  void watch(const std::vector<char>& address, std::chrono::nanoseconds silence) {
    socket_ = copy_of_socket(address);
    if (socket_ < 0) return;
    silence_ms_ = std::chrono::duration_cast<milliseconds>(silence).count();
    // Without data: a question after one second, and then one each second.
    const int on = 1, seconds = 1, count = static_cast<int>(std::max<int64_t>(1, silence_ms_ / 1000 - 1));
    setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  }

  // The kernel sends again what is not acknowledged, but gives up only after many minutes. A process that has stopped
  // does not keep its kernel from acknowledging. Called every `interval`.
  void check_answers(milliseconds interval) {
    const std::lock_guard lock(mutex_);
    tcp_info info = {};
    socklen_t length = sizeof info;
    if (socket_ < 0 || getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
    // Probes: there is data that cannot be sent, and nobody says why.
    const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
    const bool answered = !waits || info.tcpi_last_ack_recv < interval.count();
    unanswered_ms_ = answered ? 0 : unanswered_ms_ + interval.count();
    if (unanswered_ms_ >= silence_ms_) shutdown(socket_, SHUT_RDWR);
  }

  void start(LinkEvents events) {
    events_ = std::move(events);
    sender_ = std::thread([this] { send_all(); });
    receiver_ = std::thread([this] { receive_all(); });
  }

  void send(Outgoing frame) override {
    const std::lock_guard lock(mutex_);
    if (ended_ || closing_) return;
    // Small frames are sent by the caller if nothing is before them: no other thread has to wake.
    if (!frame.write && queue_.empty() && !sending_ && under_way_ < kBuffers) {
      post(frame.header, frame.bytes.data());
      return;
    }
    queue_.push_back(std::move(frame));
    changed_.notify_all();
  }

  void close() override {
    {
      std::unique_lock lock(mutex_);
      if (closing_) return;
      closing_ = true;
      changed_.notify_all();
      // The other process may have stopped: this one does not wait for it.
      changed_.wait_for(lock, kFlush, [&] { return sender_ended_ || !sender_.joinable(); });
    }
    if (sender_.joinable()) {
      for (Slot& s : out_) s.buffer->abortWaitSend();
      sender_.join();
    }
    stop_.store(true);
    for (Slot& s : in_) s.buffer->abortWaitRecv();
    if (receiver_.joinable()) receiver_.join();
    end();
  }

 private:
  struct Slot {
    std::vector<char> bytes;
    Buffer buffer;
    void make(::gloo::transport::Context& context) {
      bytes.resize(kFrameBytes);
      buffer = context.createUnboundBuffer(bytes.data(), bytes.size());
    }
  };

  // Sends the next buffer; its payload is written already if `payload` is null. Needs the lock.
  void post(const FrameHeader& h, const char* payload) {
    Slot& s = out_[next_];
    std::memcpy(s.bytes.data(), &h, sizeof h);
    if (payload && h.bytes) std::memcpy(s.bytes.data() + sizeof h, payload, h.bytes);
    next_ = (next_ + 1) % kBuffers;
    ++under_way_;
    try {
      const NoSigpipe guard;
      s.buffer->send(process_, kTag, 0, sizeof h + h.bytes);
    } catch (const std::exception&) {
      ended_ = true;  // the receiver reports it
    }
  }

  // Waits until the oldest buffer under way is sent.
  bool reclaim(milliseconds patience) {
    Slot& s = out_[(next_ + kBuffers - under_way_) % kBuffers];
    try {
      return s.buffer->waitSend(nullptr, patience);
    } catch (const std::exception&) {
      return false;
    }
  }

  void send_all() {
    const NoSigpipe guard;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || ended_ || !queue_.empty(); });
      if (ended_) break;
      if (queue_.empty()) break;
      sending_ = true;
      if (under_way_ == kBuffers) {
        // Small frames that follow find free buffers; large ones keep the connection busy.
        const int n = queue_.front().write ? 1 : kBuffers;
        for (int i = 0; i < n; ++i) {
          lock.unlock();
          const bool sent = reclaim(kForever);
          lock.lock();
          --under_way_;
          ended_ |= !sent;
        }
      }
      if (ended_) break;
      Outgoing f = std::move(queue_.front());
      queue_.pop_front();
      bool wanted = true;
      if (f.write) {
        lock.unlock();
        wanted = f.write(out_[next_].bytes.data() + sizeof f.header);
        lock.lock();
      }
      if (wanted) post(f.header, f.write ? nullptr : f.bytes.data());
      f = {};
      sending_ = false;
    }
    queue_.clear();
    // A wait that times out ends the connection, which is about to end anyway.
    while (!ended_ && under_way_ > 0) {
      lock.unlock();
      const bool sent = reclaim(kFlush);
      lock.lock();
      --under_way_;
      if (!sent) break;
    }
    sender_ended_ = true;
    changed_.notify_all();
  }

  void receive_all() {
    const NoSigpipe guard;
    try {
      for (Slot& s : in_) s.buffer->recv(process_, kTag);
      for (int i = 0;; i = (i + 1) % kBuffers) {
        Slot& s = in_[i];
        if (!s.buffer->waitRecv(nullptr, kForever)) return;  // close()
        events_.frame(process_, read_header(s.bytes.data()), s.bytes.data() + sizeof(FrameHeader));
        s.buffer->recv(process_, kTag);
      }
    } catch (const std::exception&) {
      end();
      if (!stop_.load()) events_.lost(process_);
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
    if (socket_ < 0) return;
    shutdown(socket_, SHUT_RDWR);
    ::close(socket_);
    socket_ = -1;
  }

  const int process_;
  LinkEvents events_;
  int socket_ = -1;  // a copy of Gloo's
  int64_t silence_ms_ = 0, unanswered_ms_ = 0;
  Slot out_[kBuffers], in_[kBuffers];
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;
  int next_ = 0, under_way_ = 0;  // of out_
  bool sending_ = false, sender_ended_ = false, ended_ = false, closing_ = false;
  std::atomic<bool> stop_{false};
  std::thread sender_, receiver_;
};

std::string key_of(int process) { return str_cat("gloo/addresses_", process); }

}  // namespace

struct Connections::State {
  std::shared_ptr<::gloo::transport::Device> device;
  std::shared_ptr<::gloo::transport::Context> context;
  std::vector<std::unique_ptr<GlooLink>> links;  // by process
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::thread watcher;
};

Connections::Connections(Store& store, int mine, const std::vector<std::string>& names, const ConnectOptions& options,
                         Store::Deadline deadline)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  const int count = static_cast<int>(names.size());
  const NoSigpipe guard;  // Gloo's thread takes this mask
  std::string others = "other processes";
  WEFT_CHECK_AS(kNotFound, options.interface.empty() || if_nametoindex(options.interface.c_str()) > 0,
                "gloo: this host has no network interface ", options.interface);
  try {
    ::gloo::transport::tcp::attr attr;
    attr.hostname = options.address;
    attr.iface = options.interface;
    s.device = ::gloo::transport::tcp::CreateDevice(attr);
    s.context = s.device->createContext(mine, count);
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    s.context->setTimeout(std::max(milliseconds(1), left / 5));  // Gloo waits five times as long for a connection
    std::string own;
    for (int p = 0; p < count; ++p) {
      if (p == mine) continue;
      const std::vector<char> address = s.context->createPair(p)->address().bytes();
      own.append(address.begin(), address.end());
    }
    store.set(key_of(mine), own);
    s.links.resize(count);
    for (int p = 0; p < count; ++p) {
      if (p == mine) continue;
      others = names[p];
      const std::string all = store.get(key_of(p), deadline);
      const size_t one = all.size() / std::max(1, count - 1), at = one * (mine < p ? mine : mine - 1);
      WEFT_CHECK_AS(kUnavailable, one == s.context->getPair(p)->address().bytes().size(), "gloo: ", key_of(p),
                    " is not a list of ", count - 1, " addresses");
      s.context->getPair(p)->connect(
          {all.begin() + static_cast<int64_t>(at), all.begin() + static_cast<int64_t>(at + one)});
      s.links[p] = std::make_unique<GlooLink>(*s.context, p);
      s.links[p]->watch(s.context->getPair(p)->address().bytes(), options.silence);
    }
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    throw Error(error ? error->code() : Code::kUnavailable,
                str_cat("gloo: cannot connect to ", others, " from ",
                        options.interface.empty() ? options.address : options.interface, ": ", e.what()));
  }
}

Connections::~Connections() { close(); }

void Connections::start(LinkEvents events) {
  State& s = *state_;
  for (auto& link : s.links)
    if (link) link->start(events);
  s.watcher = std::thread([&s] {
    std::unique_lock lock(s.mutex);
    while (!s.changed.wait_for(lock, kInterval, [&] { return s.stop; }))
      for (auto& link : s.links)
        if (link) link->check_answers(kInterval);
  });
}

Link& Connections::link(int process) { return *state_->links.at(process); }

void Connections::close() {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.stop = true;
    s.changed.notify_one();
  }
  if (s.watcher.joinable()) s.watcher.join();
  const NoSigpipe guard;
  for (auto& link : s.links)
    if (link) link->close();
}

}  // namespace weft::dist::wire
