// Dots through a recording fake of cuBLASLt on host memory, against the CPU's kernels: dims in every order, views,
// dtypes.
#include "compiler/targets/cuda/gemm/dot.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "framework/cuda/testing/fake_cublaslt.h"
#include "framework/dispatch/dispatch.h"
#include "ops/core/core.h"
#include "ops/kernels/kernels.h"

namespace weft::cuda {
namespace {

StridedView view_of(const Tensor& t) { return t.view_for_kernel(); }

// The alignment of an address, in the form of MatmulShape.
int alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address);
  return bits == 0 ? 256 : static_cast<int>(std::min<uintptr_t>(256, uintptr_t{1} << std::countr_zero(bits)));
}

// Runs a dot as the CUDA backend does: copies the operands that need it, then runs the product. Returns the result.
Tensor through_fake(const Tensor& a, const Tensor& b, const DotDims& dims, std::optional<DType> out_dtype, CublasLt& lt,
                    int* copies = nullptr) {
  Tensor result = zeros_like(dot_general(a, b, dims, out_dtype));
  const Attrs attrs{{"a_batch", dims.a_batch},
                    {"b_batch", dims.b_batch},
                    {"a_contract", dims.a_contract},
                    {"b_contract", dims.b_contract}};
  const StridedView in[] = {view_of(a), view_of(b)};
  Dot d = plan_dot(attrs, in, result.dtype());
  if (!d.has_work()) return result;
  std::vector<std::vector<char>> scratch;
  const void* at[2];
  for (int i = 0; i < 2; ++i) {
    const DotOperand& o = i == 0 ? d.a : d.b;
    at[i] = in[i].data;
    if (!o.copy) continue;
    if (copies) ++*copies;
    StridedView from{in[i].data, in[i].dtype, {}, {}};
    for (int64_t dim : o.order) {
      from.shape.push_back(in[i].shape[static_cast<int>(dim)]);
      from.strides.push_back(in[i].strides[static_cast<int>(dim)]);
    }
    scratch.emplace_back(o.bytes);
    kernels::cast_copy(from, {scratch.back().data(), from.dtype, from.shape, contiguous_strides(from.shape)});
    at[i] = scratch.back().data();
  }
  const StridedView out = view_of(result);
  d.product.align_a = alignment_of(at[0]);
  d.product.align_b = alignment_of(at[1]);
  d.product.align_out = alignment_of(out.data);
  const PreparedMatmul* plan = lt.plan(d.product);
  EXPECT_TRUE(plan);
  if (plan) lt.run(*plan, {at[0], at[1], nullptr, out.data, nullptr, nullptr, nullptr}, nullptr);
  return result;
}

// Both round sums of exact or f64 products of k terms. Their difference is below the errors of two rounded sums
// (Higham, Accuracy and Stability, 3.1) and two roundings to the dtype of the result.
void expect_close(const Tensor& a, const Tensor& b, const DotDims& dims, const Tensor& got, const Tensor& want) {
  ASSERT_EQ(got.shape(), want.shape());
  const Tensor size = dot_general(abs(a.to(kFloat64)), abs(b.to(kFloat64)), dims);
  double terms = 1;
  for (int64_t d : dims.a_contract) terms *= static_cast<double>(a.shape()[static_cast<int>(d)]);
  const double unit = a.dtype() == kFloat64 ? 0x1p-53 : 0x1p-24;
  const double half_ulp = want.dtype() == kFloat64   ? 0x1p-53
                          : want.dtype() == kFloat32 ? 0x1p-24
                          : want.dtype() == kFloat16 ? 0x1p-11
                                                     : 0x1p-8;
  const std::vector<double> s = size.to_vector<double>(), g = got.to(kFloat64).to_vector<double>(),
                            w = want.to(kFloat64).to_vector<double>();
  for (size_t i = 0; i < s.size(); ++i)
    ASSERT_LE(std::abs(g[i] - w[i]), s[i] * (2 * terms * unit + 2 * half_ulp) + 0x1p-24) << "element " << i;
}

TEST(CudaDot, DimsInEveryPlace) {
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  manual_seed(1);
  struct Case {
    Shape a, b;
    DotDims d;
  };
  const Case cases[] = {
      {{3, 5}, {5, 7}, {{}, {}, {1}, {0}}},
      {{17, 33}, {9, 33}, {{}, {}, {1}, {1}}},
      {{33, 17}, {33, 9}, {{}, {}, {0}, {0}}},
      {{2, 3, 5}, {2, 5, 4}, {{0}, {0}, {2}, {1}}},
      {{2, 3, 5}, {5, 4}, {{}, {}, {2}, {0}}},
      {{4, 2, 3}, {3, 2, 5}, {{1}, {1}, {2}, {0}}},
      {{2, 3, 4, 5}, {5, 6, 3, 4}, {{}, {}, {1, 3}, {2, 0}}},
      {{2, 3, 4, 5}, {2, 6, 3, 5}, {{0, 1}, {0, 2}, {3}, {3}}},
      {{5}, {5}, {{}, {}, {0}, {0}}},
      {{4}, {3}, {{}, {}, {}, {}}},
      {{}, {}, {{}, {}, {}, {}}},
      {{0, 3}, {3, 2}, {{}, {}, {1}, {0}}},
      {{2, 0}, {0, 3}, {{}, {}, {1}, {0}}},
      {{1, 64}, {64, 1}, {{}, {}, {1}, {0}}},
      {{3, 1, 1}, {1, 3, 4}, {{0}, {1}, {1}, {0}}},
  };
  for (DType t : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (const Case& c : cases) {
      const Tensor a = randn(c.a).to(t), b = randn(c.b).to(t);
      for (bool wide : {false, true}) {
        if (wide && itemsize(t) != 2) continue;
        const std::optional<DType> out = wide ? std::optional(kFloat32) : std::nullopt;
        const Tensor got = through_fake(a, b, c.d, out, lt);
        expect_close(a, b, c.d, got, dot_general(a, b, c.d, out));
      }
    }
  EXPECT_TRUE(fake.faults().empty()) << fake.faults()[0];
}

TEST(CudaDot, ViewsAreReadInPlaceOrCopied) {
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  manual_seed(2);
  const DotDims plain{{}, {}, {1}, {0}};
  auto check = [&](const Tensor& a, const Tensor& b, const DotDims& d, int copies) {
    int made = 0;
    const Tensor got = through_fake(a, b, d, {}, lt, &made);
    EXPECT_EQ(made, copies);
    expect_close(a, b, d, got, dot_general(a, b, d));
  };
  const Tensor x = randn({12, 20}), w = randn({20, 8});
  check(x, w, plain, 0);
  check(transpose(randn({20, 12}), 0, 1), w, plain, 0);
  check(x, transpose(randn({8, 20}), 0, 1), plain, 0);
  check(slice(x, 1, 4, 9), slice(w, 0, 1, 6), plain, 0);       // unaligned, wide rows
  check(slice(x, 1, 0, 20, 2), slice(w, 0, 0, 10), plain, 1);  // every other column
  check(slice(x, 0, 0, 12, 3), w, plain, 0);                   // every third row
  check(broadcast_to(randn({1, 20}), {12, 20}), w, plain, 1);
  check(x, broadcast_to(randn({20, 1}), {20, 8}), plain, 1);
  // Heads inside rows: q[B, T, H, D] against k of the same layout.
  const Tensor q = randn({2, 5, 3, 4}), k = randn({2, 6, 3, 4});
  const DotDims scores{{0, 2}, {0, 2}, {3}, {3}};
  check(slice(q, 0, 0, 1), slice(k, 0, 0, 1), scores, 0);  // one batch: heads are the batch
  check(q, k, scores, 2);                                  // two batch dims that do not merge
  // One weight for a batch.
  check(randn({2, 5, 4}), broadcast_to(randn({1, 4, 6}), {2, 4, 6}), {{0}, {0}, {2}, {1}}, 0);
  EXPECT_TRUE(fake.faults().empty()) << fake.faults()[0];
}

}  // namespace
}  // namespace weft::cuda
