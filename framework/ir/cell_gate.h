// CellGate: how threads share a cell. A compiled step owns the cells that it writes from the time it binds their
// addresses to its commit, because it writes in place: readers of other threads wait for the commit.
#pragma once
#include <atomic>
#include <cstdint>

namespace weft {

class CellGate {
 public:
  /// Lets the caller copy the handle of the value until leave(), which must follow at once. Waits while another thread
  /// owns the cell; returns false, without entering, if the thread for which the caller works owns it.
  bool enter() {
    if ((state_.fetch_add(1, std::memory_order_acquire) & kOwned) == 0) [[likely]]
      return true;
    return enter_later();
  }
  void leave() { state_.fetch_sub(1, std::memory_order_release); }

  /// Makes the thread for which the caller works the owner until release(). Waits for other owners, and for readers
  /// that copy the handle; returns false if this thread is the owner already. A thread that owns several cells takes
  /// them in the order of their addresses, so that no two threads wait for each other. Threads that wait since the last
  /// release() come first, for up to 50 ms, so that a loop of steps does not keep them out.
  bool own();
  void release();

 private:
  static constexpr uint32_t kOwned = uint32_t{1} << 31;
  bool enter_later();
  bool mine() const;
  void wait();
  void make_way();

  std::atomic<uint32_t> state_{0};    // readers, and kOwned
  std::atomic<uint32_t> waiting_{0};  // threads in wait(), and those that it has woken
  std::atomic<const void*> owner_{nullptr};
};

}  // namespace weft
