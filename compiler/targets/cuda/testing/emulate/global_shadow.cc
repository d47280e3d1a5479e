#include "compiler/targets/cuda/testing/emulate/global_shadow.h"

#include <algorithm>
#include <bit>
namespace weft::cuda {

void GlobalShadow::begin_launch() {
  ++launch_;
  if (pages_.size() < 2048) return;  // keeps at most about a quarter of a GiB
  pages_.clear();
  lookups_.assign(kLookups, Lookup());
}

GlobalShadow::Page& GlobalShadow::page(uint64_t number) {
  Lookup& l = lookups_[number % kLookups];
  if (l.number != number) {
    std::unique_ptr<Page>& p = pages_[number];
    if (!p) p = std::make_unique<Page>();
    l = {number, p.get()};
  }
  return *l.page;
}

void GlobalShadow::refine(Page& p, int shift) {
  std::vector<Cell> finer(kPage >> shift);
  for (size_t i = 0; i < finer.size(); ++i) finer[i] = p.cells[i >> (p.shift - shift)];
  p.cells = std::move(finer);
  p.shift = shift;
}

GlobalShadow::Other GlobalShadow::access(Clocks& clocks, uint32_t block, int t, const void* address, int bytes,
                                         bool writes) {
  const Clocks::Stamp now = clocks.now(t);
  for (uint64_t at = reinterpret_cast<uint64_t>(address), end = at + bytes; at < end;) {
    Page& p = page(at / kPage);
    const int first = static_cast<int>(at % kPage);
    const int last = static_cast<int>(std::min<uint64_t>(kPage, first + (end - at)));
    at += last - first;
    const int shift = std::countr_zero(static_cast<unsigned>(first | last | 16));
    if (p.launch != launch_) {
      p.launch = launch_;
      p.shift = shift;
      p.cells.assign(kPage >> shift, Cell());
    } else if (p.shift > shift) {
      refine(p, shift);
    }
    for (int i = first >> p.shift; i < last >> p.shift; ++i) {
      Cell& c = p.cells[i];
      if (c.write && (c.write_block != block || !clocks.ordered(c.write, t))) [[unlikely]]
        return {c.write_block, Clocks::who(c.write), true, false};
      if (writes) {
        if (c.reads[0] && c.read_block != block) [[unlikely]]
          return {c.read_block == kMany ? static_cast<uint32_t>(c.reads[1]) : c.read_block, Clocks::who(c.reads[0]),
                  false, c.read_block == kMany};
        for (Clocks::Stamp r : c.reads)
          if (r && !clocks.ordered(r, t)) [[unlikely]]
            return {c.read_block, Clocks::who(r), false, false};
        c.write = now;
        c.write_block = block;
        c.reads[0] = c.reads[1] = 0;
        continue;
      }
      if (c.reads[0] == now && c.read_block == block) continue;
      if (c.reads[0] && c.read_block != block) {
        if (c.read_block != kMany) {
          c.reads[1] = c.read_block;
          c.read_block = kMany;
        }
        continue;
      }
      // Two unordered readers are kept, from different warps if possible.
      if (c.reads[0] && !clocks.ordered(c.reads[0], t) && !(Clocks::who(c.reads[0]) / 32 == t / 32 && c.reads[1]))
        c.reads[1] = c.reads[0];
      c.reads[0] = now;
      c.read_block = block;
    }
  }
  return {};
}

}  // namespace weft::cuda
