#include "distributed/comm/gloo/frame.h"

#include <algorithm>
#include <cstring>

#include "distributed/comm/byte_stream.h"

namespace weft::dist::wire {
namespace {

using internal::Request;

constexpr size_t kMaxText = 4096;

constexpr const char* kSource = "gloo: a message of another process";

class Writer : public internal::ByteWriter<std::vector<char>> {
 public:
  void put_list(std::span<const int64_t> list) {
    put(static_cast<uint32_t>(list.size()));
    for (int64_t x : list) put(std::clamp(x, -kMaxElements, kMaxElements));
  }
  void put_view(const StridedView& v) {
    put(static_cast<uint8_t>(v.dtype));
    put_list(v.shape);
  }
};

class Reader : public internal::ByteReader {
 public:
  Reader(const char* data, size_t bytes) : ByteReader({data, bytes}, kSource) {}

  bool flag() { return get_below<uint8_t>(2) == 1; }
  std::vector<int64_t> list(uint32_t most) {
    const auto n = get<uint32_t>();
    check(n <= most && n * sizeof(int64_t) <= left());
    std::vector<int64_t> all(n);
    for (int64_t& x : all) x = get<int64_t>();
    return all;
  }
  StridedView view() {
    const auto type = static_cast<DType>(get_below<uint8_t>(kNumDTypes));
    const std::vector<int64_t> extents = list(kMaxDims);
    for (int64_t x : extents) check(x >= 0 && x <= kMaxElements);
    const Shape shape{extents};
    check(shape.numel() <= kMaxElements);
    return {nullptr, type, shape, contiguous_strides(shape)};
  }
};

}  // namespace

FrameHeader read_header(const char* buffer) {
  Reader reader(buffer, sizeof(FrameHeader));
  const auto h = reader.get<FrameHeader>();
  reader.check(h.magic == kMagic && static_cast<int>(h.kind) < kNumFrameKinds && h.bytes <= kMaxPayload);
  return h;
}

std::vector<char> encode(const StartedRequest& s) {
  const Request& r = s.request;
  Writer w;
  w.put(static_cast<uint8_t>(r.kind));
  w.put(static_cast<uint8_t>(r.op));
  w.put(static_cast<uint8_t>(s.splits));
  w.put(static_cast<uint8_t>(s.inlined));
  w.put(s.time);
  w.put(r.site);
  for (int32_t x : {r.peer, r.in_dim, r.out_dim, r.shift, s.color, s.key}) w.put(x);
  w.put_view(r.in);
  w.put_view(r.out);
  w.put_list(r.send);
  w.put_list(r.recv);
  w.append({s.input.data(), s.input.size()});
  return std::move(w.bytes);
}

StartedRequest decode_request(const char* data, size_t bytes, int size) {
  Reader reader(data, bytes);
  StartedRequest s;
  Request& r = s.request;
  r.kind = static_cast<Collective>(reader.get_below<uint8_t>(kNumCollectives));
  r.op = static_cast<ReduceOp>(reader.get_below<uint8_t>(4));
  s.splits = reader.flag();
  s.inlined = reader.flag();
  s.time = reader.get<int64_t>();
  r.site = reader.get<uint64_t>();
  for (int* x : {&r.peer, &r.in_dim, &r.out_dim, &r.shift, &s.color, &s.key}) *x = reader.get<int32_t>();
  reader.check(r.shift > -(1 << 30) && r.shift < (1 << 30));
  r.in = reader.view();
  r.out = reader.view();
  // A wrong number of counts is a user's mistake, with its own error.
  r.send = reader.list(static_cast<uint32_t>(size) + 1);
  r.recv = reader.list(static_cast<uint32_t>(size) + 1);
  for (const auto* list : {&r.send, &r.recv})
    for (int64_t x : *list) reader.check(x >= -kMaxElements && x <= kMaxElements);
  const size_t rest = reader.left();
  if (rest > 0) {
    reader.check(s.inlined && rest == static_cast<size_t>(r.in.nbytes()));
    const std::string_view input = reader.take(rest);
    s.input.assign(input.begin(), input.end());
  }
  return s;
}

std::vector<char> encode(const Failure& f) {
  Writer w;
  w.put(static_cast<int32_t>(f.code));
  w.put(static_cast<uint8_t>(f.of_collective));
  w.append(std::string_view(f.text).substr(0, kMaxText));
  return std::move(w.bytes);
}

Failure decode_failure(const char* data, size_t bytes) {
  Reader reader(data, bytes);
  Failure f;
  f.code = static_cast<Code>(reader.get_below<int32_t>(17));
  reader.check(static_cast<int>(f.code) > 0);
  f.of_collective = reader.flag();
  reader.check(reader.left() <= kMaxText);
  f.text = reader.take(reader.left());
  return f;
}

}  // namespace weft::dist::wire
