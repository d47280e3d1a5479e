// Index out of range on the emulated GPU: the CPU's error text with index, position and bound, for eager ops and for
// steps that are queued or replayed.
#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "compiler/targets/cuda/testing/gpu/emulated_gpu.h"
#include "framework/base/testing/error_of.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::placed_error_of;

struct Case {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& index, const Tensor& src)> fn;
  Shape x, index, src;
  int64_t limit;
};

const std::vector<Case>& cases() {
  using T = const Tensor&;
  static const auto* all = new std::vector<Case>{
      {"gather", [](T x, T i, T) { return gather(x, 1, i); }, {3, 5}, {3, 40}, {1}, 5},
      {"gather_outer", [](T x, T i, T) { return gather(x, 0, i); }, {5, 3}, {7, 3}, {1}, 5},
      {"index_select", [](T x, T i, T) { return index_select(x, 1, i); }, {3, 5}, {40}, {1}, 5},
      {"embedding", [](T x, T i, T) { return embedding(i, x); }, {5, 12}, {4, 10}, {1}, 5},
      {"embedding_of_a_shift", [](T x, T i, T) { return embedding(i + 1, x); }, {6, 12}, {4, 10}, {1}, 5},
      {"index_add", [](T x, T i, T s) { return index_add(x, 0, i, s); }, {5, 6}, {40}, {40, 6}, 5},
      {"index_copy", [](T x, T i, T s) { return index_copy(x, 0, i, s); }, {5, 6}, {40}, {40, 6}, 5},
      {"scatter_add", [](T x, T i, T s) { return scatter_add(x, 1, i, s); }, {3, 5}, {3, 40}, {3, 40}, 5},
      {"scatter_add_long", [](T x, T i, T s) { return scatter_add(x, 0, i, s); }, {5, 3}, {100, 3}, {100, 3}, 5},
      {"cross_entropy", [](T x, T i, T) { return cross_entropy(x, i); }, {12, 5}, {12}, {1}, 5},
  };
  return *all;
}

class IndexErrors : public ::testing::TestWithParam<int> {};

Tensor ramp(const Shape& s) { return (arange(s.numel()).to(kFloat32) * 0.25).reshape(s); }

TEST_P(IndexErrors, SayWhatTheCpuSays) {
  const Case& c = cases()[static_cast<size_t>(GetParam())];
  cuda::testing::ScopedEmulatedGpu gpu;
  const int64_t n = c.index.numel(), place = n * 2 / 3;
  std::vector<int64_t> good, bad;
  for (int64_t i = 0; i < n; ++i) good.push_back(i * 7 % c.limit);
  bad = good;
  // If two indices are bad, the first is reported.
  bad[static_cast<size_t>(place)] = c.limit + 2;
  bad[static_cast<size_t>(n - 1)] = -1000;
  const Tensor x = ramp(c.x), src = ramp(c.src);
  const Tensor right = Tensor::from_vector(good, c.index), wrong = Tensor::from_vector(bad, c.index);
  const auto fn = [&](const Tensor& x, const Tensor& index, const Tensor& src) {
    NameScope scope("layer");
    return c.fn(x, index, src);
  };
  const Device d = Device::cuda();
  const Tensor gx = x.to(d), gsrc = src.to(d), gright = right.to(d), gwrong = wrong.to(d);
  // Eager calls give the CPU's text. A GPU's error is too late for the prefix that a composite op adds.
  const std::string eager = error_of([&] { fn(x, wrong, src); });
  const std::string on_gpu = placed_error_of([&] { fn(gx, gwrong, gsrc).to_vector<float>(); }, Code::kOutOfRange);
  ASSERT_NE(eager.find(str_cat(" at position ", place, " is out of range")), std::string::npos) << eager;
  const std::string text = on_gpu.substr(0, on_gpu.find("; at "));
  EXPECT_TRUE(eager.ends_with(text)) << eager << "\n" << on_gpu;
  EXPECT_NE(on_gpu.find("index_errors_test.cc:"), std::string::npos) << on_gpu;
  EXPECT_TRUE(on_gpu.ends_with(", in layer")) << on_gpu;
  // Compiled: queued in the first call, replayed in the others.
  {
    auto step = compile(fn), same = compile(fn);
    const std::string want = placed_error_of([&] { same(x, wrong, src); }, Code::kOutOfRange);
    for (int i = 0; i < 4; ++i) {
      if (i > 0) step(gx, gright, gsrc).to_vector<float>();
      if (i != 1) {
        EXPECT_EQ(placed_error_of([&] { step(gx, gwrong, gsrc).to_vector<float>(); }, Code::kOutOfRange), want) << i;
      }
    }
  }
}

// The emulation refuses misaligned accesses of 16 bytes, as a GPU does.
TEST(Misaligned, ArgumentsOfAStep) {
  cuda::testing::ScopedEmulatedGpu gpu;
  const Tensor all = ramp({4200}), table = ramp({7, 65}).to(kBFloat16), b = ramp({64, 8}).to(kBFloat16);
  auto f = [](const Tensor& x, const Tensor& rows, const Tensor& b) {
    return std::vector<Tensor>{x * 2 + 1, sum(x), softmax(rows, -1), matmul(rows, b)};
  };
  auto step = compile(f);
  for (int i = 0; i < 4; ++i) {
    auto call = [&](const auto& fn, Device d) {
      return fn(all.to(d).slice(0, i, i + 4096), table.to(d).slice(1, 1, 65), b.to(d));
    };
    const std::vector<Tensor> want = call(f, Device::cpu()), got = call(step, Device::cuda()),
                              eager = call(f, Device::cuda());
    for (size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(got[k].to_vector<float>(), want[k].to_vector<float>()) << i;
      EXPECT_EQ(eager[k].to_vector<float>(), want[k].to_vector<float>()) << i;
    }
    EXPECT_EQ(got[2].to(kFloat32).to_vector<float>(), eager[2].to(kFloat32).to_vector<float>());
    EXPECT_EQ(got[3].to(kFloat32).to_vector<float>(), eager[3].to(kFloat32).to_vector<float>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, IndexErrors, ::testing::Range(0, static_cast<int>(cases().size())),
                         [](const auto& info) { return cases()[static_cast<size_t>(info.param)].name; });

}  // namespace
}  // namespace weft
