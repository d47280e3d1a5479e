// A block's shared memory with what is known of each two bytes: whether they hold a value, are on their way or being
// read by a tensor core, and who wrote and read them last. Every access is checked against that.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/targets/cuda/testing/emulate/clocks.h"

namespace weft::cuda {

class Shadow {
 public:
  enum Pending : uint8_t { kNone, kCpAsync, kTma };

  /// `bytes` of shared memory, all without a value, that lie at `memory`.
  void begin_launch(int threads, char* memory, int bytes, bool races);
  void begin_block() { ++block_; }
  int bytes() const { return bytes_; }
  char* at(int offset) { return memory_ + offset; }
  Clocks& clocks() { return clocks_; }

  // Each of these returns what is wrong ("reads bytes 8 to 12 of shared memory, which ..."), or an empty string.

  std::string read(int t, int offset, int bytes, int line);
  /// An agent that thread t starts reads through the async proxy: t's clock judges, and what threads wrote must have
  /// been fenced by them.
  std::string read_async(int t, int agent, int offset, int bytes, int line);
  std::string write(int t, int offset, int bytes, int line);
  /// Thread t lets bytes be written later: as a write now, after which nobody may touch them.
  std::string expect(int t, int offset, int bytes, Pending by, int line);
  /// They came, written by `who` (a thread or an agent).
  void arrive(int who, int offset, int bytes);
  /// fence_async_shared by thread t: what it wrote so far is seen by agents.
  void fence_async(int t) {
    fences_[t] = clocks_.now(t);
    clocks_.advance(t);
  }
  /// A tensor core begins or ends to read: in between nobody may write.
  void hold(int offset, int bytes, int change);

 private:
  struct alignas(8) Cell {
    Clocks::Stamp write = 0, reads[2] = {0, 0};
    uint32_t block = 0;  // the rest is of that block; else the bytes were not touched
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
  std::vector<Clocks::Stamp> fences_;  // of each thread, its last
  Clocks clocks_;
};

}  // namespace weft::cuda
