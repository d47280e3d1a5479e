#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "distributed/comm/gloo/link.h"

namespace weft::dist::wire {
namespace {

class OwnLink final : public Link {
 public:
  OwnLink(int process, LinkEvents events) : process_(process), events_(std::move(events)), thread_([this] { run(); }) {}
  ~OwnLink() override { close(); }

  void send(Outgoing frame) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    queue_.push_back(std::move(frame));
    changed_.notify_one();
  }
  void close() override {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::vector<char> buffer(kMaxPayload);
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closed_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Outgoing f = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (f.write && !f.write(buffer.data())) continue;
      events_.frame(process_, f.header, f.write ? buffer.data() : f.bytes.data());
    }
  }

  const int process_;
  const LinkEvents events_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Link> make_own_link(int process, LinkEvents events) {
  return std::make_unique<OwnLink>(process, std::move(events));
}

}  // namespace weft::dist::wire
