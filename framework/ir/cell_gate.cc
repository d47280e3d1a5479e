#include "framework/ir/cell_gate.h"

#include <chrono>
#include <thread>
#include <utility>

#include "framework/base/actor.h"

namespace weft {

bool CellGate::mine() const { return owner_.load(std::memory_order_relaxed) == internal::actor(); }

// Also returns if the thread for which the caller works has become the owner.
void CellGate::wait() {
  uint32_t now;
  while (((now = state_.load(std::memory_order_acquire)) & kOwned) && !mine()) {
    state_.wait(now, std::memory_order_acquire);
  }
}

// A woken thread needs some microseconds to run, and the next step would take the gate before it.
void CellGate::make_way() {
  constexpr std::chrono::milliseconds kWay(50);
  const auto end = std::chrono::steady_clock::now() + kWay;
  while (waiting_.load(std::memory_order_relaxed) > 0 && std::chrono::steady_clock::now() < end) {
    if (state_.load(std::memory_order_relaxed) & kOwned) return;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
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
    if (!mine()) continue;
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    return false;
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
      if (mine()) {
        if (waits) waiting_.fetch_sub(1, std::memory_order_relaxed);
        return false;
      }
      if (!std::exchange(waits, true)) waiting_.fetch_add(1, std::memory_order_relaxed);
      wait();
    } else if (now) {
      std::this_thread::yield();  // a reader needs nanoseconds
    }
    now = 0;
  }
  if (waits) waiting_.fetch_sub(1, std::memory_order_relaxed);
  owner_.store(internal::actor(), std::memory_order_relaxed);
  if (waiting_.load(std::memory_order_relaxed) > 0) state_.notify_all();  // threads that work for the new owner
  return true;
}

void CellGate::release() {
  owner_.store(nullptr, std::memory_order_relaxed);
  state_.fetch_and(~kOwned, std::memory_order_release);
  state_.notify_all();
}

}  // namespace weft
