// Cells that one step both writes and reads.
#include <gtest/gtest.h>

#include "compiler/exec/compile.h"
#include "framework/autodiff/grad.h"
#include "ops/core/pointwise.h"

namespace weft {
namespace {

TEST(Cell, GradientsStopAtWhatACellWasSetTo) {
  auto run = [](bool enabled) {
    Parameter p(Tensor::from_vector<double>({3}, {}));
    auto step = compile(
        [&] {
          Tensor x = p.value();
          p.set(x * x);
          Tensor now = p.value();
          Tensor loss = now * now * x;  // only the last factor is the old value
          return std::vector<Tensor>{grad(loss, {x})[0], grad(loss, {now})[0]};
        },
        {.enabled = enabled});
    std::vector<Tensor> g = step();
    return std::vector<double>{g[0].item<double>(), g[1].item<double>(), p.value().item<double>()};
  };
  EXPECT_EQ(run(false), (std::vector<double>{81, 54, 9}));
  EXPECT_EQ(run(true), run(false));
}

}  // namespace
}  // namespace weft
