// Tests products through a recording fake: every layout of operands that is read in place, epilogues, rejected shapes.
// Also compares our declarations with the toolkit's header if there is one.
#include "framework/cuda/libraries/cublaslt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "framework/base/error.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/split_product.h"
#include "framework/cuda/stream.h"
#include "framework/cuda/testing/fake_cublaslt.h"
#include "framework/cuda/testing/fake_gpu_test.h"
#include "framework/cuda/transfer/copy.h"
#include "framework/tensor/view.h"

#ifdef WEFT_CUDA_HEADERS
#include <cublasLt.h>
#endif

namespace weft::cuda {
namespace {

// Values that make each element distinct and whose products of a few terms are exact in f32.
std::vector<float> numbered(int64_t n, int seed) {
  std::vector<float> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>((i * 7 + seed * 13) % 31 - 15) / 4;
  return v;
}

struct Case {
  MatmulShape s;
  std::vector<float> a, b, out, bias, aux;

  Case(int64_t batch, int64_t m, int64_t n, int64_t k, MatrixStrides as, MatrixStrides bs, int64_t out_row = 0) {
    s.batch = batch;
    s.m = m;
    s.n = n;
    s.k = k;
    s.a = as;
    s.b = bs;
    s.out_row = out_row ? out_row : n;
    s.out_batch = s.out_row * m;
    s.align_a = s.align_b = s.align_out = 4;
    a = numbered((batch - 1) * as.batch + (m - 1) * as.row + (k - 1) * as.col + 1, 1);
    b = numbered((batch - 1) * bs.batch + (k - 1) * bs.row + (n - 1) * bs.col + 1, 2);
    out.assign(s.out_batch * batch, -77.0f);
    bias = numbered(std::max(m, n), 3);
    aux = numbered(s.out_batch * batch, 4);
  }
  double product(int64_t x, int64_t i, int64_t j) const {
    double sum = 0;
    for (int64_t p = 0; p < s.k; ++p)
      sum += double{a[x * s.a.batch + i * s.a.row + p * s.a.col]} * b[x * s.b.batch + p * s.b.row + j * s.b.col];
    return sum;
  }
  float& result(int64_t x, int64_t i, int64_t j) { return out[x * s.out_batch + i * s.out_row + j]; }

  bool run(FakeCublasLt& fake, CublasLt& lt, const float* c = nullptr) {
    for (const auto* v : {&a, &b, &out, &bias, &aux}) fake.allow(v->data(), v->size() * 4);
    const PreparedMatmul* plan = lt.plan(s);
    if (!plan) return false;
    lt.run(*plan, {a.data(), b.data(), c, out.data(), bias.data(), aux.data(), nullptr}, nullptr);
    return true;
  }
};

TEST(CublasLt, EveryLayoutReadInPlace) {
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  const int64_t m = 3, n = 5, k = 4;
  const MatrixStrides of_a[] = {{m * k, k, 1}, {m * k, 1, m}, {0, k, 1}, {0, 1, m}, {100, k + 3, 1}, {k, 2 * k, 1}};
  const MatrixStrides of_b[] = {{k * n, n, 1}, {k * n, 1, k}, {0, n, 1}, {0, 1, k}, {100, n + 2, 1}, {n, 2 * n, 1}};
  for (const MatrixStrides& a : of_a)
    for (const MatrixStrides& b : of_b)
      for (int64_t batch : {1, 2})
        for (int64_t out_row : {int64_t{0}, n + 3}) {
          Case c(batch, m, n, k, a, b, out_row);
          ASSERT_TRUE(c.run(fake, lt)) << (fake.faults().empty() ? "" : fake.faults().back());
          for (int64_t x = 0; x < batch; ++x)
            for (int64_t i = 0; i < m; ++i)
              for (int64_t j = 0; j < n; ++j) ASSERT_EQ(c.result(x, i, j), c.product(x, i, j));
          EXPECT_TRUE(!out_row || c.out[n] == -77.0f);  // between the rows
        }
  EXPECT_TRUE(fake.faults().empty()) << fake.faults()[0];
}

TEST(CublasLt, ExtentsOfOne) {
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  for (int64_t m : {1, 3})
    for (int64_t n : {1, 4})
      for (int64_t k : {1, 5})
        for (int64_t odd : {0, 1, 77}) {  // strides of dims of extent 1 do not matter
          MatrixStrides a{0, m == 1 ? odd : k, k == 1 ? odd : 1}, b{0, k == 1 ? odd : n, n == 1 ? odd : 1};
          if (k == 1 && m > 1) a.row = 1;
          if (n == 1 && k > 1) b.row = 1;
          Case c(1, m, n, k, a, b);
          ASSERT_TRUE(c.run(fake, lt)) << m << n << k << odd;
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) ASSERT_EQ(c.result(0, i, j), c.product(0, i, j));
        }
  EXPECT_TRUE(fake.faults().empty()) << fake.faults()[0];
}

TEST(CublasLt, WhatMustBeCopied) {
  EXPECT_TRUE(readable_in_place(3, 4, {0, 4, 1}));
  EXPECT_TRUE(readable_in_place(3, 4, {0, 1, 3}));
  EXPECT_FALSE(readable_in_place(3, 4, {0, 8, 2}));
  EXPECT_FALSE(readable_in_place(3, 4, {0, 0, 1}));   // rows are the same row
  EXPECT_FALSE(readable_in_place(3, 4, {0, 3, 1}));   // rows overlap
  EXPECT_FALSE(readable_in_place(3, 4, {0, -4, 1}));  // reversed rows
  EXPECT_TRUE(readable_in_place(1, 4, {0, 0, 1}));
}

TEST(CublasLt, ScaleAndResidual) {
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  Case c(2, 3, 5, 4, {12, 4, 1}, {0, 5, 1});
  c.s.alpha = 0.5;
  c.s.beta = 2;
  const std::vector<float> before = numbered(30, 5);
  fake.allow(before.data(), before.size() * 4);
  ASSERT_TRUE(c.run(fake, lt, before.data()));
  for (int64_t x = 0; x < 2; ++x)
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j)
        ASSERT_EQ(c.result(x, i, j), 0.5 * c.product(x, i, j) + 2 * before[x * 15 + i * 5 + j]);
}

// Products with a remainder of columns or of terms.
TEST(CublasLt, SplitProducts) {
  MatmulShape head{.in = kBFloat16, .out = kBFloat16, .m = 16384, .n = 50257, .k = 768};
  head.a = {0, 768, 1}, head.b = {0, 1, 768};
  head.out_row = 50257;
  EXPECT_FALSE(split_product(head));  // its rows are not aligned
  head.out_row = 50304;
  auto p = split_product(head);
  ASSERT_TRUE(p);
  EXPECT_FALSE(p->first_is_smaller);
  EXPECT_EQ(p->first.n, 50256);
  EXPECT_EQ(p->second.n, 1);
  EXPECT_EQ(p->b, int64_t{50256} * 768);
  EXPECT_EQ(p->out, 50256);
  EXPECT_FALSE(split_product(p->first));
  MatmulShape back{.in = kBFloat16, .out = kBFloat16, .m = 16384, .n = 768, .k = 50257};
  back.a = {0, 50304, 1}, back.b = {0, 768, 1};
  back.out_row = 768;
  p = split_product(back);
  ASSERT_TRUE(p);
  EXPECT_TRUE(p->first_is_smaller);
  EXPECT_EQ(p->first.k, 1);
  EXPECT_EQ(p->second.k, 50256);
  EXPECT_EQ(p->second.beta, 1);
  EXPECT_EQ(p->a, 50256);
  EXPECT_EQ(p->b, int64_t{50256} * 768);
  back.out = kFloat16;
  EXPECT_FALSE(split_product(back));  // a part may overflow
  back.out = kBFloat16, back.k = 2049;
  EXPECT_FALSE(split_product(back));  // the rounding of a part would be seen
  back.out = kFloat32;
  EXPECT_TRUE(split_product(back));
  back.b.row = 767;
  EXPECT_FALSE(split_product(back));  // no aligned lines either way
  back.b.row = 768;
  back.k = 50257, back.in = back.out = kFloat32;
  EXPECT_FALSE(split_product(back));  // f32 needs no lines
  head.beta = 1;
  EXPECT_FALSE(split_product(head));

  // Split along both: the results are equal to one product's results, and nothing is written between the lines.
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  Case c(1, 128, 2051, 2049, {0, 2052, 1}, {0, 1, 2052}, 2052);
  c.s.tf32 = true;
  c.s.align_a = c.s.align_b = c.s.align_out = 16;
  ASSERT_TRUE(c.run(fake, lt));
  EXPECT_EQ(fake.ran().size(), 3u);
  EXPECT_EQ(fake.faults(), std::vector<std::string>());
  for (int64_t i : {0, 1, 127})
    for (int64_t j : {0, 7, 2047, 2048, 2050}) EXPECT_EQ(c.result(0, i, j), c.product(0, i, j)) << i << " " << j;
  for (int64_t i : {0, 126}) EXPECT_EQ(c.result(0, i, 2051), -77.0f);
}

TEST(CublasLt, Epilogues) {
  FakeCublasLt fake;
  CublasLt lt(fake.table());
  auto gelu = [](double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); };
  for (auto e : {MatmulEpilogue::bias, MatmulEpilogue::gelu, MatmulEpilogue::gelu_bias, MatmulEpilogue::gelu_aux,
                 MatmulEpilogue::gelu_bias_aux, MatmulEpilogue::dgelu, MatmulEpilogue::dgelu_bias_grad,
                 MatmulEpilogue::bias_grad_a, MatmulEpilogue::bias_grad_b}) {
    Case c(1, 3, 8, 4, {0, 4, 1}, {0, 8, 1});
    c.s.epilogue = e;
    c.s.align_out = 16;  // alignment of vectors
    const Case before = c;
    ASSERT_TRUE(c.run(fake, lt)) << static_cast<int>(e);
    std::vector<double> column_sums(8, 0);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 8; ++j) {
        const bool bias =
            e == MatmulEpilogue::bias || e == MatmulEpilogue::gelu_bias || e == MatmulEpilogue::gelu_bias_aux;
        const bool aux = e == MatmulEpilogue::gelu_aux || e == MatmulEpilogue::gelu_bias_aux;
        double want = c.product(0, i, j) + (bias ? before.bias[j] : 0);
        EXPECT_EQ(c.aux[i * 8 + j], aux ? static_cast<float>(want) : before.aux[i * 8 + j]);
        if (e == MatmulEpilogue::gelu || e == MatmulEpilogue::gelu_bias || aux) want = gelu(want);
        if (e == MatmulEpilogue::dgelu || e == MatmulEpilogue::dgelu_bias_grad) {
          // The central difference of gelu: its error is h^2 / 6 times a third derivative below 2, plus rounding / h.
          const double h = 1e-5, at = before.aux[i * 8 + j];
          const double slope = (gelu(at + h) - gelu(at - h)) / (2 * h);
          want *= slope;
          EXPECT_NEAR(c.result(0, i, j), want,
                      1e-9 * std::abs(want) + std::abs(want) * 0x1p-23 + std::abs(c.product(0, i, j)) * 1e-9);
        } else {
          EXPECT_EQ(c.result(0, i, j), static_cast<float>(want));
        }
        column_sums[j] += c.result(0, i, j);
      }
    if (e == MatmulEpilogue::dgelu_bias_grad)
      for (int j = 0; j < 8; ++j) {
        double size = 0;
        for (int i = 0; i < 3; ++i) size += std::abs(c.result(0, i, j));
        EXPECT_NEAR(c.bias[j], column_sums[j], size * 0x1p-22);
      }
    for (int i = 0; i < 3 && e == MatmulEpilogue::bias_grad_a; ++i) {
      EXPECT_EQ(c.bias[i], c.a[i * 4] + c.a[i * 4 + 1] + c.a[i * 4 + 2] + c.a[i * 4 + 3]);
    }
    for (int j = 0; j < 8 && e == MatmulEpilogue::bias_grad_b; ++j) {
      EXPECT_EQ(c.bias[j], c.b[j] + c.b[8 + j] + c.b[16 + j] + c.b[24 + j]);
    }
  }
  // One bias for the whole batch.
  Case batch(2, 3, 8, 4, {12, 4, 1}, {32, 8, 1});
  batch.s.epilogue = MatmulEpilogue::bias;
  ASSERT_TRUE(batch.run(fake, lt));
  for (int64_t x = 0; x < 2; ++x) EXPECT_EQ(batch.result(x, 1, 5), batch.product(x, 1, 5) + batch.bias[5]);
  // cuBLASLt cannot store gelu's input in rows of 7: the caller computes it separately.
  Case odd(1, 3, 7, 4, {0, 4, 1}, {0, 7, 1});
  odd.s.epilogue = MatmulEpilogue::gelu_bias_aux;
  odd.s.align_out = 16;
  EXPECT_FALSE(odd.run(fake, lt));
  // It cannot either if a row does not begin on 16 bytes.
  Case off(1, 3, 8, 4, {0, 4, 1}, {0, 8, 1});
  off.s.epilogue = MatmulEpilogue::dgelu;
  EXPECT_FALSE(off.run(fake, lt));
  EXPECT_TRUE(fake.faults().empty()) << fake.faults()[0];
}

TEST(CublasLt, ComputeTypesAndChoice) {
  FakeCublasLt fake;
  fake.set_workspace(4096);
  CublasLt lt(fake.table());
  MatmulShape s;
  s.m = s.n = s.k = 8;
  s.a = s.b = {0, 8, 1};
  s.out_row = 8;
  EXPECT_EQ(lt.plan(s, 1024), nullptr);
  const PreparedMatmul* plan = lt.plan(s);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->workspace, 4096);
  EXPECT_EQ(lt.plan(s), plan);  // cached
  EXPECT_EQ(fake.planned().size(), 1);
  EXPECT_EQ(fake.planned()[0].compute, lt::kCompute32F);
  EXPECT_EQ(fake.planned()[0].reductions, lt::kReduceComputeType);
  s.tf32 = true;
  lt.plan(s);
  EXPECT_EQ(fake.planned()[1].compute, lt::kCompute32FFastTF32);
  s.tf32 = false;
  s.in = s.out = kFloat64;
  lt.plan(s);
  EXPECT_EQ(fake.planned()[2].compute, lt::kCompute64F);
  EXPECT_EQ(fake.planned()[2].scale, lt::kR64F);
  s.in = kBFloat16;
  s.out = kFloat32;
  s.align_a = 16;
  s.align_b = 2;
  lt.plan(s);
  EXPECT_EQ(fake.planned()[3].compute, lt::kCompute32F);
  EXPECT_EQ(fake.planned()[3].a.type, lt::kR16BF);
  EXPECT_EQ(fake.planned()[3].d.type, lt::kR32F);
  EXPECT_EQ(fake.planned()[3].align[0], 2);  // cuBLASLt's first operand is Weft's second
  EXPECT_EQ(fake.planned()[3].align[1], 16);
  // Faults of a call are errors.
  alignas(256) static char memory[4096];
  EXPECT_THROW(lt.run(*plan, {memory, memory + 256, nullptr, memory + 512, nullptr, nullptr, nullptr}, nullptr), Error);
  EXPECT_NE(fake.faults().back().find("workspace"), std::string::npos);
}

TEST(CublasLt, DescriptorsAreMadeOnceForAShape) {
  FakeCublasLt fake;
  {
    CublasLt lt(fake.table());
    Case c(2, 3, 8, 4, {12, 4, 1}, {32, 8, 1});
    c.s.epilogue = MatmulEpilogue::bias;
    ASSERT_TRUE(c.run(fake, lt));
    const int made = fake.made();
    Case again(2, 3, 8, 4, {12, 4, 1}, {32, 8, 1});  // the same case with other addresses
    again.s = c.s;
    ASSERT_TRUE(again.run(fake, lt));
    EXPECT_EQ(fake.made(), made);
    EXPECT_EQ(again.out, c.out);
    again.s.align_a = 16;
    again.s.align_b = 16;
    again.s.align_out = 16;
    ASSERT_TRUE(again.run(fake, lt));
    EXPECT_GT(fake.made(), made);
  }
  EXPECT_EQ(fake.alive(), 0);
}

// On a fake GPU, products run in stream order and run again in graphs.
class CublasLtOnGpu : public testing::FakeGpuTest {};

TEST_F(CublasLtOnGpu, InTheOrderOfTheStream) {
  FakeCublasLt fake_lt(&fake);
  Gpu& gpu = Gpu::get(0);
  gpu.make_current();
  std::vector<float> a{1, 2, 3, 4}, b{5, 6, 7, 8};
  const int64_t bytes = 3 * 256;
  char* memory = static_cast<char*>(gpu.allocator().allocate(bytes));
  auto at = [&](int i) { return StridedView{memory + 256 * i, kFloat32, {2, 2}, {2, 1}}; };
  copy_to_device({a.data(), kFloat32, {2, 2}, {2, 1}}, at(0), gpu.stream());
  copy_to_device({b.data(), kFloat32, {2, 2}, {2, 1}}, at(1), gpu.stream());
  MatmulShape s;
  s.m = s.n = s.k = 2;
  s.a = s.b = {0, 2, 1};
  s.out_row = 2;
  CublasLt lt(fake_lt.table());
  lt.run(*lt.plan(s), {memory, memory + 256, nullptr, memory + 512, nullptr, nullptr, nullptr}, gpu.stream().handle());
  EXPECT_GT(fake.pending(), 0);
  std::vector<float> y(4);
  copy_to_host(at(2), {y.data(), kFloat32, {2, 2}, {2, 1}}, gpu.stream());
  EXPECT_EQ(y, (std::vector<float>{19, 22, 43, 50}));
  gpu.allocator().deallocate(memory, bytes);
  EXPECT_TRUE(fake_lt.faults().empty());
}

TEST(CublasLt, LibraryOrTheReason) {
  const CublasLtLibrary& l = cublaslt_library();
  if (!l.unavailable.empty()) GTEST_SKIP() << l.unavailable;
  EXPECT_GE(l.version, 120000);
}

#ifdef WEFT_CUDA_HEADERS
// Functions are compared as pointers with our types in place of cuBLASLt's: the same number and sizes of arguments.
template <class... A, class... B>
constexpr bool same_shape(cublasStatus_t (*)(A...), int (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B))
    return false;
  else
    return ((sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>)&&...);
}

TEST(CublasLt, DeclarationsAreTheToolkits) {
  const lt::CublasLtTable t = {};
  EXPECT_TRUE(same_shape(cublasLtCreate, t.cublasLtCreate));
  EXPECT_TRUE(same_shape(cublasLtDestroy, t.cublasLtDestroy));
  EXPECT_TRUE(same_shape(cublasLtMatrixLayoutCreate, t.cublasLtMatrixLayoutCreate));
  EXPECT_TRUE(same_shape(cublasLtMatrixLayoutDestroy, t.cublasLtMatrixLayoutDestroy));
  EXPECT_TRUE(same_shape(cublasLtMatrixLayoutSetAttribute, t.cublasLtMatrixLayoutSetAttribute));
  EXPECT_TRUE(same_shape(cublasLtMatmulDescCreate, t.cublasLtMatmulDescCreate));
  EXPECT_TRUE(same_shape(cublasLtMatmulDescDestroy, t.cublasLtMatmulDescDestroy));
  EXPECT_TRUE(same_shape(cublasLtMatmulDescSetAttribute, t.cublasLtMatmulDescSetAttribute));
  EXPECT_TRUE(same_shape(cublasLtMatmulPreferenceCreate, t.cublasLtMatmulPreferenceCreate));
  EXPECT_TRUE(same_shape(cublasLtMatmulPreferenceDestroy, t.cublasLtMatmulPreferenceDestroy));
  EXPECT_TRUE(same_shape(cublasLtMatmulPreferenceSetAttribute, t.cublasLtMatmulPreferenceSetAttribute));
  EXPECT_TRUE(same_shape(cublasLtMatmulAlgoGetHeuristic, t.cublasLtMatmulAlgoGetHeuristic));
  EXPECT_TRUE(same_shape(cublasLtMatmul, t.cublasLtMatmul));
  static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(lt::Algo));
  static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == sizeof(lt::HeuristicResult));
  static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == offsetof(lt::HeuristicResult, workspace));
  static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == offsetof(lt::HeuristicResult, state));
#define SAME(ours, theirs) static_assert(static_cast<int64_t>(ours) == static_cast<int64_t>(theirs))
  SAME(lt::kSuccess, CUBLAS_STATUS_SUCCESS);
  SAME(lt::kInvalidValue, CUBLAS_STATUS_INVALID_VALUE);
  SAME(lt::kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
  SAME(lt::kR32F, CUDA_R_32F);
  SAME(lt::kR64F, CUDA_R_64F);
  SAME(lt::kR16F, CUDA_R_16F);
  SAME(lt::kR16BF, CUDA_R_16BF);
  SAME(lt::kCompute32F, CUBLAS_COMPUTE_32F);
  SAME(lt::kCompute64F, CUBLAS_COMPUTE_64F);
  SAME(lt::kCompute32FFastTF32, CUBLAS_COMPUTE_32F_FAST_TF32);
  SAME(lt::kN, CUBLAS_OP_N);
  SAME(lt::kT, CUBLAS_OP_T);
  SAME(lt::kLayoutBatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  SAME(lt::kLayoutBatchStride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  SAME(lt::kDescTransA, CUBLASLT_MATMUL_DESC_TRANSA);
  SAME(lt::kDescTransB, CUBLASLT_MATMUL_DESC_TRANSB);
  SAME(lt::kDescEpilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
  SAME(lt::kDescBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  SAME(lt::kDescAuxPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
  SAME(lt::kDescAuxLd, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
  SAME(lt::kDescAuxBatchStride, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
  SAME(lt::kDefault, CUBLASLT_EPILOGUE_DEFAULT);
  SAME(lt::kBias, CUBLASLT_EPILOGUE_BIAS);
  SAME(lt::kGelu, CUBLASLT_EPILOGUE_GELU);
  SAME(lt::kGeluAux, CUBLASLT_EPILOGUE_GELU_AUX);
  SAME(lt::kGeluBias, CUBLASLT_EPILOGUE_GELU_BIAS);
  SAME(lt::kGeluAuxBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
  SAME(lt::kDGelu, CUBLASLT_EPILOGUE_DGELU);
  SAME(lt::kDGeluBGrad, CUBLASLT_EPILOGUE_DGELU_BGRAD);
  SAME(lt::kBGradA, CUBLASLT_EPILOGUE_BGRADA);
  SAME(lt::kBGradB, CUBLASLT_EPILOGUE_BGRADB);
  SAME(lt::kMaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  SAME(lt::kReductionSchemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  SAME(lt::kAlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  SAME(lt::kAlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
  SAME(lt::kAlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
  SAME(lt::kAlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  SAME(lt::kReduceComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
#undef SAME
}
#endif

}  // namespace
}  // namespace weft::cuda
