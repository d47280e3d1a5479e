// The driver with kernels written by hand: every point once, and the bits of eager reductions, for any thread count.
#include "compiler/targets/cpu/run/fused_kernel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "framework/base/thread_pool.h"
#include "framework/testing/compare.h"
#include "framework/testing/values.h"
#include "ops/numerics/reduce_order.h"

namespace weft::internal {
namespace {

using testing::same_bits;

Tensor random_f32(const Shape& shape, uint64_t seed) {
  testing::Random r(seed);
  return testing::random_tensor(kFloat32, shape, r);
}

struct Threads {
  explicit Threads(int n) : before(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
  int before;
};

// A kernel over [points, lanes] with one f32 operand and any results.
loop_ir::Lowered lowered_of(int64_t points, int64_t lanes, loop_ir::Mode mode, bool reduces) {
  loop_ir::Lowered low;
  low.kernel.name = "by_hand";
  low.kernel.mode = mode;
  low.kernel.axes = 2;
  low.extents = {points, lanes};
  loop_ir::Operand x;
  x.strides = {loop_ir::StrideKind::kAny, loop_ir::StrideKind::kUnit};
  low.kernel.operands.push_back(x);
  low.bound.push_back({false, 0, 0, {lanes, 1}});
  low.bytes = static_cast<double>(points * lanes * 4);
  if (reduces) low.kernel.instrs.push_back({.op = loop_ir::Op::kReduce});
  return low;
}

std::vector<char> workspace_of(const FusedKernel& k) { return std::vector<char>(k.workspace_bytes() + 64, 0x7f); }
void* aligned(std::vector<char>& v) { return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64; }

void count_points(const loop_ir::Args* a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
  for (int64_t o = o0; o < o1; o += step)
    for (int64_t l = l0; l < l1; ++l) {
      float* x = static_cast<float*>(a->ptr[0]) + o * a->stride[0] + l * a->stride[1];
      std::atomic_ref<float>(*x).fetch_add(1, std::memory_order_relaxed);
    }
}

TEST(FusedKernel, WalksEveryPointOnce) {
  for (int threads : {1, 2, 3})
    for (bool whole_rows : {false, true})
      for (auto [points, lanes] : {std::pair<int64_t, int64_t>{1, 1},
                                   {1, 100'000},
                                   {1, 16'385},
                                   {3, 10'000},
                                   {5, 4001},
                                   {1000, 33},
                                   {4097, 7},
                                   {2, 65},
                                   {0, 5},
                                   {5, 0}}) {
        SCOPED_TRACE(str_cat(threads, " threads, ", points, " x ", lanes, whole_rows ? ", whole rows" : ""));
        Threads scope(threads);
        Tensor x = Tensor::empty({kFloat32, {}, {points, lanes}});
        const StridedView v = x.view_for_kernel();
        kernels::fill(v, 0);
        FusedKernel k({}, lowered_of(points, lanes, loop_ir::Mode::kRows, whole_rows), {});
        k.bind(count_points);
        std::vector<char> memory = workspace_of(k);
        void* ptr[] = {v.data};
        k.run({ptr, {}, {}, aligned(memory)});
        for (int64_t i = 0; i < points * lanes; ++i) ASSERT_EQ(v.as<float>()[i], 1) << i;
      }
}

// column[0][l] += x[o, l]
void add_to_columns(const loop_ir::Args* a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
  float* column = static_cast<float*>(a->column[0]);
  for (int64_t o = o0; o < o1; o += step)
    for (int64_t l = l0; l < l1; ++l) column[l] += static_cast<float*>(a->ptr[0])[o * a->stride[0] + l];
}

TEST(FusedKernel, ColumnSumsHaveTheBitsOfEager) {
  for (auto [points, lanes] : {std::pair<int64_t, int64_t>{1, 1},
                               {5, 16},
                               {16, 100},
                               {1000, 700},
                               {1024, 64},
                               {1025, 3},
                               {5000, 130},
                               {40'000, 5},
                               {768, 1030},
                               {0, 9}}) {
    const Tensor x = random_f32({points, lanes}, points + lanes);
    for (DType out_dtype : {kFloat32, kBFloat16}) {
      Tensor want = Tensor::empty({out_dtype, {}, {lanes}});
      Tensor wide = Tensor::empty({kFloat32, {}, {lanes}});
      kernels::reduce(kernels::Rd::sum, x.view_for_kernel(), 1, wide.view_for_kernel(), nullptr);
      kernels::cast_copy(wide.view_for_kernel(), want.view_for_kernel());
      for (bool whole_rows : {false, true})
        for (int threads : {1, 2, 3}) {
          SCOPED_TRACE(str_cat(threads, " threads, ", points, " x ", lanes, whole_rows ? ", whole rows" : ""));
          Threads scope(threads);
          loop_ir::Lowered low = lowered_of(points, lanes, loop_ir::Mode::kRows, whole_rows);
          low.kernel.columns = 1;
          low.columns.push_back({0, 0, kernels::Rd::sum, loop_ir::Type::f32});
          FusedKernel k({}, low, {});
          k.bind(add_to_columns);
          Tensor got = Tensor::empty(want.type());
          std::vector<char> memory = workspace_of(k);
          void* ptr[] = {x.view_for_kernel().data};
          const StridedView out[] = {got.view_for_kernel()};
          k.run({ptr, {}, out, aligned(memory)});
          ASSERT_TRUE(same_bits(got, want));
        }
    }
  }
}

// partial[0][o * blocks + block] = the block's sum
void sum_blocks(const loop_ir::Args* a, int64_t o0, int64_t o1, int64_t step, int64_t l0, int64_t l1) {
  const int64_t lanes = a->extent[1], blocks = (lanes + kReduceBlock - 1) / kReduceBlock;
  for (int64_t o = o0; o < o1; o += step)
    for (int64_t l = l0; l < l1; l += kReduceBlock) {
      const int64_t n = std::min<int64_t>(kReduceBlock, l1 - l);
      float* x = static_cast<float*>(a->ptr[0]) + o * a->stride[0] + l;
      kernels::reduce(kernels::Rd::sum, {x, kFloat32, {n}, {1}}, 1,
                      {static_cast<float*>(a->partial[0]) + o * blocks + l / kReduceBlock, kFloat32, {}, {}}, nullptr);
    }
}

TEST(FusedKernel, FewLongRowsAreCutIntoBlocks) {
  for (auto [points, lanes] :
       {std::pair<int64_t, int64_t>{1, 3}, {1, 1024}, {1, 300'001}, {3, 70'000}, {2, 2049}, {1, 0}}) {
    const Tensor x = random_f32({points, lanes}, points + lanes);
    Tensor want = Tensor::empty({kFloat32, {}, {points}});
    kernels::reduce(kernels::Rd::sum, x.view_for_kernel(), 2, want.view_for_kernel(), nullptr);
    for (int threads : {1, 2, 3}) {
      SCOPED_TRACE(str_cat(threads, " threads, ", points, " x ", lanes));
      Threads scope(threads);
      loop_ir::Lowered low = lowered_of(points, lanes, loop_ir::Mode::kSplit, true);
      low.kernel.partials = 1;
      low.partials.push_back({0, 0, kernels::Rd::sum, loop_ir::Type::f32});
      FusedKernel k({}, low, {});
      k.bind(sum_blocks);
      Tensor got = Tensor::empty(want.type());
      std::vector<char> memory = workspace_of(k);
      void* ptr[] = {x.view_for_kernel().data};
      const StridedView out[] = {got.view_for_kernel()};
      k.run({ptr, {}, out, aligned(memory)});
      ASSERT_TRUE(same_bits(got, want));
    }
  }
}

}  // namespace
}  // namespace weft::internal
