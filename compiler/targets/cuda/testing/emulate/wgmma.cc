// The tensor cores of sm_90a: m64nNk16 with operands in shared memory, addressed by their descriptors (a wrong
// descriptor reads the wrong bytes), or with A in registers. From wgmma to wgmma_wait, accumulators contain a special
// NaN. Intrinsics that store or convert reject it. Sums as in warp.cc.
#include <algorithm>
#include <bit>
#include <cstring>

#include "compiler/targets/cuda/testing/emulate/block.h"
#include "compiler/targets/cuda/testing/emulate/half.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

constexpr uint32_t kPoison = 0x7fedcba9;  // also in base.inc; arithmetic propagates it

struct Descriptor {
  int start, leading, stride, base, swizzle;
  explicit Descriptor(uint64_t d)
      : start(static_cast<int>(d & 0x3fff) << 4),
        leading(static_cast<int>(d >> 16 & 0x3fff) << 4),
        stride(static_cast<int>(d >> 32 & 0x3fff) << 4),
        base(static_cast<int>(d >> 49 & 7)) {
    constexpr int kBytes[] = {0, 128, 64, 32};
    swizzle = kBytes[d >> 62];
  }
  /// The byte of element (i, k), with i along M or N, 2 bytes each. trans: i is contiguous. Layouts: PTX ISA, "Strides"
  /// and "Matrix descriptor" of wgmma; CUTLASS's cute/arch/mma_sm90_desc.hpp has them in closed form.
  int at(int i, int k, bool trans) const {
    if (swizzle == 0)
      return trans ? start + i % 8 * 2 + i / 8 * stride + k % 8 * 16 + k / 8 * leading
                   : start + i / 8 * stride + i % 8 * 16 + k / 8 * leading + k % 8 * 2;
    const int span = swizzle / 2;  // elements
    const int plain = trans ? start + i % span * 2 + i / span * leading + k % 8 * swizzle + k / 8 * stride
                            : start + i / 8 * stride + i % 8 * swizzle + k * 2;
    return plain ^ (((plain >> 7) & (swizzle / 16 - 1)) << 4);
  }
};

}  // namespace

// detail: n | 0x1000 f16 | 0x2000 A transposed | 0x4000 B transposed | 0x8000 adds to the accumulators | 0x10000 A in
// registers.
void Block::wgmma(Group& g, int warpgroup) {
  Warpgroup& w = tensor_cores_[warpgroup];
  const abi::Lane& one = *g.lanes[0];
  const int n = one.detail & 0xfff, line = one.line;
  const bool bf16 = !(one.detail & 0x1000), trans_a = one.detail & 0x2000, trans_b = one.detail & 0x4000,
             onto = one.detail & 0x8000, registers = one.detail & 0x10000;
  if (!w.fenced) fail("wgmma without wgmma_fence before it", line);
  for (const abi::Lane* lane : g.lanes)
    if ((!registers && lane->value != one.value) || lane->value_b != one.value_b)
      fail("wgmma: the threads of a warpgroup hand over different descriptors", line);
  // The thread whose clock decides which writes are visible: a random thread each time.
  const int judge = warpgroup * 128 + static_cast<int>(random() % 128);
  const int agent = shadow_.clocks().tensor_core(warpgroup);
  auto value = [&](const Descriptor& d, int i, int k, bool trans) {
    const int at = d.at(i, k, trans);
    if (at % 16 == 0) {  // each 16 bytes are checked once, and held
      must(shadow_.read_async(judge, agent, at, 16, line), line);
      shadow_.hold(at, 16, 1);
      w.held.push_back({w.group, at, 16});
    }
    uint16_t h;
    std::memcpy(&h, shadow_.at(at), 2);
    return from_half(h, bf16);
  };
  auto check = [&](const Descriptor& d, const char* name) {
    if (d.base != 0) fail(str_cat("wgmma: a base offset in the descriptor of ", name, " is not emulated"), line);
  };

  std::vector<float> a(64 * 16), b(16 * static_cast<size_t>(n));
  if (registers) {
    for (int t = 0; t < 128; ++t) {
      const uint32_t* r = static_cast<const uint32_t*>(g.lanes[t]->a);
      for (int i = 0; i < 8; ++i)
        a[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * 16 + t % 4 * 2 + i % 2 + i / 4 * 8] =
            from_half(static_cast<uint16_t>(r[i / 2] >> 16 * (i % 2)), bf16);
    }
  } else {
    const Descriptor d(one.value);
    check(d, "A");
    for (int i = 0; i < 64; ++i)
      for (int k = 0; k < 16; ++k) a[i * 16 + k] = value(d, i, k, trans_a);
  }
  const Descriptor d(one.value_b);
  check(d, "B");
  for (int k = 0; k < 16; ++k)
    for (int j = 0; j < n; ++j) b[k * n + j] = value(d, j, k, trans_b);

  auto hidden =
      std::find_if(w.hidden.begin(), w.hidden.end(), [&](const Hidden& h) { return h.registers[0] == one.d; });
  if (hidden == w.hidden.end()) {
    w.hidden.push_back({n, 0, std::vector<float>(64 * static_cast<size_t>(n)), {}});
    hidden = w.hidden.end() - 1;
    for (int t = 0; t < 128; ++t) {
      float* r = static_cast<float*>(g.lanes[t]->d);
      hidden->registers.push_back(r);
      for (int i = 0; i < n / 2; ++i)
        hidden->sums[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * n + i / 4 * 8 + t % 4 * 2 + i % 2] = r[i];
      std::fill_n(r, n / 2, std::bit_cast<float>(kPoison));
    }
  }
  if (hidden->n != n) fail("wgmma: accumulators of another width are still under way", line);
  hidden->group = w.group;
  std::vector<double> sums(n);
  for (int i = 0; i < 64; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < n; ++j) sums[j] += static_cast<double>(a[i * 16 + k]) * b[k * n + j];
    for (int j = 0; j < n; ++j) {
      float& s = hidden->sums[i * n + j];
      s = static_cast<float>(onto ? sums[j] + s : sums[j]);
    }
  }
  w.epochs.push_back({w.group, shadow_.clocks().advance(agent)});
}

void Block::wgmma_wait(Group& g, int warpgroup) {
  Warpgroup& w = tensor_cores_[warpgroup];
  const int under_way = w.group - g.lanes[0]->detail, line = g.lanes[0]->line;  // groups from here on are
  uint32_t epoch = 0;
  std::erase_if(w.epochs, [&](const auto& e) {
    if (e.first >= under_way) return false;
    epoch = std::max(epoch, e.second);
    return true;
  });
  for (int t = 0; epoch && t < 128; ++t)
    shadow_.clocks().learn(warpgroup * 128 + t, shadow_.clocks().tensor_core(warpgroup), epoch);
  std::erase_if(w.held, [&](const Held& h) {
    if (h.group >= under_way) return false;
    shadow_.hold(h.offset, h.bytes, -1);
    return true;
  });
  for (Hidden& h : w.hidden) {
    if (h.group >= under_way) continue;
    for (int t = 0; t < 128; ++t)
      for (int i = 0; i < h.n / 2; ++i) {
        float& r = h.registers[t][i];
        if (std::bit_cast<uint32_t>(r) != kPoison)
          fail("accumulators were written to between a wgmma and its wgmma_wait", line);
        r = h.sums[(t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8) * h.n + i / 4 * 8 + t % 4 * 2 + i % 2];
      }
  }
  std::erase_if(w.hidden, [&](const Hidden& h) { return h.group < under_way; });
  w.fenced = false;
}

// The registers per thread under __launch_bounds__(threads, 1): the multiprocessor's registers divided by the threads,
// in units of 8.
int Block::registers_at_entry() const { return std::min(255, 65536 / threads_) / 8 * 8; }

void Block::set_registers(Group& g, int warpgroup) {
  int& now = tensor_cores_[warpgroup].registers;
  const int before = now ? now : registers_at_entry(), wanted = g.lanes[0]->detail / 2, line = g.lanes[0]->line;
  const bool up = g.lanes[0]->detail % 2;
  if (up ? wanted < before : wanted > before)
    fail(str_cat(g.lanes[0]->word, ": from ", before, " registers to ", wanted), line);
  now = wanted;
}

// Setting more registers than the block has waits forever.
std::string Block::missing_registers() const {
  int all = 0;
  bool any = false;
  for (const Warpgroup& w : tensor_cores_) {
    any |= w.registers != 0;
    all += 128 * (w.registers ? w.registers : registers_at_entry());
  }
  const int there = registers_at_entry() * threads_;
  if (!any || all <= there) return "";
  return str_cat("kernel ", kernel_->symbol, ": its warpgroups set ", all, " registers; a block of ", threads_,
                 " threads has ", there);
}

}  // namespace weft::cuda
