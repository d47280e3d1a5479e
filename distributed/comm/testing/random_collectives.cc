#include "distributed/comm/testing/random_collectives.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "distributed/comm/transfer.h"
#include "framework/tensor/tensor.h"

namespace weft::testing {
namespace {

using Random = std::mt19937_64;

int64_t below(Random& random, int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }

void fill(std::vector<char>& bytes, DType type, Random& random) {
  auto each = [&](auto zero) {
    using T = decltype(zero);
    T* x = reinterpret_cast<T*>(bytes.data());
    for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const auto k = static_cast<int>(random() % 2017) - 1000;
      if constexpr (std::is_same_v<T, bool>) {
        x[i] = k > 0;
      } else if constexpr (std::is_integral_v<T>) {
        x[i] = static_cast<T>(k);
      } else {
        x[i] = T(static_cast<float>(k) * 0.37f);
      }
    }
  };
  switch (type) {
    case kFloat64:
      return each(double{});
    case kBFloat16:
      return each(bfloat16{});
    case kFloat16:
      return each(float16{});
    case kInt64:
      return each(int64_t{});
    case kInt32:
      return each(int32_t{});
    case kUInt8:
      return each(uint8_t{});
    case kBool:
      return each(bool{});
    default:
      return each(float{});
  }
}

// A view of this shape on a new buffer: dense, transposed, with gaps, or (`repeats`) with a stride of 0.
void make_operand(Random& random, DType type, const Shape& shape, bool repeats, std::vector<char>* buffer,
                  StridedView* view, int64_t* begin) {
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  const int64_t kind = below(random, 3);
  if (kind > 0) std::shuffle(order.begin(), order.end(), random);
  Shape strides = Shape::filled(shape.size(), 0);
  int64_t n = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    const int d = order[i];
    if (repeats && kind == 2 && below(random, 4) == 0) continue;
    if (kind == 2 && below(random, 3) == 0) n *= 2;
    strides[d] = n;
    n *= std::max<int64_t>(1, shape[d]);
  }
  const int64_t skip = below(random, 2) * below(random, 9);
  *begin = skip * itemsize(type);
  buffer->resize((n + skip + below(random, 3)) * itemsize(type));
  fill(*buffer, type, random);
  *view = {nullptr, type, shape, strides};
}

Shape random_shape(Random& random, int dims, int64_t elements) {
  Shape s;
  const auto largest = static_cast<int64_t>(std::pow(static_cast<double>(elements), 1.0 / dims)) + 1;
  for (int d = 0; d < dims; ++d) s.push_back(1 + below(random, largest + 1));
  return s;
}

}  // namespace

std::vector<RankOperands> random_collective(uint64_t seed, int n) {
  Random random(seed * 7919 + 13);
  std::vector<RankOperands> all(n);
  CommRequest r;
  r.kind = static_cast<Collective>(below(random, kNumCollectives));
  r.site = below(random, 2) * (1 + below(random, 99));
  constexpr DType kTypes[] = {kFloat32, kFloat64, kBFloat16, kFloat16, kInt64, kInt32, kUInt8, kBool};
  const DType type = kTypes[below(random, 8)];
  do r.op = static_cast<ReduceOp>(below(random, 4));
  while (!dist::internal::reduces(r.op, type));
  const int dims = 1 + static_cast<int>(below(random, 4));
  const int64_t sizes[] = {4, 60, 3000, 20000, 120000};
  const Shape base = random_shape(random, dims, sizes[below(random, 5)]);
  r.in_dim = r.out_dim = static_cast<int>(below(random, dims));
  r.peer = static_cast<int>(below(random, n));
  r.shift = static_cast<int>(below(random, 2 * n + 1)) - n;
  const bool uneven = below(random, 2), pairs = r.kind == Collective::kSend || r.kind == Collective::kRecv;
  std::vector<std::vector<int64_t>> counts(n, std::vector<int64_t>(n));
  for (auto& row : counts)
    for (int64_t& c : row)
      c = uneven ? below(random, 2 * base[r.in_dim] / n + 2) : std::max<int64_t>(1, base[r.in_dim] / n);
  auto with = [&](int dim, int64_t extent) {
    Shape s = base;
    s[dim] = extent;
    return s;
  };
  if (r.kind == Collective::kAllToAll && !uneven && dims > 1) r.out_dim = (r.in_dim + 1) % dims;
  const int from = r.peer, to = (r.peer + 1 + static_cast<int>(below(random, n - 1))) % n;
  for (int p = 0; p < n; ++p) {
    RankOperands& o = all[p];
    Shape in = base, out = base;
    o.request = r;
    const auto& row = counts[0];
    const int64_t sum = std::accumulate(row.begin(), row.end(), int64_t{0});
    if (r.kind == Collective::kAllGather) {
      in = with(r.in_dim, row[p]);
      out = with(r.in_dim, sum);
      if (uneven) o.recv = row;
    } else if (r.kind == Collective::kReduceScatter) {
      in = with(r.in_dim, sum);
      out = with(r.in_dim, row[p]);
      if (uneven) o.send = row;
    } else if (r.kind == Collective::kAllToAll && r.in_dim == r.out_dim) {
      int64_t sent = 0, received = 0;
      for (int q = 0; q < n; ++q) {
        sent += counts[p][q];
        received += counts[q][p];
      }
      in = with(r.in_dim, sent);
      out = with(r.in_dim, received);
      if (uneven) o.send = counts[p];
      if (uneven)
        for (int q = 0; q < n; ++q) o.recv.push_back(counts[q][p]);
    } else if (r.kind == Collective::kAllToAll) {
      in = with(r.in_dim, n * row[0]);
      out = with(r.in_dim, row[0]);
      out[r.out_dim] *= n;
    } else if (pairs) {
      // A case sends in one direction: two opposite transfers are two cases.
      o.takes_part = p == from || p == to;
      o.request.kind = p == from ? Collective::kSend : Collective::kRecv;
      o.request.peer = p == from ? to : from;
    }
    make_operand(random, type, in, true, &o.in, &o.in_view, &o.in_begin);
    make_operand(random, type, out, false, &o.out, &o.out_view, &o.out_begin);
    o.same = r.kind == Collective::kAllReduce && below(random, 3) == 0;
    if (o.same) {
      o.in = o.out;
      o.in_view = o.out_view;
      o.in_begin = o.out_begin;
    }
    if (r.kind == Collective::kBarrier) o.in_view = o.out_view = {};
  }
  return all;
}

Started start(Communicator& c, const RankOperands& o) {
  const auto allocate = [](size_t bytes) {
    return std::shared_ptr<char>(new char[bytes + 1], std::default_delete<char[]>());
  };
  Started s;
  s.out = allocate(o.out.size());
  std::memcpy(s.out.get(), o.out.data(), o.out.size());
  s.out_bytes = static_cast<int64_t>(o.out.size());
  if (o.same) {
    s.in = s.out;
  } else {
    s.in = allocate(o.in.size());
    std::memcpy(s.in.get(), o.in.data(), o.in.size());
  }
  CommRequest r = o.request;
  r.in = o.in_view;
  r.out = o.out_view;
  if (r.kind != Collective::kBarrier) {
    r.in.data = s.in.get() + o.in_begin;
    r.out.data = s.out.get() + o.out_begin;
  }
  if (r.kind == Collective::kSend) r.out = {};
  if (r.kind == Collective::kRecv) r.in = {};
  r.send_counts = o.send;
  r.recv_counts = o.recv;
  s.work = c.start(r);
  return s;
}

}  // namespace weft::testing
