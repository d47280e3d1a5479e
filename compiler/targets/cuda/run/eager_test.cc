// Eager ops on the emulated GPU: nothing waits until a value is read, prepared operations are reused, the read of a
// value reports errors with their op and line, scratch memory is returned.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "compiler/targets/cuda/run/operation.h"
#include "compiler/targets/cuda/run/operation_load.h"
#include "compiler/targets/cuda/run/target.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "compiler/targets/operations.h"
#include "framework/autodiff/grad.h"
#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"
#include "framework/dispatch/device/host_read.h"
#include "framework/dispatch/dispatch.h"
#include "framework/dispatch/tf32.h"
#include "ops/core/core.h"

namespace weft::cuda {
namespace {

using testing::ScopedEmulatedGpu;
using weft::internal::operation_counts;
using weft::testing::placed_error_of;

// Small whole numbers, so that products and their sums are exact in any order.
Tensor whole(const Shape& shape, int seed) {
  std::vector<float> v(shape.numel());
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>((i * 7 + seed * 13) % 11) - 5;
  return Tensor::from_vector<float>(v, shape);
}

TEST(Eager, ComputesWhenAValueIsRead) {
  ScopedEmulatedGpu gpu;
  Tensor x = arange(6, {.dtype = kFloat32}).to(Device::cuda());
  Tensor y = x * 2 + 1;
  Tensor z = sum(matmul(y.reshape({2, 3}), y.reshape({3, 2})));
  EXPECT_EQ(y.device(), Device::cuda(0));
  EXPECT_TRUE(gpu.driver().kernels_run().empty());
  for (const char* call : {"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"})
    EXPECT_EQ(gpu.driver().calls(call), 0) << call;
  EXPECT_EQ(y.to(Device::cpu()).to_vector<float>(), (std::vector<float>{1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(z.item<float>(), 496);
  EXPECT_EQ(gpu.cublaslt().ran().size(), 1u);
}

TEST(Eager, KernelsAreCountedByTheirTextAndDumped) {
  ScopedEmulatedGpu gpu;
  const Device device = Device::cuda();
  const StridedView in[] = {{nullptr, kFloat32, {5, 7}, {7, 1}}}, out[] = {{nullptr, kFloat16, {5, 7}, {7, 1}}};
  std::vector<std::shared_ptr<Operation>> twice;
  for (int i = 0; i < 2; ++i)
    twice.push_back(cuda_target().prepare(device, cast_op, Attrs{{"dtype", kFloat16}}, in, out, 16, {}));
  const LoadReport first = cuda_target().compile(device, twice, {});
  EXPECT_EQ(first.kernels, 1);  // two operations
  EXPECT_EQ(first.compiled, 1);
  const LoadReport again = cuda_target().compile(device, twice, {});
  EXPECT_EQ(again.kernels, 1);
  EXPECT_EQ(again.compiled, 0);

  const char* tmp = std::getenv("TEST_TMPDIR");
  const std::string folder = str_cat(tmp ? tmp : "/tmp", "/cuda_dump/deep");
  const std::string name = cuda_target().dump(*twice[0], folder);
  EXPECT_TRUE(name.ends_with(".cu")) << name;
  std::ifstream file(folder + "/" + name);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find("__global__"), std::string::npos) << name;
  EXPECT_NE(text.str().find(twice[0]->name()), std::string::npos) << name;
}

TEST(Eager, FindsItsOperationsAgain) {
  ScopedEmulatedGpu gpu;
  Tensor x = whole({4, 6}, 1).to(Device::cuda());
  exp(x);
  const weft::internal::OperationCounts before = operation_counts();
  const int64_t compiled = internal::compiled_kernels();
  for (int i = 0; i < 5; ++i) exp(x);
  EXPECT_EQ(operation_counts().found, before.found + 5);
  EXPECT_EQ(operation_counts().prepared, before.prepared);
  // Another shape is prepared anew, with the same kernel.
  exp(whole({8, 6}, 1).to(Device::cuda()));
  EXPECT_EQ(operation_counts().prepared, before.prepared + 1);
  EXPECT_EQ(internal::compiled_kernels(), compiled);
  // Other strides need another kernel.
  exp(x.transpose(0, 1));
  EXPECT_EQ(operation_counts().prepared, before.prepared + 2);
}

TEST(Eager, Tf32IsAChoice) {
  ScopedEmulatedGpu gpu;
  const Tensor x = whole({4, 4}, 1).to(Device::cuda());
  const Tensor y = matmul(x, x);
  set_tf32(true);
  const Tensor z = matmul(x, x);
  set_tf32(false);
  const Tensor again = matmul(x, x);
  EXPECT_EQ(z.to_vector<float>(), y.to_vector<float>());
  again.to_vector<float>();
  ASSERT_EQ(gpu.cublaslt().ran().size(), 3u);
  EXPECT_EQ(gpu.cublaslt().ran()[0].compute, lt::kCompute32F);
  EXPECT_EQ(gpu.cublaslt().ran()[1].compute, lt::kCompute32FFastTF32);
  EXPECT_EQ(gpu.cublaslt().ran()[2].compute, lt::kCompute32F);
}

// An operation keeps the library's descriptors and its choice, so a known product is one call.
TEST(Eager, ProductsArePreparedOnce) {
  ScopedEmulatedGpu gpu;
  const Tensor a = whole({4, 8}, 1).to(Device::cuda()), b = whole({8, 4}, 2).to(Device::cuda());
  matmul(a, b);
  const int64_t made = gpu.cublaslt().made();
  for (int i = 0; i < 3; ++i) matmul(a, b).to_vector<float>();
  EXPECT_EQ(gpu.cublaslt().made(), made);
  EXPECT_EQ(gpu.cublaslt().planned().size(), 1u);
  EXPECT_EQ(gpu.cublaslt().ran().size(), 4u);
}

TEST(Eager, ProductsThatCublasLtRefusesAreComputed) {
  ScopedEmulatedGpu gpu;
  gpu.cublaslt().set_workspace(uint64_t{1} << 30);  // more than its limit
  const Tensor a = whole({4, 8}, 1), b = whole({8, 4}, 2);
  const Tensor y = matmul(a.to(Device::cuda()), b.to(Device::cuda()));
  EXPECT_EQ(y.to_vector<float>(), matmul(a, b).to_vector<float>());
  EXPECT_TRUE(gpu.cublaslt().ran().empty());
}

TEST(Eager, KeepsAsManyOperationsAsItMay) {
  ScopedEmulatedGpu gpu;
  weft::internal::set_operation_capacity(2);
  Tensor x = whole({4}, 1).to(Device::cuda());
  exp(x), neg(x), abs(x);
  EXPECT_EQ(operation_counts().kept, 2);
  const int64_t prepared = operation_counts().prepared;
  abs(x), neg(x);
  EXPECT_EQ(operation_counts().prepared, prepared);
  exp(x);  // was least recently used
  EXPECT_EQ(operation_counts().prepared, prepared + 1);
  weft::internal::set_operation_capacity(4096);
}

TEST(Eager, GradientsAreThoseOfTheCpu) {
  ScopedEmulatedGpu gpu;
  auto loss = [](const Tensor& x, const Tensor& w, const Tensor& b) {
    Tensor y = relu(matmul(x, w) + b);
    return sum(y * y);
  };
  const Tensor x = whole({5, 4}, 1), w = whole({4, 3}, 2), b = whole({3}, 3);
  std::vector<Tensor> results[2];
  for (int on_gpu : {0, 1}) {
    const Device d = on_gpu ? Device::cuda() : Device::cpu();
    std::vector<Tensor> leaves;
    for (const Tensor& t : {x, w, b}) leaves.push_back(t.to(d).requires_grad());
    const Tensor l = loss(leaves[0], leaves[1], leaves[2]);
    results[on_gpu] = grad(l, leaves);
    results[on_gpu].push_back(l);
  }
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_EQ(results[1][i].device(), Device::cuda(0));
    EXPECT_EQ(results[1][i].to_vector<float>(), results[0][i].to_vector<float>()) << i;
  }
}

TEST(Eager, AnIndexOutOfRangeIsThrownWhenAValueIsRead) {
  ScopedEmulatedGpu gpu;
  Tensor x = whole({4, 3}, 1).to(Device::cuda());
  auto indices = [](std::vector<int64_t> v) {
    return Tensor::from_vector<int64_t>(v, {static_cast<int64_t>(v.size())}).to(Device::cuda());
  };
  Tensor good = index_select(x, 0, indices({3, 0}));
  Tensor bad = index_select(x, 0, indices({1, 4}));
  const int line = __LINE__ - 1;
  EXPECT_EQ(gpu.driver().calls("cuStreamSynchronize"), 0);
  const std::string what = placed_error_of([&] { (good + 1).to_vector<float>(); }, Code::kOutOfRange);
  EXPECT_EQ(what, str_cat("index_select: index 4 at position 1 is out of range; need 0 to 3; at "
                          "compiler/targets/cuda/run/eager_test.cc:",
                          line));
  // An error is reported once; other work continues.
  EXPECT_EQ(good.to_vector<float>(),
            index_select(x.to(Device::cpu()), 0, Tensor::from_vector<int64_t>({3, 0}, {2})).to_vector<float>());
  // Without such ops in between, a read needs no second copy.
  const int copies = gpu.driver().calls("cuMemcpyDtoHAsync_v2");
  good.to_vector<float>();
  EXPECT_EQ(gpu.driver().calls("cuMemcpyDtoHAsync_v2"), copies + 1);
  EXPECT_NE(placed_error_of([&] { index_select(x, 0, indices({-1})).to_vector<float>(); }, Code::kOutOfRange)
                .find("index_select: index -1 at position 0 "),
            std::string::npos);
}

TEST(Eager, NumbersAreNoTextOfKernels) {
  ScopedEmulatedGpu gpu;
  const Tensor x = whole({4, 3}, 1).to(Device::cuda());
  const auto f = [&](double a) {
    return (x * a + arange(a, a + 3, 1, {.dtype = kFloat32, .device = x.device()})).to_vector<float>();
  };
  EXPECT_EQ(f(0.5)[1], whole({4, 3}, 1).to_vector<float>()[1] * 0.5f + 1.5f);
  const int64_t compiled = internal::compiled_kernels();
  for (const double a : {0.25, 3.0, -1.75})
    EXPECT_EQ(f(a)[1], whole({4, 3}, 1).to_vector<float>()[1] * static_cast<float>(a) + static_cast<float>(a + 1)) << a;
  EXPECT_EQ(internal::compiled_kernels(), compiled);
}

TEST(Eager, AReadThatIsQueuedFindsItWhenItIsWaitedFor) {
  ScopedEmulatedGpu gpu;
  Tensor x = whole({4, 3}, 1).to(Device::cuda());
  auto pick = [&](int64_t i) { return index_select(x, 0, Tensor::from_vector<int64_t>({i}, {1}).to(Device::cuda())); };
  HostRead before({pick(3)});
  HostRead bad({pick(4)});
  EXPECT_EQ(before.wait()[0].to_vector<float>(),
            index_select(x.to(Device::cpu()), 0, Tensor::from_vector<int64_t>({3}, {1})).to_vector<float>());
  EXPECT_NE(placed_error_of([&] { bad.wait(); }, Code::kOutOfRange).find("index 4 at position 0 is out of range"),
            std::string::npos);
  { HostRead dropped({pick(5)}); }  // nobody waited for it: the next read reports the error
  EXPECT_NE(
      placed_error_of([&] { x.to_vector<float>(); }, Code::kOutOfRange).find("index 5 at position 0 is out of range"),
      std::string::npos);
  EXPECT_EQ(HostRead({pick(1)}).wait()[0].numel(), 3);
}

TEST(Eager, SoIsAnIntegerDivisionByZero) {
  ScopedEmulatedGpu gpu;
  Tensor a = Tensor::from_vector<int64_t>({7, 8}, {2}).to(Device::cuda());
  Tensor b = Tensor::from_vector<int64_t>({2, 0}, {2}).to(Device::cuda());
  Tensor c = remainder(a, b);
  const int line = __LINE__ - 1;
  EXPECT_EQ(placed_error_of([&] { c.to_vector<int64_t>(); }, Code::kInvalidArgument),
            str_cat("remainder: integer division by zero; need divisors other than 0; at "
                    "compiler/targets/cuda/run/eager_test.cc:",
                    line));
}

TEST(Eager, PrintsFromTheHost) {
  ScopedEmulatedGpu gpu;
  Tensor x = whole({3}, 1).to(Device::cuda()) * 2;
  ::testing::internal::CaptureStderr();
  Tensor y = debug_print(x, "x");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "x = " + x.to(Device::cpu()).to_string() + "\n");
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
}

TEST(Eager, ScratchGoesBack) {
  ScopedEmulatedGpu gpu;
  // Neither order of the rows is contiguous: they are copied before the product.
  Tensor a = whole({6, 2, 4}, 1), b = whole({2, 4, 5}, 2);
  const OpDef& dot = dot_op;
  const Attrs attrs{
      {"a_batch", Shape{}}, {"b_batch", Shape{}}, {"a_contract", Shape{1, 2}}, {"b_contract", Shape{0, 1}}};
  const Tensor want = dispatch(dot, {&a, &b}, attrs);
  Tensor ga = permute(permute(a, {2, 0, 1}).contiguous(), {1, 2, 0}).to(Device::cuda()), gb = b.to(Device::cuda());
  ga = permute(permute(ga, {2, 0, 1}).contiguous(), {1, 2, 0});
  const int64_t live = memory_stats(Device::cuda()).live;
  {
    Tensor y = dispatch(dot, {&ga, &gb}, attrs);
    EXPECT_EQ(memory_stats(Device::cuda()).live, live + (want.numel() * 4 + 63) / 64 * 64);
    EXPECT_EQ(y.to_vector<float>(), want.to_vector<float>());
  }
  EXPECT_EQ(memory_stats(Device::cuda()).live, live);
}

TEST(Eager, OutOfMemorySaysWhatWasAsked) {
  testing::EmulatedGpuOptions options;
  options.gpu.memory = size_t{24} << 20;
  ScopedEmulatedGpu gpu(options);
  Tensor x = zeros({1 << 20}, {.device = Device::cuda()});
  const std::string what = placed_error_of(
      [&] {
        std::vector<Tensor> kept;
        for (int i = 0; i < 16; ++i) kept.push_back(x + x);
      },
      Code::kResourceExhausted);
  EXPECT_NE(what.find("out of memory"), std::string::npos) << what;
  EXPECT_NE(what.find("4.0 MiB"), std::string::npos) << what;
  // Work continues.
  EXPECT_EQ(sum(x).item<float>(), 0);
}

TEST(Eager, AnOpWithoutCudaSaysSo) {
  ScopedEmulatedGpu gpu;
  OpDef op = cast_op;
  op.name = "unheard_of";
  op.view = nullptr;
  Tensor x = whole({4}, 1).to(Device::cuda());
  EXPECT_EQ(placed_error_of(
                [&] {
                  dispatch(op, {&x}, {{"dtype", kFloat64}});
                },
                Code::kUnavailable),
            "unheard_of: CUDA has no kernel for this op on f32 yet; run it on the CPU");
}

TEST(Eager, WithoutCudaTheDeviceSaysWhy) {
  if (availability().ok) GTEST_SKIP() << "this machine has a GPU";
  register_target(DeviceType::kCuda, &cuda_target());
  const std::string what = placed_error_of([] { zeros({2}, {.device = Device::cuda()}); }, Code::kUnavailable);
  EXPECT_NE(what.find(availability().why), std::string::npos) << what;
}

}  // namespace
}  // namespace weft::cuda
