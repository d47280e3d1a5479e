#include "framework/ir/cell_gate.h"

#include <chrono>
#include <thread>
#include <utility>

#include "framework/base/actor.h"

namespace weft {

bool CellGate::mine() const { return owner_.load(std::memory_order_relaxed) == internal::actor(); }

void CellGate::wait() {
  uint32_t now;
  while ((now = state_.load(std::memory_order_acquire)) & kOwned) state_.wait(now, std::memory_order_acquire);
}

// A woken thread needs some microseconds to run, and the next step would take the gate before it.
void CellGate::make_way() {
  using std::chrono::microseconds;
  for (int i = 0; i < 1000 && waiting_.load(std::memory_order_relaxed) > 0; ++i) {
    if (state_.load(std::memory_order_relaxed) & kOwned) return;
    std::this_thread::sleep_for(microseconds(50));
  }
}

bool CellGate::enter_later() {
  leave();
  if (mine()) return false;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    wait();
    if ((state_.fetch_add(1, std::memory_order_acquire) & kOwned) == 0) break;
    leave();
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

bool CellGate::own() {
  if (waiting_.load(std::memory_order_relaxed) > 0) [[unlikely]]
    make_way();
  uint32_t now = 0;
  bool waits = false;
  while (!state_.compare_exchange_weak(now, kOwned, std::memory_order_acquire, std::memory_order_relaxed)) {
    if (now & kOwned) {
      if (mine()) return false;
      if (!std::exchange(waits, true)) waiting_.fetch_add(1, std::memory_order_relaxed);
      wait();
    } else if (now) {
      std::this_thread::yield();  // a reader needs nanoseconds
    }
    now = 0;
  }
  if (waits) waiting_.fetch_sub(1, std::memory_order_relaxed);
  owner_.store(internal::actor(), std::memory_order_relaxed);
  return true;
}

void CellGate::release() {
  owner_.store(nullptr, std::memory_order_relaxed);
  state_.fetch_and(~kOwned, std::memory_order_release);
  state_.notify_all();
}

}  // namespace weft
