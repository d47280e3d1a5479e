#include "distributed/comm/gloo/frame.h"

#include <algorithm>
#include <cstring>

namespace weft::dist::wire {
namespace {

using internal::Request;

constexpr size_t kMaxText = 4096;

class Writer {
 public:
  template <class T>
  void put(T x) {
    static_assert(std::is_trivially_copyable_v<T>);
    const char* p = reinterpret_cast<const char*>(&x);
    bytes.insert(bytes.end(), p, p + sizeof x);
  }
  void put_list(std::span<const int64_t> list) {
    put(static_cast<uint32_t>(list.size()));
    for (int64_t x : list) put(std::clamp(x, -kMaxElements, kMaxElements));
  }
  void put_view(const StridedView& v) {
    put(static_cast<uint8_t>(v.dtype));
    put_list(v.shape);
  }
  std::vector<char> bytes;
};

class Reader {
 public:
  Reader(const char* data, size_t bytes) : data_(data), left_(bytes) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    T x;
    std::memcpy(&x, take(sizeof x), sizeof x);
    return x;
  }
  template <class T>
  T get_below(T limit) {
    const T x = get<T>();
    check(x < limit);
    return x;
  }
  bool flag() { return get_below<uint8_t>(2) == 1; }
  std::vector<int64_t> list(uint32_t most) {
    const auto n = get<uint32_t>();
    check(n <= most && n * sizeof(int64_t) <= left_);
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
  const char* take(size_t n) {
    check(n <= left_);
    const char* p = data_;
    data_ += n;
    left_ -= n;
    return p;
  }
  size_t left() const { return left_; }
  static void check(bool right) { WEFT_CHECK(right, "gloo: a message of another process is malformed"); }

 private:
  const char* data_;
  size_t left_;
};

}  // namespace

FrameHeader read_header(const char* buffer) {
  FrameHeader h;
  std::memcpy(&h, buffer, sizeof h);
  Reader::check(h.magic == kMagic && static_cast<int>(h.kind) < kNumFrameKinds && h.bytes <= kMaxPayload);
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
  w.bytes.insert(w.bytes.end(), s.input.begin(), s.input.end());
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
  Reader::check(r.shift > -(1 << 30) && r.shift < (1 << 30));
  r.in = reader.view();
  r.out = reader.view();
  // A wrong number of counts is a user's mistake, with its own error.
  r.send = reader.list(static_cast<uint32_t>(size) + 1);
  r.recv = reader.list(static_cast<uint32_t>(size) + 1);
  for (const auto* list : {&r.send, &r.recv})
    for (int64_t x : *list) Reader::check(x >= -kMaxElements && x <= kMaxElements);
  const size_t rest = reader.left();
  if (rest > 0) {
    Reader::check(s.inlined && rest == static_cast<size_t>(r.in.numel() * itemsize(r.in.dtype)));
    const char* input = reader.take(rest);
    s.input.assign(input, input + rest);
  }
  return s;
}

std::vector<char> encode(const Failure& f) {
  Writer w;
  w.put(static_cast<int32_t>(f.code));
  w.put(static_cast<uint8_t>(f.of_collective));
  w.bytes.insert(w.bytes.end(), f.text.begin(),
                 f.text.begin() + static_cast<int64_t>(std::min(kMaxText, f.text.size())));
  return std::move(w.bytes);
}

Failure decode_failure(const char* data, size_t bytes) {
  Reader reader(data, bytes);
  Failure f;
  f.code = static_cast<Code>(reader.get_below<int32_t>(17));
  Reader::check(static_cast<int>(f.code) > 0);
  f.of_collective = reader.flag();
  const size_t n = reader.left();
  Reader::check(n <= kMaxText);
  const char* text = reader.take(n);
  f.text.assign(text, text + n);
  return f;
}

}  // namespace weft::dist::wire
