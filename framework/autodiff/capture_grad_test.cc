// Tests grad() inside capture: one structural node, expanded into the same arithmetic as the tape's.
#include <functional>

#include "framework/autodiff/grad.h"
#include "framework/dispatch/interpreter.h"
#include "framework/ir/rewrite.h"
#include "framework/testing/gradcheck.h"
#include "ops/all_ops.h"
#include "ops/core/creation.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"
#include "ops/core/products/dot.h"
#include "ops/core/reductions/reduce.h"

namespace weft::testing {
namespace {

int count(const Graph& g, const OpDef& op) {
  int n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op == &op;
  return n;
}

Tensor scalar(double v) { return Tensor::from_vector<double>({v}, {}); }

// Runs fn eagerly; captured and interpreted; and captured, expanded and interpreted. All three give the same bits.
std::vector<Tensor> three_ways(const TensorFn& fn, const std::vector<Tensor>& in) {
  std::vector<TensorType> types;
  for (const Tensor& t : in) types.push_back(t.type());
  std::vector<Tensor> eager = fn(in);
  Ref<Graph> g = capture_graph(fn, types);
  verify(*g);
  Ref<Graph> joint = expand_grad(*g);
  verify(*joint);
  EXPECT_EQ(count(*joint, grad_op), 0);
  EXPECT_EQ(count(*joint, checkpoint_op) + count(*joint, custom_grad_op), 0);
  EXPECT_EQ(joint->stage, "joint");
  EXPECT_TRUE(structurally_equal(*parse_graph(joint->to_string(), op_table()), *joint));
  std::vector<Tensor> plain = interpret(*g, in), expanded = interpret(*joint, in);
  for (size_t i = 0; i < eager.size(); ++i) {
    EXPECT_TRUE(same_bits(plain[i], eager[i])) << "interpreted, result " << i;
    EXPECT_TRUE(same_bits(expanded[i], eager[i])) << "expanded, result " << i;
  }
  return expanded;
}

TEST(CaptureGrad, IsOneNode) {
  Graph g = capture(
      [](Tensor x) {
        x = x.requires_grad();
        return grad(sum(exp(x) * x), {x})[0];
      },
      scalar(1));
  EXPECT_EQ(count(g, grad_op), 1);
}

TEST(CaptureGrad, EqualsTheTape) {
  Random random(1);
  std::vector<Tensor> in{random_tensor(kFloat32, {5, 7}, random), random_tensor(kFloat32, {7, 3}, random)};
  three_ways(
      [](std::span<const Tensor> a) {
        Tensor x = a[0].requires_grad(), w = a[1].requires_grad();
        Tensor y = tanh(matmul(x, w));
        auto g = grad(mean(y * y), {x, w});
        return std::vector<Tensor>{g[0], g[1], y};
      },
      in);
}

TEST(CaptureGrad, OfUnusedOperandsIsZero) {
  auto out = three_ways(
      [](std::span<const Tensor> a) {
        Tensor x = a[0].requires_grad(), y = a[1].requires_grad();
        return grad(x * x, {y, x});
      },
      {scalar(3), scalar(4)});
  EXPECT_EQ(out[0].item<double>(), 0);
  EXPECT_EQ(out[1].item<double>(), 6);
}

TEST(CaptureGrad, NoGradAndDetachCut) {
  auto out = three_ways(
      [](std::span<const Tensor> a) {
        Tensor x = a[0].requires_grad(), cut;
        {
          NoGrad guard;
          cut = x * x;
        }
        return std::vector<Tensor>{grad(x * cut, {x})[0], grad(x * (x * x).detach(), {x})[0]};
      },
      {scalar(3)});
  EXPECT_EQ(out[0].item<double>(), 9);
  EXPECT_EQ(out[1].item<double>(), 9);
}

TEST(CaptureGrad, OfGradInnerFirst) {
  auto out = three_ways(
      [](std::span<const Tensor> a) {
        Tensor x = a[0].requires_grad();
        Tensor first = grad(x * x * x * x, {x}, {.create_graph = true})[0];
        Tensor second = grad(first, {x}, {.create_graph = true})[0];
        Tensor third = grad(second * second, {x}, {.create_graph = true})[0];
        return std::vector<Tensor>{first, second, third};
      },
      {scalar(2)});
  EXPECT_EQ(out[0].item<double>(), 32);
  EXPECT_EQ(out[1].item<double>(), 48);
  EXPECT_EQ(out[2].item<double>(), 2 * 48 * 48);
}

TEST(CaptureGrad, AGradientInsideTheLoss) {
  // A gradient penalty: the loss contains the norm of an inner gradient.
  Random random(2);
  TensorFn fn = [](std::span<const Tensor> a) {
    Tensor x = a[0].requires_grad(), w = a[1].requires_grad();
    Tensor inner = grad(sum(tanh(matmul(x, w))), {x}, {.create_graph = true})[0];
    return grad(sum(inner * inner), {w});
  };
  three_ways(fn, {random_tensor(kFloat64, {3, 4}, random), random_tensor(kFloat64, {4, 2}, random)});
}

TEST(CaptureGrad, OfCellsAndOfWhatIsClosedOver) {
  Parameter w(Tensor::from_vector<double>({2, 3}, {2}), "w");
  Tensor scale = Tensor::from_vector<double>({10, 100}, {2});
  Ref<Graph> g =
      capture_graph([&](std::span<const Tensor> a) { return grad(sum(w * a[0] * scale), std::vector<Parameter>{w}); },
                    std::vector<TensorType>{scale.type()});
  EXPECT_EQ(g->cells.size(), 1u);
  EXPECT_EQ(g->captured.size(), 1u);
  Tensor x = Tensor::from_vector<double>({1, 2}, {2});
  EXPECT_EQ(interpret(*expand_grad(*g), {{x}})[0].to_vector<double>(), (std::vector<double>{10, 200}));
}

TEST(CaptureGrad, AfterAWriteIsOfTheNewValue) {
  Parameter w(Tensor::from_vector<double>({2}, {}), "w");
  Ref<Graph> g = capture_graph(
      [&](std::span<const Tensor> a) {
        auto first = grad(w * w, std::vector<Parameter>{w});
        w.set(w - first[0] * a[0]);
        return std::vector<Tensor>{first[0], w.value()};
      },
      std::vector<TensorType>{scalar(0).type()});
  Ref<Graph> joint = expand_grad(*g);
  verify(*joint);
  auto out = interpret(*joint, {{scalar(0.25)}});
  EXPECT_EQ(out[0].item<double>(), 4);
  EXPECT_EQ(out[1].item<double>(), 1);
  EXPECT_EQ(w.value().item<double>(), 1);
}

TEST(CaptureGrad, SharedIntermediatesAndSeeds) {
  Random random(4);
  three_ways(
      [](std::span<const Tensor> a) {
        Tensor x = a[0].requires_grad();
        Tensor y = exp(x), z = y * x;
        auto first = grad(z, {x, y}, {.grad_output = a[1]});
        auto second = grad(sum(z), {y});
        return std::vector<Tensor>{first[0], first[1], second[0]};
      },
      {random_tensor(kFloat32, {6}, random), random_tensor(kFloat32, {6}, random)});
}

// The error of fn, called eagerly; the same call in a capture throws the same.
std::string same_error(const std::function<Tensor(Tensor)>& fn, const Tensor& x = scalar(3)) {
  const std::string eager = placed_error_of([&] { fn(x); });
  EXPECT_EQ(placed_error_of([&] { capture(fn, x); }), eager);
  return eager;
}

TEST(CaptureGrad, RefusesWhatTheTapeRefuses) {
  const char* loss = "grad: the loss does not depend on anything that records";
  const char* operand = "grad: operand 0 (f64[]) does not record";
  const Parameter w(scalar(2), "w");
  const std::vector<Parameter> all{w};
  auto starts = [](const std::string& text, const char* with) {
    EXPECT_EQ(text.find(with), 0u) << text;
    EXPECT_NE(text.find("; at framework/autodiff/capture_grad_test.cc:"), std::string::npos) << text;
  };
  starts(same_error([&](Tensor x) {
           NoGrad guard;
           return grad(x * w, all)[0];
         }),
         loss);
  starts(same_error([&](Tensor x) { return grad((x * w).detach(), all)[0]; }), loss);
  starts(same_error([&](Tensor x) {
           Tensor y;
           {
             NoGrad forward;
             y = x * w;
           }
           return grad(y, all)[0];
         }),
         loss);
  starts(same_error([&](Tensor x) {
           const Tensor y = x * x;
           return grad(y, {x.requires_grad()})[0];
         }),
         loss);
  starts(same_error([&](Tensor x) { return grad(x * w, {x})[0]; }), operand);
  starts(same_error([&](Tensor x) {
           x = x.requires_grad();
           const Tensor y = grad(x * x * x, {x})[0];
           return grad(y, {x})[0];
         }),
         loss);
  starts(same_error([&](Tensor x) {
           x = x.requires_grad();
           return grad(x * x, {x}, {.grad_output = ones({2})})[0];
         }),
         "grad: grad_output has shape [2]; need the loss's []");
}

TEST(CaptureGrad, RecordsAsTheTapeDoes) {
  const Parameter w(scalar(2), "w");
  const std::vector<Parameter> all{w};
  auto out = three_ways(
      [&](std::span<const Tensor> a) {
        Tensor unrecorded;
        {
          NoGrad guard;
          unrecorded = w;  // a constant for grad()
        }
        const Tensor first = grad(unrecorded * w * a[0], all)[0];
        const Tensor x = a[0].requires_grad();
        const Tensor slope = grad(x * x, {x})[0];  // without create_graph: a constant, too
        const Tensor second = grad(slope * slope * x, {x})[0];
        const Tensor same = grad(x * x, {x.requires_grad()})[0];  // the gradient of a value that is recorded already
        EXPECT_TRUE(x.requires_grad_enabled() && (x * x).requires_grad_enabled());
        EXPECT_FALSE(a[0].requires_grad_enabled() || slope.requires_grad_enabled());
        return std::vector<Tensor>{first, second, same};
      },
      {scalar(3)});
  EXPECT_EQ(out[0].item<double>(), 6);
  EXPECT_EQ(out[1].item<double>(), 36);
  EXPECT_EQ(out[2].item<double>(), 6);
}

TEST(CaptureGrad, AReadUnderNoGradIsAConstantBesideWrites) {
  const Parameter w(scalar(2), "w");
  auto constant = [&] {
    NoGrad guard;
    return w.value();
  };
  const TensorFn fn = [&](std::span<const Tensor> a) {
    const Tensor before = constant(), x = w.value();
    w.set(x.detach() * 1.0);
    const Tensor after = constant(), y = w.value();
    w.set(y.detach() * 1.0);
    return std::vector<Tensor>{grad(before * x * a[0], {x})[0], grad(after * y * a[0], {y})[0]};
  };
  const std::vector<Tensor> in{scalar(3)}, eager = fn(in);
  const std::vector<Tensor> captured = interpret(*expand_grad(*capture_graph(fn, {{in[0].type()}})), in);
  for (size_t i : {0, 1}) {
    EXPECT_EQ(eager[i].item<double>(), 6) << i;
    EXPECT_EQ(captured[i].item<double>(), 6) << i;
  }
}

TEST(CaptureGrad, WhatWasComputedOutsideIsAnError) {
  const Parameter w(scalar(2), "w");
  const std::vector<Parameter> all{w};
  const Tensor before = w * w, x = scalar(3).requires_grad(), square = x * x;
  for (const auto& [fn, type] : std::vector<std::pair<std::function<Tensor(Tensor)>, std::string>>{
           {[&](Tensor a) { return grad(before * w * a, all)[0]; }, "f64[]"},
           {[&](Tensor) { return grad(square, {x})[0]; }, "f64[]"}})
    EXPECT_EQ(error_of([&] {
                capture(fn, scalar(1));
              }).find(str_cat("grad: ", type, " was computed from operand 0 outside the captured function")),
              0u);
  // A tensor that was computed outside from a leaf may be an operand of grad().
  const Graph g = capture([&](Tensor a) { return grad(square * a, {square})[0]; }, scalar(1));
  EXPECT_EQ(interpret(*expand_grad(g), {{scalar(5)}})[0].item<double>(), 5);
}

TEST(CaptureGrad, ErrorsAreThrownAtTheUsersLine) {
  auto text = error_of([] {
    capture(
        [](Tensor x) {
          x = x.requires_grad();
          return grad(x * x, {x})[0];
        },
        Tensor::from_vector<double>({1, 2}, {2}));
  });
  EXPECT_NE(text.find("grad: the loss is f64[2]; need one element"), std::string::npos) << text;
}

}  // namespace
}  // namespace weft::testing
