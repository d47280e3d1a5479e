// Tests copies with every kind of strides, and tensors on the device.
#include "framework/cuda/transfer/copy.h"

#include <numeric>
#include <random>

#include "framework/base/error.h"
#include "framework/cuda/device_allocator.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/memory_target.h"
#include "framework/cuda/testing/fake_gpu_test.h"
#include "framework/cuda/transfer/copy_plan.h"
#include "framework/dispatch/parameter.h"
#include "ops/core/indexing/view.h"

namespace weft::cuda {
namespace {

using testing::error_of;

TEST(NestedCopy, JoinsWhatLiesTogether) {
  NestedCopy p = plan_copy({2, 3, 4}, {12, 4, 1}, {12, 4, 1}, 4);
  EXPECT_EQ(p.run, 96);
  EXPECT_EQ(p.loops.size(), 0u);
  p = plan_copy({2, 3, 4}, {24, 8, 1}, {12, 4, 1}, 4);  // rows with gaps: one loop over all six
  EXPECT_EQ(p.run, 16);
  ASSERT_EQ(p.loops.size(), 1u);
  EXPECT_EQ(p.loops[0].extent, 6);
  EXPECT_EQ(p.loops[0].from, 32);
  EXPECT_EQ(p.loops[0].to, 16);
  p = plan_copy({3, 4}, {1, 3}, {4, 1}, 4);  // a transpose
  EXPECT_EQ(p.run, 4);
  EXPECT_EQ(p.loops.size(), 2u);
  EXPECT_EQ(plan_copy({3, 0}, {0, 1}, {0, 1}, 4).run, 0);
  EXPECT_EQ(plan_copy({}, {}, {}, 8).run, 8);
}

TEST(NestedCopy, Spans) {
  StridedView v{nullptr, kFloat32, {2, 3}, {10, 1}};
  EXPECT_EQ(span_of(v).end, (10 + 2 + 1) * 4);
  v.strides = {-10, 1};
  EXPECT_EQ(span_of(v).begin, -40);
  EXPECT_EQ(span_of(v).end, 12);
}

class CopyTest : public testing::FakeGpuTest {
 protected:
  CopyTest() : FakeGpuTest({}, 2) {}
  void SetUp() override { register_target(DeviceType::kCuda, &memory_target()); }
  Gpu& gpu() { return Gpu::get(0); }

  static Tensor numbers(const Shape& shape) {
    Tensor t = Tensor::empty({kInt32, Device::cpu(), shape});
    auto* p = static_cast<int32_t*>(t.view_for_kernel().data);
    std::iota(p, p + t.numel(), 0);
    return t;
  }
  // The elements that a view of `base` selects.
  static std::vector<int32_t> elements(const Tensor& base, const StridedView& v) {
    auto* p = static_cast<const int32_t*>(v.data);
    std::vector<int32_t> out;
    for (int64_t i = 0; i < v.numel(); ++i) {
      int64_t at = 0, rest = i;
      for (int d = v.shape.size() - 1; d >= 0; --d) {
        at += rest % v.shape[d] * v.strides[d];
        rest /= v.shape[d];
      }
      out.push_back(p[at]);
    }
    return out;
  }
  static StridedView view(const Tensor& t, const Shape& shape, const Shape& strides, int64_t offset = 0) {
    return {static_cast<int32_t*>(t.view_for_kernel().data) + offset, kInt32, shape, strides};
  }
};

struct TestView {
  Shape shape, strides;
  int64_t offset = 0;
};
const TestView kLayouts[] = {
    {{6, 4}, {4, 1}},         // contiguous
    {{4, 6}, {1, 4}},         // transposed
    {{3, 2}, {8, 1}, 2},      // every other row, half of it
    {{6, 4}, {0, 1}, 4},      // one row broadcast
    {{6, 4}, {4, 0}},         // one column broadcast
    {{2, 3, 2}, {12, 1, 4}},  // dims inside out
    {{24}, {-1}, 23},         // backwards
    {{2, 2}, {-12, 2}, 12},   // both
    {{3}, {8}},               // a column
    {{}, {}, 5},              // one element
    {{0, 4}, {4, 1}},         // none
};

TEST_F(CopyTest, AnyLayoutGoesThereAndBack) {
  Tensor base = numbers({24});
  Tensor base_on_gpu = base.to(Device::cuda(0));
  for (const TestView& l : kLayouts) {
    std::vector<int32_t> want = elements(base, view(base, l.shape, l.strides, l.offset));
    // Strided on the host, contiguous on the device.
    Tensor there = Tensor::empty({kInt32, Device::cuda(0), l.shape});
    copy_to_device(view(base, l.shape, l.strides, l.offset), there.view_for_kernel(), gpu().stream());
    EXPECT_EQ(there.to_vector<int32_t>(), want) << "to the device: " << str_cat(l.shape, l.strides);
    // Strided on the device, contiguous on the host.
    Tensor back = Tensor::empty({kInt32, Device::cpu(), l.shape});
    copy_to_host(view(base_on_gpu, l.shape, l.strides, l.offset), back.view_for_kernel(), gpu().stream());
    EXPECT_EQ(back.to_vector<int32_t>(), want) << "to the host: " << str_cat(l.shape, l.strides);
    // Strided on the device, contiguous on the device.
    Tensor beside = Tensor::empty({kInt32, Device::cuda(0), l.shape});
    copy_on_device(view(base_on_gpu, l.shape, l.strides, l.offset), beside.view_for_kernel(), gpu().stream());
    EXPECT_EQ(beside.to_vector<int32_t>(), want) << "on the device: " << str_cat(l.shape, l.strides);
    // To another device.
    Tensor far = Tensor::empty({kInt32, Device::cuda(1), l.shape});
    copy_between_devices(view(base_on_gpu, l.shape, l.strides, l.offset), gpu(), far.view_for_kernel(), Gpu::get(1));
    EXPECT_EQ(far.to_vector<int32_t>(), want) << "between devices: " << str_cat(l.shape, l.strides);
  }
}

TEST_F(CopyTest, IntoStridedMemory) {
  Tensor x = numbers({3, 2});
  Tensor target = numbers({24}).to(Device::cuda(0));
  copy_to_device(x.view_for_kernel(), view(target, {3, 2}, {8, 2}, 1), gpu().stream());
  std::vector<int32_t> want(24);
  std::iota(want.begin(), want.end(), 0);
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 2; ++j) want[1 + 8 * i + 2 * j] = 2 * i + j;
  EXPECT_EQ(target.to_vector<int32_t>(), want);
  // And between devices.
  Tensor second = numbers({24}).to(Device::cuda(1));
  copy_between_devices(x.to(Device::cuda(0)).view_for_kernel(), gpu(), view(second, {3, 2}, {8, 2}, 1), Gpu::get(1));
  EXPECT_EQ(second.to_vector<int32_t>(), want);
}

TEST_F(CopyTest, LargeTensorsGoInPieces) {
  const int64_t n = 2 * kCopyPiece / 4 + 1000;  // three pieces
  Tensor x = numbers({n});
  Tensor there = x.to(Device::cuda(0));
  EXPECT_EQ(fake.calls("cuMemcpyHtoDAsync_v2"), 3);
  EXPECT_EQ(there.to_vector<int32_t>(), x.to_vector<int32_t>());
  EXPECT_EQ(fake.calls("cuMemcpyDtoHAsync_v2"), 3);
  // A large transpose, gathered on the host.
  Tensor wide = Tensor::empty({kInt32, Device::cuda(0), {1000, n / 1000}});
  copy_to_device(view(x, {1000, n / 1000}, {1, 1000}), wide.view_for_kernel(), gpu().stream());
  EXPECT_EQ(wide.to_vector<int32_t>()[1], 1000);
}

TEST_F(CopyTest, TheHostDoesNotWaitForACopyToTheDevice) {
  Tensor there;
  {
    Tensor x = numbers({1000});
    there = x.to(Device::cuda(0));
    EXPECT_GT(fake.pending(), 0);
    auto* p = static_cast<int32_t*>(x.view_for_kernel().data);
    std::fill(p, p + 1000, -5);  // the memory belongs to the caller again
  }
  EXPECT_EQ(there.to_vector<int32_t>()[999], 999);
}

TEST_F(CopyTest, TensorsOnTheDevice) {
  Tensor x = Tensor::empty({kFloat32, Device::cpu(), {2, 2}});
  auto* p = static_cast<float*>(x.view_for_kernel().data);
  for (int i = 0; i < 4; ++i) p[i] = static_cast<float>(i);
  Tensor y = x.to(Device::cuda(1));
  EXPECT_EQ(y.device(), Device::cuda(1));
  EXPECT_EQ(memory_stats(Device::cuda(1)).live, 64);
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(y.to(Device::cuda(0)).to(Device::cpu()).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(y.to_string(), "tensor([[0., 1.],\n        [2., 3.]], device='cuda:1')");
  EXPECT_NE(error_of([&] {
              y.data<float>();
            }).find("is not in host memory; need one on the CPU: move with to(Device::cpu())"),
            std::string::npos);
  y = Tensor();
  EXPECT_EQ(memory_stats(Device::cuda(1)).live, 0);
}

// A lazy cell on the device owns its memory alone, whatever its initialiser returns.
TEST_F(CopyTest, CellsOnTheDevice) {
  Tensor x = numbers({8}).to(Device::cuda(0));
  Parameter p(
      {kInt32, Device::cuda(0), {2, 4}},
      [&] {
        return x.reshape({2, 4});
      },
      "p");
  EXPECT_EQ(p.value().to_vector<int32_t>(), x.to_vector<int32_t>());
  EXPECT_NE(p.value().get().storage->data(), x.get().storage->data());
}

}  // namespace
}  // namespace weft::cuda
