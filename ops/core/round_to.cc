// Record, kernel and function of round_to.
#include "ops/core/round_to.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "framework/base/thread_pool.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/creation.h"
#include "ops/core/record_parts.h"
#include "ops/kernels/kernels.h"
#include "ops/kernels/lines.h"
#include "ops/numerics/number_format.h"

namespace weft {

using internal::Sample;

namespace {

Types infer(const InferCall& c) {
  const TensorType& x = c.in[0];
  const int64_t e = c.attrs.i("exponent_bits"), m = c.attrs.i("mantissa_bits"), block = c.attrs.i("block");
  internal::check_float(c, x.dtype);
  WEFT_CHECK_AS(kOutOfRange, e >= 2 && e <= 8, "round_to: got ", e, " exponent bits; need 2 to 8");
  WEFT_CHECK_AS(kOutOfRange, m >= 1 && m <= 23, "round_to: got ", m, " mantissa bits; need 1 to 23");
  WEFT_CHECK_AS(kOutOfRange, block >= 0, "round_to: the block has ", block, " elements; need 0 (no block) or more");
  WEFT_CHECK(block == 0 || !x.shape.empty(), "round_to: x has shape [] and the block ", block,
             " elements; need a dim for blocks");
  return {x};
}

DimMap dims(const Attrs& attrs, std::span<const TensorType> in, std::span<const TensorType> out) {
  if (attrs.i("block") == 0) return DimMap::pointwise(in, out);
  return internal::dims_with_whole(in[0].shape.size() - 1, in, out);
}

StridedView with_dim(StridedView v) {
  if (v.shape.empty()) v.shape = v.strides = Shape{1};
  return v;
}

void run(const KernelCall& c) {
  const formats::FloatFormat format =
      formats::float_format(static_cast<int>(c.attrs.i("exponent_bits")), static_cast<int>(c.attrs.i("mantissa_bits")));
  const int64_t block = c.attrs.i("block");
  const StridedView x = with_dim(c.in[0]), y = with_dim(c.out[0]);
  if (y.numel() == 0) return;
  const int last = y.shape.size() - 1;
  const kernels::StridedLines from(x, last), to(y, last);
  const int64_t piece = std::min(from.length, block ? block : int64_t{1024});
  parallel_chunks(from.count, std::max<int64_t>(1, 2048 / from.length), [&](int64_t begin, int64_t end) {
    std::vector<double> values(static_cast<size_t>(piece));
    for (int64_t line = begin; line < end; ++line)
      for (int64_t i = 0; i < from.length; i += piece) {
        const int64_t n = std::min(piece, from.length - i);
        const StridedView held{values.data(), kFloat64, {n}, {1}};
        kernels::cast_copy({from.at(x, line, i), x.dtype, {n}, {from.stride}}, held);
        const int shift = block ? formats::block_exponent(format, {values.data(), static_cast<size_t>(n)}) : 0;
        for (int64_t k = 0; k < n; ++k) {
          double& v = values[static_cast<size_t>(k)];
          v = shift ? std::ldexp(formats::rounded(format, std::ldexp(v, -shift)), shift) : formats::rounded(format, v);
        }
        kernels::cast_copy(held, {to.at(y, line, i), y.dtype, {n}, {to.stride}});
      }
  });
}

std::vector<Sample> samples() {
  auto to = [](int64_t e, int64_t m, int64_t block) {
    return Attrs{{"exponent_bits", e}, {"mantissa_bits", m}, {"block", block}};
  };
  auto one = [&](const Shape& shape, double most, int64_t e, int64_t m, int64_t block) {
    return Sample{{{shape, kFloat32, -most, most}}, to(e, m, block), "", false};
  };
  std::vector<Sample> s = {one({3, 17}, 3, 4, 3, 0),    one({}, 3, 5, 2, 0),
                           one({70}, 1000, 4, 3, 0),    one({70}, 1e5, 5, 2, 0),
                           one({5, 7}, 0.02, 4, 3, 0),  one({5, 7}, 0.001, 2, 1, 0),
                           one({4, 64}, 1e4, 2, 1, 32), one({2, 3, 40}, 1e-3, 4, 3, 32),
                           one({9}, 3, 2, 1, 16),       one({3, 5}, 7, 8, 7, 0),
                           one({0, 3}, 3, 4, 3, 2),     one({3, 0}, 3, 4, 3, 2)};
  auto bad = [&](const Shape& shape, DType t, const Attrs& attrs, const char* error) {
    s.push_back({{{shape, t}}, attrs, error});
  };
  bad({3}, kInt32, to(4, 3, 0), "round_to: does not support i32");
  bad({3}, kFloat32, to(1, 3, 0), "round_to: got 1 exponent bits; need 2 to 8");
  bad({3}, kFloat32, to(9, 3, 0), "round_to: got 9 exponent bits");
  bad({3}, kFloat32, to(4, 0, 0), "round_to: got 0 mantissa bits; need 1 to 23");
  bad({3}, kFloat32, to(4, 24, 0), "round_to: got 24 mantissa bits");
  bad({3}, kFloat32, to(4, 3, -1), "round_to: the block has -1 elements");
  bad({}, kFloat32, to(4, 3, 32), "round_to: x has shape [] and the block 32 elements");
  return s;
}

}  // namespace

const OpDef round_to_op = {
    .name = "round_to",
    .doc = "x rounded to a float of {exponent_bits} and {mantissa_bits}, with a power-of-two scale for each {block}.",
    .flops_per_point = 12,
    .infer = infer,
    .vjp = internal::vjp_same,
    .dims = dims,
    .kernel = run,
    .samples = samples,
    .vjp_reads_in = 0,
    .vjp_reads_out = 0,
};

std::span<const OpDef* const> rounding_ops() {
  static const OpDef* const all[] = {&round_to_op};
  return all;
}

Tensor round_to(const Arg& x, int64_t exponent_bits, int64_t mantissa_bits, int64_t block) {
  return dispatch(round_to_op, {&internal::tensor_of(x, "round_to")},
                  {{"exponent_bits", exponent_bits}, {"mantissa_bits", mantissa_bits}, {"block", block}}, x.line());
}

}  // namespace weft
