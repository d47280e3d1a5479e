// Happens-before among the threads of a block, as vector clocks. Besides the threads there are agents: the copy
// engine's loads and stores (TMA), and the tensor core of each warpgroup. A barrier of the whole block starts a new
// age, which is ordered after everything before it. So clocks record only events within an age.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::cuda {

class Clocks {
 public:
  /// Age, actor, and the actor's epoch; 0: never.
  using Stamp = uint64_t;
  static int who(Stamp s) { return static_cast<int>(s >> 28 & 0xfff); }

  /// The combined knowledge of all arrivals at a barrier.
  struct BarrierClock {
    std::vector<uint32_t> seen;
    uint32_t age = 0;
  };

  void begin_launch(int threads) {
    threads_ = threads;
    width_ = (threads + 10 + 15) / 16 * 16;
    epoch_.assign(width_, 1);
    seen_.assign(static_cast<size_t>(threads) * width_, 0);
    row_age_.assign(threads, 0);
    dirty_.assign(threads / 32 + 1, 0);
    age_ = 1;
  }
  /// Orders everything before after everything that follows.
  void sync_all() { ++age_; }
  int copy_engine() const { return threads_; }
  int store_engine() const { return threads_ + 9; }
  int tensor_core(int warpgroup) const { return threads_ + 1 + warpgroup; }

  Stamp now(int who) const { return uint64_t{age_} << 40 | uint64_t(who) << 28 | epoch_[who]; }
  /// Whether the event stamped `s` happened before the current action of thread `t`.
  bool ordered(Stamp s, int t) {
    if (s >> 40 != age_) return true;
    const int w = who(s);
    return w == t || row(t)[w] >= (s & 0xfffffff);
  }
  /// Makes the earlier actions of t known to all threads that acquire `r`.
  void release(int t, BarrierClock& r) {
    fit(r);
    raise(r.seen.data(), row(t));
    r.seen[t] = std::max(r.seen[t], epoch_[t]++);
  }
  void acquire(int t, BarrierClock& r) {
    if (r.age != age_) return;
    raise(row(t), r.seen.data());
    dirty_[t / 32] = 1;
  }
  /// Ends an agent's epoch and returns it.
  uint32_t advance(int agent) { return epoch_[agent]++; }
  void note(BarrierClock& r, int agent, uint32_t epoch) {
    fit(r);
    r.seen[agent] = std::max(r.seen[agent], epoch);
  }
  void learn(int t, int agent, uint32_t epoch) {
    uint32_t& e = row(t)[agent];
    e = std::max(e, epoch);
    dirty_[t / 32] = 1;
  }
  /// __syncwarp.
  void sync_warp(int warp) {
    const int first = warp * 32;
    uint32_t* const one = row(first);
    for (int l = 1; l < 32; ++l) {
      const uint32_t* other = row(first + l);
      if (dirty_[warp]) raise(one, other);
    }
    for (int l = 0; l < 32; ++l) one[first + l] = epoch_[first + l]++;
    for (int l = 1; l < 32; ++l) {
      uint32_t* other = row(first + l);
      if (dirty_[warp])
        std::copy_n(one, width_, other);
      else
        std::copy_n(one + first, 32, other + first);
    }
    dirty_[warp] = 0;
  }

 private:
  // Its steps have constant length, so that compilers vectorise it.
  void raise(uint32_t* a, const uint32_t* b) const {
    for (int i = 0; i < width_; i += 16)
      for (int j = 0; j < 16; ++j) a[i + j] = a[i + j] > b[i + j] ? a[i + j] : b[i + j];
  }
  uint32_t* row(int t) {
    uint32_t* r = &seen_[static_cast<size_t>(t) * width_];
    if (row_age_[t] != age_) {
      std::fill_n(r, width_, 0);
      row_age_[t] = age_;
    }
    return r;
  }
  void fit(BarrierClock& r) {
    if (r.age == age_ && r.seen.size() == static_cast<size_t>(width_)) return;
    r.seen.assign(width_, 0);
    r.age = age_;
  }

  int threads_ = 0, width_ = 0;
  uint32_t age_ = 1;
  std::vector<uint32_t> epoch_, seen_, row_age_;
  std::vector<char> dirty_;  // per warp: the rows of its threads may differ outside the warp
};

}  // namespace weft::cuda
