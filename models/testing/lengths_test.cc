// No recompilation surprises: kernels know no extents, so a training step meets new sequence lengths, batch sizes and
// numbers of rows with the kernels that it has.
#include <gtest/gtest.h>

#include "models/gpt/config.h"
#include "weft.h"

namespace weft {
namespace {

TEST(Lengths, TwoHundredLengthsAreCompiledOnce) {
  manual_seed(1);
  nn::ConfigMap config = gpt::family().preset("gpt_tiny");
  for (const auto& [field, text] : nn::ConfigMap{
           {"vocab", "64"}, {"context", "300"}, {"layers", "2"}, {"heads", "2"}, {"dim", "32"}, {"ffn", "64"}})
    config[field] = text;
  const auto model = gpt::family().make(config);
  optim::AdamW opt(model->parameters(), {.lr = 1e-3});
  auto step = compile([&](Tensor x, Tensor y) {
    Tensor loss = model->loss(x, y).loss;
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });
  auto run = [&](int64_t batch, int64_t length) {
    const Tensor text = randint(0, 64, {batch, length + 1});
    step(text.slice(1, 0, length).contiguous(), text.slice(1, 1, length + 1).contiguous());
  };
  run(2, 24);
  const CompileStats first = step.stats();
  EXPECT_EQ(first.captures, 1);
  EXPECT_GT(first.kernels, 0);
  for (int64_t length = 25; length < 224; ++length) run(2, length);
  const CompileStats last = step.stats();
  EXPECT_EQ(last.captures, 200);
  EXPECT_EQ(last.compilations, first.compilations) << "kernels compiled for lengths after the first";
  run(3, 224);
  run(16, 20);
  EXPECT_EQ(step.stats().compilations, first.compilations) << "kernels compiled for batch sizes";
}

TEST(Lengths, RowsThatDependOnTheData) {
  manual_seed(2);
  nn::Linear up(16, 32), down(32, 4);
  auto step = compile([&](Tensor x, Tensor y) { return cross_entropy(down(gelu(up(x))), y); });
  const Tensor all = randn({500, 16}), classes = randint(0, 4, {500});
  int64_t compiled = -1;
  for (int64_t keep : {40, 41, 63, 64, 65, 100, 333, 500}) {  // rows that a filter let through
    step(all.slice(0, 0, keep).contiguous(), classes.slice(0, 0, keep).contiguous());
    if (compiled < 0) compiled = step.stats().compilations;
  }
  EXPECT_EQ(step.stats().compilations, compiled);
  EXPECT_EQ(step.stats().captures, 8);
}

}  // namespace
}  // namespace weft
