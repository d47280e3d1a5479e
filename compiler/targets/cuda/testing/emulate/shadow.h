// A block's shared memory with the state of every two bytes: whether they hold a value, are being copied or are being
// read by a tensor core, and who last wrote and read them. Every access is checked against this state.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/targets/cuda/testing/emulate/clocks.h"

namespace weft::cuda {

class Shadow {
 public:
  enum Pending : uint8_t { kNone, kCpAsync, kTma };

  /// `bytes` of shared memory at `memory`, all without a value.
  void begin_launch(int threads, char* memory, int bytes, bool races);
  void begin_block() { ++block_; }
  int bytes() const { return bytes_; }
  char* at(int offset) { return memory_ + offset; }
  Clocks& clocks() { return clocks_; }

  // Each of these returns the error ("reads bytes 8 to 12 of shared memory, which ..."), or an empty string.

  std::string read(int t, int offset, int bytes, int line);
  /// An agent that thread t starts reads through the async proxy. t's clock decides, and the threads that wrote the
  /// bytes must have fenced them.
  std::string read_async(int t, int agent, int offset, int bytes, int line);
  std::string write(int t, int offset, int bytes, int line);
  /// Thread t starts a copy that writes bytes later. It counts as a write now; until it completes, no thread may access
  /// them.
  std::string expect(int t, int offset, int bytes, Pending by, int line);
  /// The copy has completed; `who` (a thread or an agent) wrote the bytes.
  void arrive(int who, int offset, int bytes);
  /// fence_async_shared by thread t: agents see its earlier writes.
  void fence_async(int t) {
    fences_[t] = clocks_.now(t);
    clocks_.advance(t);
  }
  /// A tensor core starts or ends reading. In between, no thread may write.
  void hold(int offset, int bytes, int change);

 private:
  struct alignas(8) Cell {
    Clocks::Stamp write = 0, reads[2] = {0, 0};
    uint32_t block = 0;  // the rest belongs to this block; for other blocks the bytes are untouched
    uint16_t write_line = 0, read_line = 0;
    uint16_t held = 0;
    uint8_t has = 0, last_write = 0, pending = 0;  // has, last_write: bit i of byte i
  };
  Cell& fresh(Cell& c) {
    if (c.block != block_) {
      c = Cell();
      c.block = block_;
    }
    return c;
  }
  std::string where(const char* does, int offset, int bytes) const;
  std::string other(Clocks::Stamp s, const char* did, int line) const;
  std::string trouble(const Cell& c) const;
  std::string bounds(const char* does, int offset, int bytes) const;
  bool note_read(Cell& c, int mask, int t, int me, Clocks::Stamp now, int line);
  bool may_write(const Cell& c, int mask, int t);
  std::string wrong_read(const Cell& c, int mask, int offset, int bytes) const;
  std::string wrong_write(const Cell& c, int mask, int t, const char* does, int offset, int bytes);

  char* memory_ = nullptr;
  int bytes_ = 0;
  bool races_ = true;
  uint32_t block_ = 0;
  std::vector<Cell> cells_;
  std::vector<Clocks::Stamp> fences_;  // thread -> its last fence
  Clocks clocks_;
};

}  // namespace weft::cuda
