// Threads of a block as fibers: stacks of their own and a switch that saves what a call must keep. One system thread
// runs them all.
#pragma once
#include <cstddef>
#include <vector>

namespace weft::cuda {

/// Saves the caller's registers on its stack, that stack's pointer in *save, and goes on where `to` was saved.
extern "C" void weft_fiber_switch(void** save, void* to);

/// Stacks that are kept from block to block, with a page without access below each.
class FiberStacks {
 public:
  FiberStacks() = default;
  FiberStacks(const FiberStacks&) = delete;
  ~FiberStacks();
  /// Makes sure of `count` stacks. Throws weft::Error if there is no memory.
  void reserve(int count);
  /// A saved stack pointer that starts `function` (which never returns) on stack i.
  void* start(int i, void (*function)());
  /// Whether an address lies in the stacks.
  bool has(const void* p) const {
    return p >= memory_ && p < static_cast<const char*>(memory_) + bytes_ && memory_ != nullptr;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  int count_ = 0;
};

}  // namespace weft::cuda
