// Connections over TCP. One thread, the event loop of Gloo, sends and receives for all of them. To save its wake-up
// time, the thread that starts a collective sends small frames itself, and a waiting thread receives itself for a short
// time.
#include <gloo/transport/tcp/loop.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "distributed/comm/gloo/link.h"

namespace weft::dist::wire {
namespace {

using Clock = std::chrono::steady_clock;
using ::gloo::transport::tcp::Handler;
using ::gloo::transport::tcp::Loop;
using std::chrono::milliseconds;

constexpr size_t kFrameBytes = sizeof(FrameHeader) + kMaxPayload;
constexpr size_t kReadAhead = 8 << 10;  // bytes of one read while no frame has begun
constexpr int kAtOnce = 8;              // frames of a connection before other connections get their turn
constexpr milliseconds kFlush{1000}, kInterval{250};
constexpr std::chrono::microseconds kPoll{50};

class TcpLink final : public Link, public Handler {
 public:
  TcpLink(Loop& loop, int process, int socket, std::chrono::nanoseconds silence)
      : loop_(loop),
        process_(process),
        socket_(socket),
        silence_ms_(std::chrono::duration_cast<milliseconds>(silence).count()),
        in_(kFrameBytes + sizeof(FrameHeader)),
        out_(kFrameBytes) {
    // The kernel probes the other host after one second without data, and then once each second. The other kernel
    // answers, whether its process runs or not.
    const int on = 1, seconds = 1, count = static_cast<int>(std::max<int64_t>(1, silence_ms_ / 1000 - 1));
    setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    setsockopt(socket_, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  }
  ~TcpLink() override { close(); }

  // The kernel sends unacknowledged data again, but gives up only after many minutes. The kernel of a stopped process
  // still acknowledges. Called every `interval`.
  void check_answers(milliseconds interval) {
    const std::lock_guard lock(mutex_);
    tcp_info info = {};
    socklen_t length = sizeof info;
    if (socket_ < 0 || getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
    // `probes` counts probes without an answer; one of them may be lost. The host of a process that does not read
    // acknowledges data at once, but the kernel sends it again after longer and longer pauses.
    const bool recent = info.tcpi_last_ack_recv < interval.count();
    const bool data_waits = info.tcpi_unacked > 0 && info.tcpi_last_ack_recv > info.tcpi_last_data_sent;
    const bool answered = recent || !(info.tcpi_probes > 1 || data_waits);
    unanswered_ms_ = answered ? 0 : unanswered_ms_ + interval.count();
    if (unanswered_ms_ >= silence_ms_) shutdown(socket_, SHUT_RDWR);
  }

  void start(LinkEvents events) {
    const std::lock_guard lock(mutex_);
    events_ = std::move(events);
    started_ = true;
    watch();
  }

  void send(Outgoing frame) override {
    const std::lock_guard lock(mutex_);
    if (ended_ || closing_) return;
    if (!frame.write && queue_.empty() && begin_ == end_ && !writing_) {
      pack(frame.header, frame.bytes.data());
      send_packed();
    } else {
      queue_.push_back(std::move(frame));
    }
    watch();
  }

  void close() override {
    std::unique_lock lock(mutex_);
    if (closing_) return;
    closing_ = true;
    if (started_) {
      // The other process may have stopped: this one does not wait for it.
      changed_.wait_for(lock, kFlush, [&] { return ended_ || (queue_.empty() && begin_ == end_ && !writing_); });
      silent_ = true;
      shutdown(socket_, SHUT_RDWR);
      changed_.wait(lock, [&] { return gone_ && pollers_ == 0; });
      lock.unlock();
      const std::lock_guard left(reading_);  // the loop's thread holds it until it has left this object
    }
    ::close(socket_);
    socket_ = -1;
  }

  // Called before and after a thread polls this link: in between, arriving data does not wake the loop. False if the
  // link closes.
  bool begin_poll() {
    const std::lock_guard lock(mutex_);
    if (ended_ || closing_) return false;
    ++pollers_;
    watch();
    return true;
  }
  void end_poll() {
    const std::lock_guard lock(mutex_);
    --pollers_;
    watch();
    changed_.notify_all();
  }
  // Passes the received frames to the events, unless another thread does; true if there was a frame.
  bool poll() {
    const std::unique_lock lock(reading_, std::try_to_lock);
    return lock && receive() == Received::kSome;
  }

  void handleEvents(int events) override {
    if (events & EPOLLOUT) send_some();
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    const std::unique_lock lock(reading_);
    if (receive() == Received::kEnd) end();
  }

 private:
  enum class Received { kNothing, kSome, kEnd };

  // Sets the events that the loop waits for. The caller holds the lock.
  void watch() {
    if (!started_ || ended_) return;
    uint32_t events = pollers_ > 0 ? 0u : uint32_t{EPOLLIN};
    if (begin_ < end_ || !queue_.empty()) events |= EPOLLOUT;
    if (events == events_now_) return;
    events_now_ = events;
    loop_.registerDescriptor(socket_, events, this);
  }

  void pack(const FrameHeader& h, const char* payload) {
    std::memcpy(out_.data(), &h, sizeof h);
    if (payload && h.bytes) std::memcpy(out_.data() + sizeof h, payload, h.bytes);
    begin_ = 0;
    end_ = sizeof h + h.bytes;
  }
  // Sends the part of the packed frame that the kernel accepts. If the connection has ended, the loop will see it.
  void send_packed() {
    while (begin_ < end_) {
      const ssize_t n = ::send(socket_, out_.data() + begin_, end_ - begin_, MSG_NOSIGNAL);
      if (n > 0)
        begin_ += n;
      else if (errno != EINTR)
        return;
    }
  }

  // On the loop's thread.
  void send_some() {
    std::unique_lock lock(mutex_);
    for (int i = 0; i < kAtOnce && !ended_; ++i) {
      send_packed();
      if (begin_ < end_ || queue_.empty()) break;
      Outgoing f = std::move(queue_.front());
      queue_.pop_front();
      if (!f.write) {
        pack(f.header, f.bytes.data());
        continue;
      }
      writing_ = true;
      lock.unlock();
      const bool wanted = f.write(out_.data() + sizeof f.header);
      f.write = {};
      lock.lock();
      writing_ = false;
      if (wanted) pack(f.header, nullptr);
    }
    watch();
    changed_.notify_all();
  }

  // Reads the received bytes. The caller holds `reading_`.
  Received receive() {
    Received result = Received::kNothing;
    try {
      // Passes on all frames in `in_`: buffered data does not wake the loop.
      for (int reads = 0;;) {
        const size_t need = frame_end();
        if (need > 0 && have_ >= need) {
          if (silent_) return Received::kEnd;
          events_.frame(process_, read_header(in_.data()), in_.data() + sizeof(FrameHeader));
          have_ -= need;
          std::memmove(in_.data(), in_.data() + need, have_);
          result = Received::kSome;
          continue;
        }
        // Also reads the header of the next frame, but no more: further bytes would have to be moved.
        if (reads++ == kAtOnce) return result;
        const size_t most = need == 0 ? kReadAhead : need + sizeof(FrameHeader);
        const ssize_t n = recv(socket_, in_.data() + have_, most - have_, 0);
        if (n > 0)
          have_ += n;
        else if (n < 0 && errno == EINTR)
          continue;
        else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
          return result;
        else
          return Received::kEnd;
      }
    } catch (const std::exception&) {
      shutdown(socket_, SHUT_RDWR);  // the loop sees it, if this is another thread
      have_ = 0;
      return Received::kEnd;
    }
    return result;
  }
  // The length of the first frame in `in_`; 0 until its header is complete. Throws if the header is invalid.
  size_t frame_end() const {
    return have_ < sizeof(FrameHeader) ? 0 : sizeof(FrameHeader) + read_header(in_.data()).bytes;
  }

  // On the loop's thread.
  void end() {
    std::deque<Outgoing> dropped;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      dropped.swap(queue_);
      shutdown(socket_, SHUT_RDWR);
    }
    dropped.clear();
    loop_.unregisterDescriptor(socket_, this);
    if (!silent_) events_.lost(process_);
    const std::lock_guard lock(mutex_);
    gone_ = true;
    changed_.notify_all();
  }

  Loop& loop_;
  const int process_;
  int socket_;
  const int64_t silence_ms_;
  int64_t unanswered_ms_ = 0;
  LinkEvents events_;
  std::mutex reading_;    // locked before the locks of the events
  std::vector<char> in_;  // received bytes that are not processed yet
  size_t have_ = 0;
  std::mutex mutex_;  // guards the members below; no other lock is locked under it
  std::condition_variable changed_;
  std::vector<char> out_;  // the frame being sent: bytes [begin_, end_) are left
  size_t begin_ = 0, end_ = 0;
  std::deque<Outgoing> queue_;
  uint32_t events_now_ = ~0u;
  int pollers_ = 0;
  bool started_ = false, writing_ = false, closing_ = false;
  bool ended_ = false, gone_ = false;  // the connection has ended; the loop has left it
  std::atomic<bool> silent_{false};    // close() wants no more events
};

}  // namespace

struct Connections::State {
  std::shared_ptr<Loop> loop = std::make_shared<Loop>();
  std::vector<std::unique_ptr<TcpLink>> links;  // index: process
  std::mutex mutex;
  std::condition_variable changed;
  bool stop = false;
  std::thread watcher;
};

Connections::Connections(const std::vector<int>& sockets, std::chrono::nanoseconds silence)
    : state_(std::make_unique<State>()) {
  for (size_t p = 0; p < sockets.size(); ++p)
    state_->links.push_back(sockets[p] < 0 ? nullptr
                                           : std::make_unique<TcpLink>(*state_->loop, p, sockets[p], silence));
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

bool Connections::poll(const std::vector<int>& processes) {
  const auto end = Clock::now() + kPoll;
  std::vector<TcpLink*> links;
  for (int p : processes)
    if (state_->links[p]->begin_poll()) links.push_back(state_->links[p].get());
  bool some = false;
  while (!links.empty() && !some && Clock::now() < end)
    for (TcpLink* link : links) some |= link->poll();
  for (TcpLink* link : links) link->end_poll();
  return some;
}

void Connections::close() {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.stop = true;
    s.changed.notify_one();
  }
  if (s.watcher.joinable()) s.watcher.join();
  for (auto& link : s.links)
    if (link) link->close();
}

}  // namespace weft::dist::wire
