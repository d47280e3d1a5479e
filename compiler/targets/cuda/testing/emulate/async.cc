// Asynchronous operations: cp.async, mbarriers and TMA. A copy completes as late as possible: cp_async16 at the wait
// for its group, TMA when no thread can continue. Until then its bytes have no value.
#include <cstring>

#include "compiler/targets/cuda/testing/emulate/block.h"
#include "compiler/targets/cuda/testing/emulate/tensor_map.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {

void Block::cp_async(int offset, const void* src, bool valid, int line) {
  if (offset % 16 != 0)
    fail(str_cat("cp_async16 to byte ", offset, " of shared memory, which is not a multiple of 16"), line);
  if (valid) global(src, 16, false, line);
  must(shadow_.expect(running_, offset, 16, Shadow::kCpAsync, line), line);
  Fiber& f = fibers_[running_];
  f.copies.push_back({offset, f.group, valid ? src : nullptr});
}

void Block::cp_async_commit() { ++fibers_[running_].group; }

void Block::cp_async_wait(int groups) {
  Fiber& f = fibers_[running_];
  size_t kept = 0;
  for (const Copy& c : f.copies) {
    if (c.group >= f.group - groups) {
      f.copies[kept++] = c;
      continue;
    }
    if (c.src)
      std::memcpy(shadow_.at(c.offset), c.src, 16);
    else
      std::memset(shadow_.at(c.offset), 0, 16);
    shadow_.arrive(running_, c.offset, 16);
  }
  f.copies.resize(kept);
}

// ---- mbarriers ---------------------------------------------------------------------------------------------------

void Block::mbarrier_init(int offset, int count, int line) {
  if (count < 1 || count > 1024) fail(str_cat("an mbarrier counts 1 to 1024 arrivals, not ", count), line);
  must(shadow_.write(running_, offset, 8, line), line);
  Mbarrier& b = mbarriers_[offset];
  if (!b.waiting.empty()) fail(str_cat("initialises the mbarrier at byte ", offset, ", for which threads wait"), line);
  b = Mbarrier();
  b.count = b.missing = count;
}

Block::Mbarrier& Block::mbarrier_at(int offset, int line) {
  must(shadow_.read(running_, offset, 8, line), line);
  const auto it = mbarriers_.find(offset);
  if (it == mbarriers_.end()) fail(str_cat("there is no mbarrier at byte ", offset, ": no mbarrier_init"), line);
  return it->second;
}

void Block::completed(int offset) {
  Mbarrier& b = mbarriers_[offset];
  if (b.missing != 0 || b.bytes != 0) return;
  const int parity = b.phase++ & 1;
  b.missing = b.count;
  b.done = std::move(b.now);
  b.now = Clocks::BarrierClock();
  std::vector<int> free, stay;
  for (int t : b.waiting) (fibers_[t].parity == parity ? free : stay).push_back(t);
  b.waiting = stay;
  for (int t : free) shadow_.clocks().acquire(t, b.done);
  ready_all(free);
}

void Block::mbarrier_arrive(int offset, int bytes, int line) {
  Mbarrier& b = mbarrier_at(offset, line);
  if (b.missing == 0)
    fail(str_cat("arrives at the mbarrier at byte ", offset, " beyond its ", b.count, " arrivals of phase ", b.phase),
         line);
  if (bytes < 0 || bytes + b.bytes >= 1 << 20)
    fail(str_cat("expects ", bytes + b.bytes, " bytes at an mbarrier, which counts fewer than 2^20"), line);
  shadow_.clocks().release(running_, b.now);
  b.bytes += bytes;
  --b.missing;
  completed(offset);
}

void Block::mbarrier_wait(int offset, int parity, int line) {
  Mbarrier& b = mbarrier_at(offset, line);
  if (parity != 0 && parity != 1) fail(str_cat("mbarrier_wait: a parity is 0 or 1, not ", parity), line);
  if ((b.phase & 1) != parity) {
    shadow_.clocks().acquire(running_, b.done);
    return;
  }
  b.waiting.push_back(running_);
  wait(Why::kMbarrier, offset, parity, line);
}

void Block::fence(int kind) {
  if (kind == 1) return shadow_.fence_async(running_);
  for (auto& [offset, b] : mbarriers_) b.fenced = true;
}

// ---- TMA ---------------------------------------------------------------------------------------------------------

namespace {

// Calls move(offset of the element in the box's shared memory, global address or null if out of bounds).
template <class F>
void for_box(const EmulatedMap& m, const int* at, int start, const F& move) {
  int i[5] = {0, 0, 0, 0, 0};
  const int inner = m.box[0] * m.element_bytes, mask = m.swizzle_bytes() / 16 - 1;
  for (int line = 0;; ++line) {
    const char* row = reinterpret_cast<const char*>(m.address);
    bool inside = true;
    for (int d = 1; d < m.rank; ++d) {
      const int64_t x = int64_t{at[d]} + i[d];
      inside &= x >= 0 && x <= m.dims[d];
      row += x * static_cast<int64_t>(m.strides[d - 1]);
    }
    for (int x = 0; x < m.box[0]; ++x) {
      const int64_t c = int64_t{at[0]} + x;
      int to = line * inner + x * m.element_bytes;
      if (m.swizzle) to = ((start + to) ^ ((((start + to) >> 7) & mask) << 4)) - start;
      move(to, inside && c >= 0 && c <= m.dims[0] ? row + c * m.element_bytes : nullptr);
    }
    int d = 1;
    for (; d < m.rank; ++d) {
      if (++i[d] < m.box[d]) break;
      i[d] = 0;
    }
    if (d >= m.rank) return;
  }
}

int box_bytes(const EmulatedMap& m) {
  int bytes = m.element_bytes;
  for (int d = 0; d < m.rank; ++d) bytes *= m.box[d];
  return bytes;
}

std::string wrong_map(const EmulatedMap& m, int dims, int offset) {
  if (m.rank < 1 || m.rank > 5 || m.element_bytes == 0 || m.swizzle > 3)
    return "TMA with a TensorMap that was not encoded for the emulation";
  if (m.rank != dims) return str_cat("TMA of ", dims, " dims with a TensorMap of ", int{m.rank});
  // Swizzling permutes within 8 rows; the address itself gives their place.
  const int align = m.swizzle ? 8 * m.swizzle_bytes() : 128;
  if (offset % align) return str_cat("TMA at byte ", offset, " of shared memory, which is not a multiple of ", align);
  return "";
}

}  // namespace

void Block::tma_load(int offset, const void* map, int mbarrier, int dims, const int* at, int line) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0)
    fail("TMA with a TensorMap that is not at a multiple of 64 bytes", line);
  EmulatedMap m;
  std::memcpy(&m, map, sizeof m);
  must(wrong_map(m, dims, offset), line);
  Mbarrier& b = mbarrier_at(mbarrier, line);
  if (!b.fenced) fail("tma_load on an mbarrier without fence_mbarrier_init after mbarrier_init", line);
  const int bytes = box_bytes(m);
  must(shadow_.expect(running_, offset, bytes, Shadow::kTma, line), line);
  Load load{offset, mbarrier, bytes, std::vector<char>(bytes)};
  for_box(m, at, offset, [&](int to, const char* from) {
    if (!from) return;
    global(from, m.element_bytes, false, line);
    std::memcpy(&load.data[to], from, m.element_bytes);
  });
  loads_.push_back(std::move(load));
}

// Completes one TMA load, any of those in flight. False if there is none.
bool Block::finish_load() {
  if (loads_.empty()) return false;
  const size_t i = random() % loads_.size();
  std::swap(loads_[i], loads_.back());
  const Load load = std::move(loads_.back());
  loads_.pop_back();
  Clocks& clocks = shadow_.clocks();
  const int engine = clocks.copy_engine();
  std::memcpy(shadow_.at(load.offset), load.data.data(), load.bytes);
  shadow_.arrive(engine, load.offset, load.bytes);
  Mbarrier& b = mbarriers_[load.mbarrier];
  clocks.note(b.now, engine, clocks.advance(engine));
  b.bytes -= load.bytes;
  completed(load.mbarrier);
  return true;
}

void Block::tma_store(const void* map, int offset, int dims, const int* at, int line) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0)
    fail("TMA with a TensorMap that is not at a multiple of 64 bytes", line);
  EmulatedMap m;
  std::memcpy(&m, map, sizeof m);
  must(wrong_map(m, dims, offset), line);
  const int bytes = box_bytes(m);
  Clocks& clocks = shadow_.clocks();
  must(shadow_.read_async(running_, clocks.store_engine(), offset, bytes, line), line);
  for_box(m, at, offset, [&](int from, const char* to) {
    if (!to) return;
    global(to, m.element_bytes, true, line);
    std::memcpy(const_cast<char*>(to), shadow_.at(offset + from), m.element_bytes);
  });
  shadow_.hold(offset, bytes, 1);
  fibers_[running_].held.push_back({fibers_[running_].stores, offset, bytes, clocks.advance(clocks.store_engine())});
}

void Block::tma_store_wait(int groups, bool commit) {
  Fiber& f = fibers_[running_];
  if (commit) {
    ++f.stores;
    return;
  }
  size_t kept = 0;
  for (const Held& h : f.held) {
    if (h.group >= f.stores - groups) {
      f.held[kept++] = h;
      continue;
    }
    shadow_.hold(h.offset, h.bytes, -1);
    shadow_.clocks().learn(running_, shadow_.clocks().store_engine(), h.epoch);
  }
  f.held.resize(kept);
}

void encode_tensor_map(void* map128, int element_bytes, const void* base, std::span<const uint64_t> extents,
                       std::span<const uint64_t> strides, std::span<const uint32_t> box, int swizzle_bytes) {
  EmulatedMap m;
  const size_t n = extents.size();
  WEFT_CHECK(n >= 1 && n <= 5 && strides.size() + 1 == n && box.size() == n, "tensor map: of ", n, " extents, ",
             strides.size(), " strides and ", box.size(), " box extents; need n (1 to 5), n - 1 and n");
  WEFT_CHECK(element_bytes == 1 || element_bytes == 2 || element_bytes == 4 || element_bytes == 8,
             "tensor map: elements of ", element_bytes, " bytes; need 1, 2, 4 or 8");
  WEFT_CHECK(reinterpret_cast<uintptr_t>(base) % 16 == 0,
             "tensor map: the tensor does not begin at a multiple of 16 bytes");
  WEFT_CHECK(swizzle_bytes == 0 || swizzle_bytes == 32 || swizzle_bytes == 64 || swizzle_bytes == 128,
             "tensor map: a swizzle of ", swizzle_bytes, " bytes; need 0, 32, 64 or 128");
  m.address = reinterpret_cast<uintptr_t>(base);
  m.rank = static_cast<uint8_t>(n);
  m.element_bytes = static_cast<uint8_t>(element_bytes);
  m.swizzle = static_cast<uint8_t>(swizzle_bytes == 128 ? 3 : swizzle_bytes / 32);
  for (size_t d = 0; d < n; ++d) {
    WEFT_CHECK(extents[d] >= 1 && extents[d] <= uint64_t{1} << 32, "tensor map: extent ", extents[d], " of dim ", d);
    WEFT_CHECK(box[d] >= 1 && box[d] <= 256, "tensor map: a box of ", box[d], " elements in dim ", d,
               "; need 1 to 256");
    m.dims[d] = static_cast<uint32_t>(extents[d] - 1);
    m.box[d] = static_cast<uint16_t>(box[d]);
    if (d == 0) continue;
    WEFT_CHECK(strides[d - 1] % 16 == 0, "tensor map: a stride of ", strides[d - 1], " bytes in dim ", d,
               "; need a multiple of 16");
    m.strides[d - 1] = strides[d - 1];
  }
  const uint32_t inner = box[0] * element_bytes;
  WEFT_CHECK(inner % 16 == 0, "tensor map: ", inner, " bytes in the box's innermost dim; need a multiple of 16");
  WEFT_CHECK(swizzle_bytes == 0 || inner <= static_cast<uint32_t>(swizzle_bytes), "tensor map: ", inner,
             " bytes in the box's innermost dim; need at most the swizzle's ", swizzle_bytes);
  std::memset(map128, 0, 128);
  std::memcpy(map128, static_cast<void*>(&m), sizeof m);
}

}  // namespace weft::cuda
