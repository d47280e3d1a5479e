#include "distributed/comm/shared/control.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::shared {

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::is_trivially_copyable_v<Descriptor> && sizeof(Descriptor) % 8 == 0);

void write_slot(const Area& area, int stream, uint64_t number, const internal::Request& r, bool whole, bool around,
                uint64_t offset, const std::pair<int, int>* color) {
  char* slot = area.slot(stream, number);
  Descriptor d = {};
  d.time = std::chrono::steady_clock::now().time_since_epoch().count();
  d.site = r.site;
  d.kind = static_cast<uint8_t>(r.kind);
  d.op = static_cast<uint8_t>(r.op);
  d.whole = whole;
  d.around = around;
  d.offset = offset;
  if (color) {
    d.splits = 1;
    d.color = color->first;
    d.key = color->second;
  }
  d.peer = r.peer;
  d.in_dim = r.in_dim;
  d.out_dim = r.out_dim;
  d.shift = r.shift;
  const auto room = static_cast<size_t>(area.layout().counts());
  d.send = static_cast<int32_t>(std::min(room, r.send.size()));
  d.recv = static_cast<int32_t>(std::min(room, r.recv.size()));
  const auto type = [](const StridedView& v) {
    OperandType t = {static_cast<uint8_t>(v.dtype), static_cast<uint8_t>(v.shape.size()), {}};
    std::copy(v.shape.begin(), v.shape.end(), t.shape);
    return t;
  };
  d.in = type(r.in);
  d.out = type(r.out);
  std::memcpy(slot, &d, sizeof d);
  char* counts = slot + sizeof d;
  if (d.send) std::memcpy(counts, r.send.data(), d.send * sizeof(int64_t));
  if (d.recv) std::memcpy(counts + d.send * sizeof(int64_t), r.recv.data(), d.recv * sizeof(int64_t));
}

internal::Request read_slot(const Area& area, int stream, uint64_t number) {
  const Descriptor& d = descriptor(area, stream, number);
  internal::Request r;
  r.kind = static_cast<Collective>(d.kind);
  r.op = static_cast<ReduceOp>(d.op);
  r.site = d.site;
  r.peer = d.peer;
  r.in_dim = d.in_dim;
  r.out_dim = d.out_dim;
  r.shift = d.shift;
  const auto* counts = reinterpret_cast<const int64_t*>(&d + 1);
  r.send.assign(counts, counts + d.send);
  r.recv.assign(counts + d.send, counts + d.send + d.recv);
  const auto view = [](const OperandType& t) {
    const Shape shape(std::span<const int64_t>(t.shape, t.dims));
    return StridedView{nullptr, static_cast<DType>(t.dtype), shape, contiguous_strides(shape)};
  };
  r.in = view(d.in);
  r.out = view(d.out);
  return r;
}

}  // namespace weft::dist::shared
