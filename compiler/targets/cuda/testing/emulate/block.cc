#include "compiler/targets/cuda/testing/emulate/block.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "compiler/targets/cuda/testing/emulate/faults.h"
#include "compiler/targets/cuda/testing/emulate/parameters.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

Block* g_block = nullptr;  // the running block; only one launch runs at a time

struct Stop {};  // fail throws it, so that the services free their resources

// Runs a service. No exception passes through the kernel's own code: after one, the fiber is abandoned.
template <class F>
auto guarded(const F& work) {
  try {
    return work();
  } catch (const Stop&) {
  }
  g_block->stop();
}

abi::Host host_of(const FiberStacks& own) {
  abi::Host host = {
      [](int offset, int bytes, int line) { return guarded([&] { return g_block->read(offset, bytes, line); }); },
      [](int offset, int bytes, int line) { return guarded([&] { return g_block->write(offset, bytes, line); }); },
      [](abi::Lane* lane) { guarded([&] { g_block->collective(lane); }); },
      [](int id, int threads, int waits, int line) {
        guarded([&] { g_block->barrier(id, threads, waits != 0, line); });
      },
      [](const void* p, int bytes, int writes, int line) {
        guarded([&] { g_block->global(p, bytes, writes != 0, line, writes == 2); });
      },
      [](int offset, const void* src, int valid, int line) {
        guarded([&] { g_block->cp_async(offset, src, valid != 0, line); });
      },
      [] { guarded([&] { g_block->cp_async_commit(); }); },
      [](int groups) { guarded([&] { g_block->cp_async_wait(groups); }); },
      [](int offset, int count, int line) { guarded([&] { g_block->mbarrier_init(offset, count, line); }); },
      [](int offset, int bytes, int line) { guarded([&] { g_block->mbarrier_arrive(offset, bytes, line); }); },
      [](int offset, int parity, int line) { guarded([&] { g_block->mbarrier_wait(offset, parity, line); }); },
      [](int kind) { guarded([&] { g_block->fence(kind); }); },
      [](int offset, const void* map, int mbarrier, int dims, const int* at, int line) {
        guarded([&] { g_block->tma_load(offset, map, mbarrier, dims, at, line); });
      },
      [](const void* map, int offset, int dims, const int* at, int line) {
        guarded([&] { g_block->tma_store(map, offset, dims, at, line); });
      },
      [](int groups, int commit) { guarded([&] { g_block->tma_store_wait(groups, commit != 0); }); },
      [](int line) { guarded([&] { g_block->poisoned(line); }); },
      [](const void* p, int bytes, int line) { guarded([&] { g_block->misaligned(p, bytes, line); }); },
      reinterpret_cast<unsigned long>(own.begin()),
      own.bytes(),
  };
  return host;
}

constexpr int kSharedMost = 256 << 10;

std::string index(const abi::Index3& i) { return str_cat("(", i.x, ", ", i.y, ", ", i.z, ")"); }

}  // namespace

uint32_t Block::random() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return static_cast<uint32_t>(state_ >> 32);
}

std::string Block::launch(const Kernel& kernel, abi::Entry entry, Grid grid, const void* params, int parameter_bytes,
                          bool races, uint64_t seed, const std::vector<Range>& ranges) {
  kernel_ = &kernel;
  entry_ = entry;
  params_ = params;
  parameter_bytes_ = parameter_bytes;
  ranges_ = &ranges;
  threads_ = kernel.threads;
  state_ = seed * 0x9E3779B97F4A7C15ull | 1;
  error_.clear();
  stacks_.reserve(threads_);
  fibers_.resize(threads_);
  ready_.resize(threads_);
  // The place of the threads in the room is after the shared memory.
  shadow_.begin_launch(threads_, stacks_.room(), kernel.shared_bytes, races);
  auto* threads = reinterpret_cast<abi::Thread*>(stacks_.room() + kSharedMost);
  static_assert(kSharedMost + 1024 * sizeof(abi::Thread) <= FiberStacks::kRoom);
  races_ = races;
  if (races) global_.begin_launch();
  last_range_ = nullptr;
  block_ = 0;
  g_block = this;
  const abi::Host host = host_of(stacks_);
  entry_(nullptr, &host, &current_);
  last_line_ = 0;
  const Faults faults([](const void* address) { g_block->fault(address); });
  const abi::Index3 blocks = {grid.x, grid.y, grid.z};
  for (int t = 0; t < threads_; ++t) {
    threads[t] = {{static_cast<unsigned>(t), 0, 0}, {}, {static_cast<unsigned>(threads_), 1, 1}, blocks};
    fibers_[t].abi = &threads[t];
  }
  for (uint32_t z = 0; z < grid.z; ++z)
    for (uint32_t y = 0; y < grid.y; ++y)
      for (uint32_t x = 0; x < grid.x; ++x) {
        begin_block(x, y, z);
        if (const int first = next(); first >= 0) {
          running_ = first;
          *current_ = fibers_[first].abi;
          weft_fiber_switch(&main_sp_, fibers_[first].sp);
        }
        if (error_.empty() && ended_ < threads_) error_ = deadlock();
        if (error_.empty()) error_ = missing_registers();
        if (!error_.empty()) return error_;
        ++counts.blocks;
        ++block_;
      }
  return "";
}

void Block::begin_block(uint32_t x, uint32_t y, uint32_t z) {
  const int warps = threads_ / 32;
  shadow_.begin_block();
  shadow_.clocks().sync_all();
  groups_.assign(warps, Group());
  warpgroups_.assign(threads_ / 128, Group());
  tensor_cores_.assign(threads_ / 128, Warpgroup());
  barriers_.assign(16, Barrier());
  mbarriers_.clear();
  loads_.clear();
  ended_ = head_ = count_ = 0;
  std::vector<int> order(warps);
  for (int w = 0; w < warps; ++w) order[w] = w;
  for (int w = warps - 1; w > 0; --w) std::swap(order[w], order[random() % (w + 1)]);
  for (int w : order) {
    const int turn = random() % 32;
    for (int l = 0; l < 32; ++l) ready(w * 32 + (l + turn) % 32);
  }
  for (int t = 0; t < threads_; ++t) {
    Fiber& f = fibers_[t];
    f.abi->block = {x, y, z};
    f.why = Why::kRuns;
    f.group = f.stores = 0;
    f.copies.clear();
    f.held.clear();
    f.sp = stacks_.start(t, [] { g_block->run_thread(); });
  }
}

void Block::run_thread() {
  entry_(params_, nullptr, nullptr);
  Fiber& f = fibers_[running_];
  f.why = Why::kEnded;
  ++ended_;
  leave();
}

// Switches to another thread, or to launch() if there is none. Never returns to the running thread.
void Block::leave() {
  void* none;
  const int n = next();
  if (n >= 0) {
    running_ = n;
    *current_ = fibers_[n].abi;
  }
  weft_fiber_switch(&none, n >= 0 ? fibers_[n].sp : main_sp_);
  std::abort();
}

int Block::next() {
  while (count_ == 0)
    if (!finish_load()) return -1;
  const int t = ready_[head_];
  if (++head_ == threads_) head_ = 0;
  --count_;
  ++counts.steps;
  return t;
}

void Block::ready(int t) {
  int at = head_ + count_++;
  ready_[at >= threads_ ? at - threads_ : at] = t;
}

void Block::ready_all(const std::vector<int>& threads) {
  const int n = static_cast<int>(threads.size());
  if (n == 0) return;
  const int turn = random() % n;
  const bool back = random() & 1;
  for (int i = 0; i < n; ++i) {
    const int at = (i + turn) % n;
    ready(threads[back ? n - 1 - at : at]);
  }
}

void Block::wait(Why why, int at, int parity, int line) {
  const int me = running_;
  Fiber& f = fibers_[me];
  f.why = why;
  f.at = at;
  f.parity = parity;
  f.line = line;
  const int n = next();
  if (n != me) {
    if (n >= 0) {
      running_ = n;
      *current_ = fibers_[n].abi;
    }
    weft_fiber_switch(&f.sp, n >= 0 ? fibers_[n].sp : main_sp_);
  }
  f.why = Why::kRuns;
}

void Block::fail(const std::string& what, int line) {
  const Fiber& f = fibers_[running_];
  error_ = str_cat("kernel ", kernel_->symbol, ", block ", index(f.abi->block), ", thread ", running_,
                   line > 0 ? str_cat(", line ", line) : "", ": ", what);
  throw Stop();
}

void Block::stop() {
  void* none;
  weft_fiber_switch(&none, main_sp_);
  std::abort();
}

std::string Block::deadlock() {
  // Reports threads that wait for the same event together.
  std::map<std::string, std::pair<int, int>> waiting;  // how many, and the first one
  for (int t = 0; t < threads_; ++t) {
    const Fiber& f = fibers_[t];
    std::string what;
    switch (f.why) {
      case Why::kRuns:
        what = "run";
        break;
      case Why::kEnded:
        what = "have ended";
        break;
      case Why::kCollective:
        what = str_cat("wait for the other lanes in ", f.word, " (line ", f.line, ")");
        break;
      case Why::kBarrier: {
        const Barrier& b = barriers_[f.at];
        what = str_cat("wait at ", f.at == 0 ? "__syncthreads" : str_cat("barrier ", f.at), " (line ", f.line,
                       "), where ", b.arrived, " of ", b.threads, " arrived");
        break;
      }
      case Why::kMbarrier: {
        const Mbarrier& b = mbarriers_[f.at];
        what = str_cat("wait for parity ", f.parity, " of the mbarrier at byte ", f.at, " (line ", f.line,
                       "), in phase ", b.phase, " of which ", b.count - b.missing, " of ", b.count, " arrived and ",
                       b.bytes, " bytes are to come");
        break;
      }
    }
    auto [it, added] = waiting.try_emplace(what, 0, t);
    ++it->second.first;
  }
  std::string out = str_cat("kernel ", kernel_->symbol, ", block ", index(fibers_[0].abi->block), ": deadlock: ");
  bool first = true;
  for (const auto& [what, who] : waiting) {
    out +=
        str_cat(first ? "" : "; ", who.first, who.first == 1 ? " thread (" : " threads (from ", who.second, ") ", what);
    first = false;
  }
  return out;
}

void* Block::read(int offset, int bytes, int line) {
  last_line_ = line;
  must(shadow_.read(running_, offset, bytes, line), line);
  return shadow_.at(offset);
}

void* Block::write(int offset, int bytes, int line) {
  last_line_ = line;
  must(shadow_.write(running_, offset, bytes, line), line);
  return shadow_.at(offset);
}

void Block::collective(abi::Lane* lane) {
  const bool warp = lane->kind < abi::kFirstOfWarpgroup;
  const int size = warp ? 32 : 128, t = running_, group = t / size;
  if (!warp && group >= static_cast<int>(warpgroups_.size()))
    fail(str_cat(lane->word, " by a thread of no whole warpgroup: the block has ", threads_, " threads"), lane->line);
  Group& g = warp ? groups_[group] : warpgroups_[group];
  if (g.lanes.empty()) g.lanes.resize(size);
  if (g.arrived == 0) {
    g.first = t;
  } else {
    const abi::Lane& f = *g.lanes[g.first % size];
    if (f.kind != lane->kind || f.line != lane->line || f.detail != lane->detail)
      fail(str_cat(warp ? "lanes of a warp" : "threads of a warpgroup", " part: this one is in ", lane->word,
                   ", thread ", g.first, " in ", f.word,
                   f.word == lane->word && f.line == lane->line ? " with other operands" : "", " (line ", f.line, ")"),
           lane->line);
  }
  g.lanes[t % size] = lane;
  if (++g.arrived < size) {
    fibers_[t].word = lane->word;
    wait(Why::kCollective, group, 0, lane->line);
    return;
  }
  g.arrived = 0;
  perform(g, group);
  const int turn = random() % size;
  for (int i = 0; i < size; ++i)
    if (const int l = group * size + (i + turn) % size; l != t) ready(l);
}

void Block::barrier(int id, int threads, bool waits, int line) {
  const bool whole = id == 0;
  if (whole) threads = threads_;
  if (id < 0 || id > 15) fail(str_cat("there are barriers 0 to 15, not ", id), line);
  if (threads <= 0 || threads % 32 != 0 || threads > threads_)
    fail(str_cat("barrier ", id, " for ", threads, " threads: a multiple of 32 up to the block's ", threads_,
                 " is needed"),
         line);
  Barrier& b = barriers_[id];
  if (b.arrived == 0) {
    b.threads = threads;
    b.line = line;
  } else if (b.threads != threads) {
    fail(str_cat("barrier ", id, " is for ", threads, " threads here and for ", b.threads, " in line ", b.line), line);
  }
  Clocks& clocks = shadow_.clocks();
  // Waiting threads do nothing meanwhile, so their release can happen when all have arrived.
  if (!waits) clocks.release(running_, b.row);
  b.lanes[running_ / 32] |= 1u << running_ % 32;
  if (++b.arrived < b.threads) {
    if (!waits) return;
    b.waiting.push_back(running_);
    wait(Why::kBarrier, id, 0, line);
    return;
  }
  b.arrived = 0;
  // A device counts warps.
  for (uint32_t& lanes : b.lanes) {
    if (lanes != 0 && lanes != 0xffffffffu)
      fail(str_cat("lanes of warp ", &lanes - b.lanes, " part at ", whole ? "__syncthreads" : str_cat("barrier ", id),
                   ": some came and some did not"),
           line);
    lanes = 0;
  }
  if (static_cast<int>(b.waiting.size()) + waits == threads_) {
    clocks.sync_all();
  } else {
    for (int t : b.waiting) clocks.release(t, b.row);
    if (waits) clocks.release(running_, b.row);
    for (int t : b.waiting) clocks.acquire(t, b.row);
    if (waits) clocks.acquire(running_, b.row);
    b.row = Clocks::BarrierClock();
  }
  ready_all(b.waiting);
  b.waiting.clear();
}

void Block::fault(const void* address) {
  const int line = std::exchange(last_line_, 0);
  try {
    fail(stacks_.has(address)
             ? std::string("its stack overflows: too large arrays of its own")
             : str_cat("touches address ", reinterpret_cast<uintptr_t>(address), ", where no memory is",
                       line > 0 ? str_cat(" (line ", line, " is the last that used a word)") : ""),
         0);
  } catch (const Stop&) {
  }
  stop();
}

void Block::misaligned(const void* p, int bytes, int line) {
  fail(str_cat("touches memory that needs a multiple of ", bytes, " at address ", reinterpret_cast<uintptr_t>(p),
               ", which is ", reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes), " past one"),
       line);
}

void Block::poisoned(int line) {
  fail("uses a value computed from accumulators of a wgmma that no wgmma_wait waited for", line);
}

void Block::global(const void* p, int bytes, bool writes, int line, bool flag) {
  if (line > 0) last_line_ = line;
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) [[unlikely]]
    fail(str_cat(writes ? "writes " : "reads ", bytes,
                 " bytes of global memory at an address that is not a multiple of ", bytes, where(p, line)),
         line);
  if (!ranges_->empty() && !in_range(p, bytes, writes, line)) return;
  if (!races_ || flag) return;
  if (const auto other = global_.access(shadow_.clocks(), block_, running_, p, bytes, writes)) [[unlikely]] {
    const abi::Index3 n = fibers_[running_].abi->blocks;
    fail(str_cat(writes ? "writes " : "reads ", bytes, " bytes of global memory", where(p, line), ", which ",
                 other.block == block_
                     ? std::string()
                     : str_cat("block ", index({other.block % n.x, other.block / n.x % n.y, other.block / n.x / n.y}),
                               ", "),
                 "thread ", other.thread, other.many ? " and others" : "", other.wrote ? " wrote" : " read",
                 other.block == block_ ? " with no barrier between" : " in the same launch"),
         line);
  }
}

// True if the bytes are memory that the launch may access; false if they are constants of the kernel.
bool Block::in_range(const void* p, int bytes, bool writes, int line) {
  const char* c = static_cast<const char*>(p);
  const auto holds = [&](const Range& r) { return c >= r.begin && c + bytes <= r.begin + r.bytes; };
  if (!last_range_ || !holds(*last_range_) || (writes && !last_range_->writable)) [[unlikely]] {
    last_range_ = nullptr;
    for (const Range& r : *ranges_)
      if (holds(r) && (!last_range_ || r.writable)) last_range_ = &r;
    if (!last_range_) {
      Dl_info of_kernel, of_address;
      if (!writes && ::dladdr(reinterpret_cast<void*>(entry_), &of_kernel) && ::dladdr(p, &of_address) &&
          of_kernel.dli_fbase == of_address.dli_fbase)
        return false;
      fail(str_cat(writes ? "writes " : "reads ", bytes, " bytes of global memory outside of the arguments' memory",
                   where(p, line)),
           line);
    }
    if (writes && !last_range_->writable) fail(str_cat("writes to ", last_range_->name, ", which is only read"), line);
  }
  return true;
}

// A description such as " (byte 8 of in0, which has 64, byte 8 behind parameter x0)".
std::string Block::where(const void* p, int line) const {
  const char* c = static_cast<const char*>(p);
  const Range* near = nullptr;
  for (const Range& r : *ranges_)
    if (c >= r.begin && (!near || r.begin > near->begin)) near = &r;
  std::string out;
  if (near) out = str_cat(" (byte ", c - near->begin, " of ", near->name, ", which has ", near->bytes);
  // The parameter with the nearest address before it.
  uint64_t best = 0;
  int place = -1;
  for (int at = 0; at + 8 <= parameter_bytes_; at += 8) {
    uint64_t word;
    std::memcpy(&word, static_cast<const char*>(params_) + at, 8);
    if (word <= reinterpret_cast<uint64_t>(p) && word > best) {
      best = word;
      place = at;
    }
  }
  if (place >= 0 && reinterpret_cast<uint64_t>(p) - best < uint64_t{1} << 32)
    out += str_cat(out.empty() ? " (" : ", ", "byte ", reinterpret_cast<uint64_t>(p) - best, " behind ",
                   parameter_name(kernel_->text, place));
  if (line <= 0 && last_line_ > 0)
    out += str_cat(out.empty() ? " (" : ", ", "line ", last_line_, " is the last that used a word");
  return out.empty() ? out : str_cat(out, ")");
}

}  // namespace weft::cuda
