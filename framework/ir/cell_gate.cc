#include "framework/ir/cell_gate.h"

#include <thread>

#include "framework/base/actor.h"

namespace weft {

bool CellGate::mine() const { return owner_.load(std::memory_order_relaxed) == internal::actor(); }

void CellGate::wait() {
  uint32_t now;
  while ((now = state_.load(std::memory_order_acquire)) & kOwned) state_.wait(now, std::memory_order_acquire);
}

bool CellGate::enter_later() {
  do {
    leave();
    if (mine()) return false;
    wait();
  } while (state_.fetch_add(1, std::memory_order_acquire) & kOwned);
  return true;
}

bool CellGate::own() {
  uint32_t now = 0;
  while (!state_.compare_exchange_weak(now, kOwned, std::memory_order_acquire, std::memory_order_relaxed)) {
    if (now & kOwned) {
      if (mine()) return false;
      wait();
    } else if (now) {
      std::this_thread::yield();  // a reader needs nanoseconds
    }
    now = 0;
  }
  owner_.store(internal::actor(), std::memory_order_relaxed);
  return true;
}

void CellGate::release() {
  owner_.store(nullptr, std::memory_order_relaxed);
  state_.fetch_and(~kOwned, std::memory_order_release);
  state_.notify_all();
}

}  // namespace weft
