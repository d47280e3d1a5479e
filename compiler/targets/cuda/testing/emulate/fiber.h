// The threads of a block as fibers: each has a stack, and a switch saves the registers that a call must preserve. One
// system thread runs them all.
#pragma once
#include <cstddef>
#include <vector>

namespace weft::cuda {

/// Saves the caller's registers on its stack and the stack pointer in *save; continues where `to` was saved.
extern "C" void weft_fiber_switch(void** save, void* to);

/// Stacks that are reused from block to block, with an inaccessible page below each.
class FiberStacks {
 public:
  FiberStacks() = default;
  FiberStacks(const FiberStacks&) = delete;
  ~FiberStacks();
  /// Provides `count` stacks. Throws weft::Error if there is no memory.
  void reserve(int count);
  /// A saved stack pointer that starts `function` (which never returns) on stack i.
  void* start(int i, void (*function)());
  /// Memory beside the stacks for the data of the running block: kRoom bytes, at a multiple of 4096.
  char* room();
  static constexpr size_t kRoom = 512 << 10;
  /// The whole memory: room and stacks.
  const void* begin() const { return memory_; }
  size_t bytes() const { return bytes_; }
  /// Whether an address is inside the stacks.
  bool has(const void* p) const {
    return memory_ != nullptr && p >= static_cast<const char*>(memory_) + kRoom &&
           p < static_cast<const char*>(memory_) + bytes_;
  }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  int count_ = 0;  // number of stacks
};

}  // namespace weft::cuda
