#include "framework/cuda/testing/fake_order.h"

#include <iterator>

#include "framework/base/str_cat.h"

namespace weft::cuda::testing {

void FakeAccesses::split(uint64_t at) {
  auto it = segments_.lower_bound(at);
  if (it == segments_.begin()) return;
  --it;
  if (it->second.end <= at) return;
  Segment tail = it->second;
  it->second.end = at;
  segments_[at] = std::move(tail);
}

std::string FakeAccesses::touch(uint64_t address, size_t bytes, Kind kind, const FakePosition& place,
                                const std::string& what) {
  if (bytes == 0) return "";
  const uint64_t end = address + bytes;
  split(address);
  split(end);
  std::string other;
  for (uint64_t at = address; at < end;) {
    auto it = segments_.lower_bound(at);
    if (it == segments_.end() || it->first > at) {
      const uint64_t until = it == segments_.end() || it->first > end ? end : it->first;
      it = segments_.emplace(at, Segment{until, {}}).first;
    }
    Segment& s = it->second;
    for (Kind k : {kReads, kWrites, kUses}) {
      if (kind != kWrites && k != kWrites) continue;
      for (const auto& [stream, access] : s.by[k])
        if (stream != place.stream && !place.clock.knows(stream, access.n) && other.empty())
          other = str_cat(access.what, " on stream ", stream);
    }
    // Accesses that a write comes after need not be kept: later work that comes after the write comes after them too.
    if (kind == kWrites)
      for (auto& all : s.by) all.clear();
    s.by[kind][place.stream] = {place.n, what};
    at = s.end;
  }
  return other;
}

void FakeAccesses::forget(uint64_t address, size_t bytes) {
  split(address);
  split(address + bytes);
  segments_.erase(segments_.lower_bound(address), segments_.lower_bound(address + bytes));
}

}  // namespace weft::cuda::testing
