// Random bits: each thread computes a block of four Philox words and stores 16 bytes; or single words at any places.
#include "compiler/targets/cuda/ops/families.h"
#include "compiler/targets/cuda/ops/layout.h"
#include "ops/core/creation.h"

namespace weft::cuda {
namespace {

constexpr std::string_view kFour = R"(
W_KERNEL {
  const int64 block = (int64)blockIdx.x * kThreads + threadIdx.x, i = 4 * block;
  if (i >= p.n) return;
  const uint64_t seed = (uint64_t)*p.seed;
  unsigned words[4];
  w_philox((unsigned)seed, (unsigned)(seed >> 32), (unsigned)block, (unsigned)((uint64_t)block >> 32), (unsigned)p.id,
           (unsigned)*p.step, words);
  if (i + 4 <= p.n) {
    *(uint4*)(p.y + i) = make_uint4(words[0], words[1], words[2], words[3]);
  } else {
    for (int k = 0; k < 4; ++k)
      if (i + k < p.n) p.y[i + k] = words[k];
  }
}
)";

constexpr std::string_view kAny = R"(
W_KERNEL {
  W_EACH(int64, i, p.n);
  int64 rest = i, at = 0, to = 0, from = 0;
#pragma unroll
  for (int d = kRank - 1; d >= 0; --d) {
    const int64 k = rest % p.shape[d];
    rest /= p.shape[d];
    at += k * p.strides[d];
    to += k * p.to[d];
    from += k * p.from[d];
  }
  if (kBase) at += p.base[from];
  const uint64_t seed = (uint64_t)*p.seed, block = (uint64_t)at / 4;
  unsigned words[4];
  w_philox((unsigned)seed, (unsigned)(seed >> 32), (unsigned)block, (unsigned)(block >> 32), (unsigned)p.id,
           (unsigned)*p.step, words);
  const int which = (int)((uint64_t)at % 4);
  p.y[to] = which == 0 ? words[0] : which == 1 ? words[1] : which == 2 ? words[2] : words[3];
}
)";

void add_any(const OperationRequest& r, Launches& to, bool based, const Shape& shape, const Shape& strides,
             const Shape& from) {
  const StridedView& y = r.out[0];
  Text t("random_bits_at", true);
  Shape extent = shape, step = strides, at = y.strides, of = from;
  if (extent.empty()) {
    extent.push_back(1);
    for (Shape* s : {&step, &at, &of}) s->push_back(0);
  }
  t.constant("kRank", extent.size()).constant("kBase", based);
  t.address("const int64* seed", operand_address(0)).address("const int64* step", operand_address(1));
  t.address("const int64* base", operand_address(based ? 2 : 0)).address("uint32_t* y", result_address(0));
  t.whole("id", r.attrs.i("op_id")).whole("n", y.numel());
  auto field = [&](const char* name, const Shape& s) { t.indices(str_cat(name, "[kRank]"), {s.begin(), s.end()}); };
  field("shape", extent);
  field("strides", step);
  field("to", at);
  field("from", of);
  to.add(t.step(kAny, blocks_for(y.numel())));
}

bool make_random_bits(const OperationRequest& r, Launches& to) {
  const StridedView& y = r.out[0];
  if (y.numel() == 0) return true;
  if (!y.contiguous() || r.alignment % 16 != 0) {
    add_any(r, to, false, y.shape, contiguous_strides(y.shape), Shape::filled(y.shape.size(), 0));
    return true;
  }
  Text t("random_bits");
  t.address("const int64* seed", operand_address(0)).address("const int64* step", operand_address(1));
  t.address("uint32_t* y", result_address(0)).whole("id", r.attrs.i("op_id")).whole("n", y.numel());
  to.add(t.step(kFour, blocks_for(y.numel(), 1024)));
  return true;
}

bool make_random_bits_at(const OperationRequest& r, Launches& to) {
  if (r.out[0].numel() == 0) return true;
  const StridedView& base = r.in[2];
  const Shape& shape = r.attrs.ints("shape");
  add_any(r, to, true, shape, r.attrs.ints("strides"),
          base.shape.empty() ? Shape::filled(shape.size(), 0) : broadcast_strides(base));
  return true;
}

}  // namespace

std::span<const MakerRow> random_makers() {
  static const MakerRow rows[] = {{&random_bits_op, make_random_bits}, {&random_bits_at_op, make_random_bits_at}};
  return rows;
}

}  // namespace weft::cuda
