// One block under emulation. Its threads are fibers that run one at a time, in an order drawn from a seed. It
// implements all waits, and stops at the first error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/targets/cuda/intrinsics/kernel.h"
#include "compiler/targets/cuda/testing/emulate/abi.h"
#include "compiler/targets/cuda/testing/emulate/fiber.h"
#include "compiler/targets/cuda/testing/emulate/global_shadow.h"
#include "compiler/targets/cuda/testing/emulate/shadow.h"

namespace weft::cuda {

/// Global memory that kernels may access.
struct Range {
  std::string name;
  const char* begin = nullptr;
  size_t bytes = 0;
  bool writable = true;
};

struct Counts {
  int64_t blocks = 0, steps = 0;  // steps: times that a thread continued
  int64_t bank_conflicts = 0;     // cycles that ldmatrix waits for banks
};

class Block {
 public:
  /// Runs all blocks of a grid. Returns the first error in one sentence, or an empty string.
  std::string launch(const Kernel& kernel, abi::Entry entry, Grid grid, const void* params, int parameter_bytes,
                     bool races, uint64_t seed, const std::vector<Range>& ranges);
  Counts counts;

  // The services behind abi::Host, called on the running thread.
  void* read(int offset, int bytes, int line);
  void* write(int offset, int bytes, int line);
  void collective(abi::Lane* lane);
  void barrier(int id, int threads, bool waits, int line);
  /// An access to global memory. `flag`: it may race with accesses of the same kind.
  void global(const void* p, int bytes, bool writes, int line, bool flag = false);
  void cp_async(int offset, const void* src, bool valid, int line);
  void cp_async_commit();
  void cp_async_wait(int groups);
  void mbarrier_init(int offset, int count, int line);
  void mbarrier_arrive(int offset, int bytes, int line);
  void mbarrier_wait(int offset, int parity, int line);
  void tma_load(int offset, const void* map, int mbarrier, int dims, const int* at, int line);
  void tma_store(const void* map, int offset, int dims, const int* at, int line);
  void tma_store_wait(int groups, bool commit);
  void fence(int kind);
  [[noreturn]] void poisoned(int line);
  [[noreturn]] void misaligned(const void* p, int bytes, int line);
  /// A segmentation fault of the running thread.
  [[noreturn]] void fault(const void* address);
  [[noreturn]] void run_thread();
  /// Abandons the running thread after an error; launch() continues.
  [[noreturn]] void stop();

 private:
  enum class Why : uint8_t { kRuns, kCollective, kBarrier, kMbarrier, kEnded };
  struct Copy {  // a cp_async16 in flight
    int offset, group;
    const void* src;  // null: zeros
  };
  struct Held {
    int group, offset, bytes;
    uint32_t epoch = 0;
  };
  struct Fiber {
    void* sp = nullptr;
    abi::Thread* abi = nullptr;
    Why why = Why::kRuns;
    int at = 0, parity = 0, line = 0;  // id of the barrier or offset of the mbarrier
    const char* word = "";
    int group = 0, stores = 0;  // groups of cp_async and of TMA stores that were started
    std::vector<Copy> copies;
    std::vector<Held> held;  // bytes that TMA stores hold
  };
  struct Group {  // a warp or a warpgroup at a collective intrinsic
    int arrived = 0, first = 0;
    std::vector<abi::Lane*> lanes;
  };
  struct Barrier {
    int threads = 0, arrived = 0, line = 0;
    uint32_t lanes[32] = {};  // that arrived, per warp
    std::vector<int> waiting;
    Clocks::BarrierClock row;
  };
  struct Mbarrier {
    int count = 0, missing = 0, phase = 0;
    bool fenced = false;
    int64_t bytes = 0;  // that TMA still has to deliver
    Clocks::BarrierClock now, done;
    std::vector<int> waiting;
  };
  struct Load {  // a TMA load in flight
    int offset, mbarrier, bytes;
    std::vector<char> data;
  };
  struct Hidden {  // accumulators while a tensor core uses them
    int n = 0, group = 0;
    std::vector<float> sums;        // 64 x n
    std::vector<float*> registers;  // per lane
  };
  struct Warpgroup {
    int group = 0, line = 0;
    int registers = 0;  // per thread, if it set them
    bool fenced = false;
    std::vector<Hidden> hidden;
    std::vector<Held> held;
    std::vector<std::pair<int, uint32_t>> epochs;  // group, the agent's epoch in it
  };

  // block.cc
  void begin_block(uint32_t x, uint32_t y, uint32_t z);
  int next();
  [[noreturn]] void leave();
  void wait(Why why, int at, int parity, int line);
  void ready(int t);
  void ready_all(const std::vector<int>& threads);
  [[noreturn]] void fail(const std::string& what, int line);
  bool in_range(const void* p, int bytes, bool writes, int line);
  std::string where(const void* p, int line) const;
  std::string deadlock();
  uint32_t random();
  void must(std::string wrong, int line) {
    if (!wrong.empty()) [[unlikely]]
      fail(wrong, line);
  }

  // warp.cc
  void perform(Group& g, int group);
  void shuffle(Group& g);
  void ldmatrix(Group& g, int warp);
  void mma(Group& g);

  // async.cc
  bool finish_load();
  void completed(int offset);
  Mbarrier& mbarrier_at(int offset, int line);

  // wgmma.cc
  void wgmma(Group& g, int warpgroup);
  void wgmma_wait(Group& g, int warpgroup);
  void set_registers(Group& g, int warpgroup);
  int registers_at_entry() const;
  std::string missing_registers() const;

  const Kernel* kernel_ = nullptr;
  abi::Entry entry_ = nullptr;
  const void* params_ = nullptr;
  int parameter_bytes_ = 0;
  abi::Thread** current_ = nullptr;
  const std::vector<Range>* ranges_ = nullptr;
  int threads_ = 0, running_ = 0, ended_ = 0;
  uint64_t state_ = 1;
  int last_line_ = 0;  // the last line that an intrinsic reported
  void* main_sp_ = nullptr;
  std::string error_;
  FiberStacks stacks_;
  std::vector<Fiber> fibers_;
  std::vector<int> ready_;  // a ring
  int head_ = 0, count_ = 0;
  std::vector<Group> groups_, warpgroups_;
  std::vector<Barrier> barriers_;
  std::map<int, Mbarrier> mbarriers_;
  std::vector<Load> loads_;
  std::vector<Warpgroup> tensor_cores_;
  Shadow shadow_;
  GlobalShadow global_;
  bool races_ = true;
  uint32_t block_ = 0;                 // the index of the running block in the grid
  const Range* last_range_ = nullptr;  // contains the last access
};

}  // namespace weft::cuda
