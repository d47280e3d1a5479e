// compile(): programs give the same results in every way of running them.
#include "compiler/exec/compile.h"

#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::expect_same_everywhere;
using testing::Program;
using testing::random_inputs;
using testing::random_parameter;
using testing::same_bits;
using testing::Tensors;

TEST(Compile, MlpTrainsWithTheBitsOfEager) {
  auto make = [] {
    Parameter w1 = random_parameter({8, 16}), b1 = random_parameter({16}), w2 = random_parameter({16, 4});
    std::vector<Parameter> all{w1, b1, w2};
    return Program{{w1, b1, w2}, [=](Tensors in) {
                     Tensor loss = mse_loss(matmul(tanh(matmul(in[0], w1) + b1), w2), in[1]);
                     std::vector<Tensor> g = grad(loss, all);
                     for (size_t i = 0; i < all.size(); ++i) all[i].set(all[i].value() - g[i] * 0.1);
                     return Tensors{loss};
                   }};
  };
  auto r = expect_same_everywhere(make, random_inputs(20, {{5, 8}, {5, 4}}));
  EXPECT_EQ(r.stats.captures, 1);
  EXPECT_EQ(r.stats.calls, 20);
  EXPECT_EQ(r.stats.in_place_writes, 3);
  EXPECT_EQ(r.stats.fresh_writes, 0);
  EXPECT_EQ(r.stats.copies, 0);
}

TEST(Compile, DropoutHasTheSameBits) {
  auto make = [] {
    Parameter w = random_parameter({8, 8});
    return Program{{w}, [=](Tensors in) {
                     Tensor y = dropout(matmul(in[0], w), 0.5) + rand({4, 8});
                     Tensor loss = (y * y).mean();
                     w.set(w.value() - grad(loss, std::vector<Parameter>{w})[0]);
                     return Tensors{loss, y};
                   }};
  };
  auto r = expect_same_everywhere(make, random_inputs(4, {{4, 8}}));
  EXPECT_EQ(r.stats.captures, 1);
  EXPECT_FALSE(same_bits(r.outputs[0][1], r.outputs[1][1]));
}

TEST(Compile, CommitIfLeavesCellsAlone) {
  auto make = [] {
    Parameter w = random_parameter({6});
    return Program{{w}, [=](Tensors in) {
                     Tensor loss = dropout(w * in[0], 0.3).sum();
                     commit_if(loss > 0.0);
                     w.set(w.value() + in[0]);
                     return Tensors{loss};
                   }};
  };
  expect_same_everywhere(make, random_inputs(6, {{6}}));
}

TEST(Compile, SwapsRotationsAndSharedValues) {
  auto make = [] {
    Parameter a = random_parameter({3, 3}), b = random_parameter({3, 3}), c = random_parameter({3, 3}),
              d = random_parameter({3, 3}), e = random_parameter({3, 3});
    return Program{{a, b, c, d, e}, [=](Tensors in) {
                     Tensor x = a, y = b, z = c;
                     a.set(y);
                     b.set(z.transpose(0, 1));
                     c.set(x);
                     Tensor both = in[0] * x;
                     d.set(both);
                     e.set(both);
                     return Tensors{x + y, both};
                   }};
  };
  expect_same_everywhere(make, random_inputs(4, {{3, 3}}));
}

TEST(Compile, OldValuesReadAfterTheNewOneExists) {
  auto make = [] {
    Parameter a = random_parameter({4});
    return Program{{a}, [=](Tensors in) {
                     Tensor old = a;
                     a.set(old * in[0]);
                     Tensor now = a;
                     return Tensors{old + now, old, now, old.slice(0, 1, 3), now.reshape({2, 2})};
                   }};
  };
  expect_same_everywhere(make, random_inputs(3, {{4}}));
}

TEST(Compile, ArgumentsAndTheirViewsAsResultsAndCellValues) {
  auto make = [] {
    Parameter a = random_parameter({2, 3}), b = random_parameter({3, 2});
    return Program{{a, b}, [=](Tensors in) {
                     a.set(in[0]);
                     b.set(in[0].transpose(0, 1));
                     return Tensors{in[0], in[0].slice(0, 0, 1), in[0].transpose(0, 1), in[0]};
                   }};
  };
  auto inputs = random_inputs(3, {{2, 3}});
  auto r = expect_same_everywhere(make, inputs);
  EXPECT_EQ(r.outputs[0][0].impl()->storage.get(), inputs[0][0].impl()->storage.get());
}

TEST(Compile, ViewsSlicesCatAndConstants) {
  auto make = [] {
    Tensor closed = Tensor::from_vector({1, 2, 3, 4}, {4});
    return Program{
        {}, [=](Tensors in) {
          Tensor x = in[0];
          Tensor c = cat({x.slice(0, 1, 3), x.slice(1, 0, 4).t().slice(0, 0, 2)}, 0);
          Tensor m = x.transpose(0, 1) + closed.unsqueeze(1);
          Tensor eye = eq(arange(4).unsqueeze(0), arange(4).unsqueeze(1));
          return Tensors{
              c, m, m.slice(0, 2, 4), where(eye, x, 0.0), c.reshape({-1}), full({2, 2}, 3.5), closed, c.slice(1, 1, 2)};
        }};
  };
  expect_same_everywhere(make, random_inputs(2, {{4, 4}}));
}

TEST(Compile, AnOperandShownInTwoWaysIsNotOverwritten) {
  // Large enough that kernels do not hold the whole operand at once.
  auto make = [] {
    Parameter w = random_parameter({200, 200});
    return Program{{w}, [=](Tensors in) {
                     Tensor y = exp(in[0]);
                     w.set(w.value() * 0.5 + w.value().transpose(0, 1));
                     return Tensors{tanh(y + y.transpose(0, 1)),
                                    y.slice(0, 0, 100).reshape({20000}) * 2.0 + y.slice(0, 100, 200).reshape({20000})};
                   }};
  };
  expect_same_everywhere(make, random_inputs(2, {{200, 200}}));
}

TEST(Compile, CheckpointCustomGradAndNoGrad) {
  auto make = [] {
    Parameter w = random_parameter({5, 5});
    auto square = custom_grad([](Tensor x) { return x * x; }, [](Tensor x, Tensor, Tensor dy) { return dy * x * 3.0; });
    return Program{{w}, [=](Tensors in) {
                     Tensor h = checkpoint([&](Tensor x) { return tanh(matmul(dropout(x, 0.2), w)); }, in[0]);
                     Tensor y = square(h);
                     Tensor scale;
                     {
                       NoGrad guard;
                       scale = y.amax();
                     }
                     Tensor loss = (y * y / scale).sum();
                     w.set(w.value() - grad(loss, std::vector<Parameter>{w})[0] * 1e-3);
                     return Tensors{loss};
                   }};
  };
  expect_same_everywhere(make, random_inputs(3, {{5, 5}}));
}

TEST(Compile, SecondOrder) {
  auto make = [] {
    Parameter w = random_parameter({5, 5});
    return Program{{w}, [=](Tensors in) {
                     Tensor y = tanh(matmul(in[0], w));
                     Tensor loss = (y * y).sum();
                     Tensor g = grad(loss, std::vector<Parameter>{w}, {.create_graph = true})[0];
                     Tensor penalty = (g * g).sum();
                     Tensor gg = grad(penalty, std::vector<Parameter>{w})[0];
                     w.set(w.value() - (g + gg) * 1e-3);
                     return Tensors{loss, penalty};
                   }};
  };
  expect_same_everywhere(make, random_inputs(3, {{5, 5}}));
}

TEST(Compile, InsideCaptureTheCallIsInlined) {
  auto inner = compile([](Tensor x) { return dropout(x, 0.5) + 1.0; });
  auto make = [&] { return Program{{}, [&](Tensors in) { return Tensors{inner(in[0]) * 2.0, inner(in[0])}; }}; };
  expect_same_everywhere(make, random_inputs(3, {{16}}));
  EXPECT_EQ(inner.stats().captures, 0);
}

}  // namespace
}  // namespace weft
