// FairMutex: threads get it in the order in which they ask for it.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weft {

/// A mutex for std::lock_guard. A thread that unlocks and locks it in a loop does not keep the others out.
class FairMutex {
 public:
  void lock() {
    std::unique_lock<std::mutex> own(m_);
    const uint64_t mine = next_++;
    turn_.wait(own, [&] { return now_ == mine; });
  }
  void unlock() {
    {
      const std::lock_guard<std::mutex> own(m_);
      ++now_;
    }
    turn_.notify_all();
  }

 private:
  std::mutex m_;
  std::condition_variable turn_;
  uint64_t next_ = 0, now_ = 0;
};

}  // namespace weft
