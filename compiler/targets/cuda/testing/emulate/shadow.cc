#include "compiler/targets/cuda/testing/emulate/shadow.h"

#include <cstring>

#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {
// The bits of the two bytes of cell c that [offset, offset + bytes) covers.
int mask_of(int c, int offset, int bytes) { return (2 * c >= offset ? 1 : 0) | (2 * c + 1 < offset + bytes ? 2 : 0); }
}  // namespace

void Shadow::begin_launch(int threads, char* memory, int bytes, bool races) {
  clocks_.begin_launch(threads);
  fences_.assign(threads, 0);
  memory_ = memory;
  if (bytes > static_cast<int>(2 * cells_.size())) cells_.assign((bytes + 1) / 2, Cell());
  bytes_ = bytes;
  races_ = races;
  std::memset(memory, 0xff, bytes);
}

std::string Shadow::where(const char* does, int offset, int bytes) const {
  return str_cat(does, " ", bytes, " bytes at byte ", offset, " of shared memory");
}

std::string Shadow::other(Clocks::Stamp s, const char* did, int line) const {
  const int w = Clocks::who(s), threads = const_cast<Shadow*>(this)->clocks_.copy_engine();
  const std::string who = w < threads                        ? str_cat("thread ", w)
                          : w == threads || w == threads + 9 ? "TMA"
                                                             : str_cat("warpgroup ", w - threads - 1, "'s wgmma");
  return str_cat(who, " ", did, " (line ", line, ")");
}

std::string Shadow::trouble(const Cell& c) const {
  return c.pending == kTma ? str_cat("which TMA (line ", c.write_line, ") is still to fill: no wait for its mbarrier")
                           : str_cat("which cp_async16 (line ", c.write_line, ") is still to fill: no cp_async_wait");
}

std::string Shadow::bounds(const char* does, int offset, int bytes) const {
  if (offset < 0 || offset + bytes > bytes_)
    return str_cat(where(does, offset, bytes), ", of which there are ", bytes_);
  if (offset % bytes != 0) return str_cat(where(does, offset, bytes), ", which is not aligned");
  return "";
}

// Records a read by `me`, judged by thread t's clock; false if it is an error. The emulation spends most of its time
// here.
inline bool Shadow::note_read(Cell& c, int mask, int t, int me, Clocks::Stamp now, int line) {
  if (c.block != block_ || c.pending || (c.has & mask) != mask) [[unlikely]]
    return false;
  if (!races_) return true;
  if ((c.last_write & mask) && !clocks_.ordered(c.write, t)) [[unlikely]]
    return false;
  c.read_line = static_cast<uint16_t>(line);
  if (c.reads[0] == now) return true;
  // Two unordered readers are kept, from different warps if possible.
  if (Clocks::who(c.reads[0]) != me && !clocks_.ordered(c.reads[0], t) &&
      !(Clocks::who(c.reads[0]) / 32 == me / 32 && c.reads[1]))
    c.reads[1] = c.reads[0];
  c.reads[0] = now;
  return true;
}

std::string Shadow::wrong_read(const Cell& c, int mask, int offset, int bytes) const {
  const std::string what = where("reads", offset, bytes);
  if (c.block != block_) return str_cat(what, ", where nothing was written");
  if (c.pending) return str_cat(what, ", ", trouble(c));
  if ((c.has & mask) != mask) return str_cat(what, ", where nothing was written");
  return str_cat(what, ", which ", other(c.write, "wrote", c.write_line), " with no barrier between");
}

std::string Shadow::read(int t, int offset, int bytes, int line) {
  if (offset < 0 || offset + bytes > bytes_ || offset & (bytes - 1)) return bounds("reads", offset, bytes);
  const Clocks::Stamp now = clocks_.now(t);
  const int mask = bytes == 1 ? 1 << (offset & 1) : 3;
  for (int i = offset / 2; i <= (offset + bytes - 1) / 2; ++i)
    if (!note_read(cells_[i], mask, t, t, now, line)) [[unlikely]]
      return wrong_read(cells_[i], mask, offset, bytes);
  return "";
}

std::string Shadow::read_async(int t, int agent, int offset, int bytes, int line) {
  if (offset < 0 || offset + bytes > bytes_) return bounds("reads", offset, bytes);
  const Clocks::Stamp now = clocks_.now(agent);
  for (int i = offset / 2; i <= (offset + bytes - 1) / 2; ++i) {
    Cell& c = cells_[i];
    if (!note_read(c, 3, t, agent, now, line)) return wrong_read(c, 3, offset, bytes);
    const int writer = Clocks::who(c.write);
    if (writer < clocks_.copy_engine() && c.write > fences_[writer])
      return str_cat(where("reads through the async proxy", offset, bytes), ", which ",
                     other(c.write, "wrote", c.write_line), " without a fence_async_shared after it");
  }
  return "";
}

inline bool Shadow::may_write(const Cell& c, int mask, int t) {
  if (c.pending || c.held) [[unlikely]]
    return false;
  if (!races_) return true;
  return (!(c.last_write & mask) || clocks_.ordered(c.write, t)) && (!c.reads[0] || clocks_.ordered(c.reads[0], t)) &&
         (!c.reads[1] || clocks_.ordered(c.reads[1], t));
}

std::string Shadow::wrong_write(const Cell& c, int mask, int t, const char* does, int offset, int bytes) {
  const std::string what = where(does, offset, bytes);
  if (c.pending) return str_cat(what, ", ", trouble(c));
  if (c.held) return str_cat(what, ", which a wgmma or TMA store (line ", c.read_line, ") still reads: no wait for it");
  if ((c.last_write & mask) && !clocks_.ordered(c.write, t))
    return str_cat(what, ", which ", other(c.write, "wrote", c.write_line), " with no barrier between");
  const Clocks::Stamp r = c.reads[0] && !clocks_.ordered(c.reads[0], t) ? c.reads[0] : c.reads[1];
  return str_cat(what, ", which ", other(r, "read", c.read_line), " with no barrier between");
}

std::string Shadow::write(int t, int offset, int bytes, int line) {
  if (offset < 0 || offset + bytes > bytes_ || offset & (bytes - 1)) return bounds("writes", offset, bytes);
  const Clocks::Stamp now = clocks_.now(t);
  const int mask = bytes == 1 ? 1 << (offset & 1) : 3;
  for (int i = offset / 2; i <= (offset + bytes - 1) / 2; ++i) {
    Cell& c = fresh(cells_[i]);
    // A cell does not record which byte was read: readers of the neighbouring byte must not count.
    if (bytes == 1) c.reads[0] = c.reads[1] = 0;
    if (!may_write(c, mask, t)) [[unlikely]]
      return wrong_write(c, mask, t, "writes", offset, bytes);
    c.write = now;
    c.reads[0] = c.reads[1] = 0;
    c.write_line = static_cast<uint16_t>(line);
    c.has |= mask;
    c.last_write = static_cast<uint8_t>(mask);
  }
  return "";
}

std::string Shadow::expect(int t, int offset, int bytes, Pending by, int line) {
  if (offset < 0 || offset + bytes > bytes_) return bounds("fills", offset, bytes);
  for (int i = offset / 2; i <= (offset + bytes - 1) / 2; ++i) {
    Cell& c = fresh(cells_[i]);
    const int mask = mask_of(i, offset, bytes);
    if (!may_write(c, mask, t)) return wrong_write(c, mask, t, "fills", offset, bytes);
    c.pending = by;
    c.write_line = static_cast<uint16_t>(line);
  }
  return "";
}

void Shadow::arrive(int who, int offset, int bytes) {
  const Clocks::Stamp now = clocks_.now(who);
  for (int i = offset / 2; i <= (offset + bytes - 1) / 2; ++i) {
    Cell& c = fresh(cells_[i]);
    c.pending = kNone;
    c.write = now;
    c.reads[0] = c.reads[1] = 0;
    c.has = c.last_write = 3;
  }
}

void Shadow::hold(int offset, int bytes, int change) {
  for (int i = offset / 2; i <= (offset + bytes - 1) / 2; ++i) cells_[i].held += change;
}

}  // namespace weft::cuda
