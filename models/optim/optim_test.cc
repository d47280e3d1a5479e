#include "models/optim/optim.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/testing/compare.h"
#include "ops/core/core.h"

namespace weft::optim {
namespace {

using weft::testing::error_of;

// Every number below comes from this problem in PyTorch 2.15, f64:
//   p = [0.5, -1.25, 2, -0.03125]; for t in 0, 1, 2: p.grad = [0.1, -0.2, 0.3, 0.05] (t + 1) - [0, 0.3, 0, 0.2];
//   opt.step()
const std::vector<double> kStart = {0.5, -1.25, 2.0, -0.03125};
std::vector<double> gradient(int t) {
  return {0.1 * (t + 1), -0.2 * (t + 1) - 0.3, 0.3 * (t + 1), 0.05 * (t + 1) - 0.2};
}

template <class Opt, class Options>
std::vector<double> after_three_steps(const Options& options, DType dtype) {
  Parameter p(Tensor::from_vector<double>(kStart, {4}).to(dtype), "p");
  Opt opt({p}, options);
  for (int t = 0; t < 3; ++t) opt.step({Tensor::from_vector<double>(gradient(t), {4}).to(dtype)});
  EXPECT_EQ(opt.steps.value().template item<int64_t>(), 3);
  return p.value().to_vector<double>();
}

template <class Opt, class Options>
void expect_equals(const Options& options, const std::vector<double>& want) {
  const std::vector<double> wide = after_three_steps<Opt>(options, kFloat64),
                            narrow = after_three_steps<Opt>(options, kFloat32);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(wide[i], want[i], 2e-11);  // `want` has 12 digits
    // Three steps of about ten f32 roundings of numbers up to max(|p|, lr).
    EXPECT_NEAR(narrow[i], want[i], 30 * 0x1p-24 * std::max(std::fabs(want[i]), 0.05));
  }
}

TEST(Optim, EqualsPyTorch) {
  expect_equals<AdamW>(AdamWOptions{.lr = 1e-2, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1},
                       {0.469506114191, -1.21653155995, 1.96501061134, -0.00236812502894});
  expect_equals<AdamW>(AdamWOptions{}, {0.497061846757, -1.24697438456, 1.99701684707, -0.0283851196849});
  expect_equals<SGD>(SGDOptions{.lr = 1e-2}, {0.494, -1.229, 1.982, -0.02825});
  expect_equals<SGD>(SGDOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1},
                     {0.4876931985, -1.20716949375, 1.960276995, -0.0246165359687});
  expect_equals<SGD>(SGDOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
                     {0.481440961711, -1.18676785213, 1.9403053357, -0.0221994498722});
}

TEST(Optim, LionEqualsItsFormula) {
  const LionOptions o{.lr = 0.0078125, .betas = {0.9, 0.99}, .weight_decay = 0.5};
  std::vector<double> p = kStart, m(4);
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 4; ++i) {
      const double g = gradient(t)[i], c = 0.9 * m[i] + 0.1 * g;
      p[i] = p[i] * (1 - o.lr * o.weight_decay) - o.lr * ((c > 0) - (c < 0));
      m[i] = 0.99 * m[i] + 0.01 * g;
    }
  const std::vector<double> got = after_three_steps<Lion>(o, kFloat64);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(got[i], p[i], 1e-14);
}

TEST(Optim, MuonMovesByANearlyOrthogonalMatrix) {
  Parameter p(zeros({3, 2}), "p");
  Muon opt({p}, {.lr = 1, .momentum = 0.5, .nesterov = false});
  opt.step({Tensor::from_vector({3, 1, -2, 4, 0.5, 2}, {3, 2})});
  const Tensor update = p.value() * (1 / std::sqrt(1.5));
  const std::vector<float> gram = matmul(update.t(), update).to_vector<float>();
  // Five iterations take singular values into about [0.7, 1.2]: eigenvalues of the Gram matrix into [0.4, 1.5].
  const double trace = gram[0] + gram[3], det = gram[0] * gram[3] - gram[1] * gram[2],
               root = std::sqrt(trace * trace / 4 - det);
  EXPECT_GT(trace / 2 - root, 0.4);
  EXPECT_LT(trace / 2 + root, 1.5);
  EXPECT_EQ(error_of([] { Muon({Parameter(zeros({3}), "v")}); }),
            "Muon: parameter 'v' has shape [3]; need at least two dims, give others to AdamW");
}

TEST(Optim, GroupsScaleAndDecayApart) {
  Parameter w(ones({2, 2}), "w"), b(ones({2}), "b");
  const std::vector<ParamGroup> groups = decay_groups({b, w}, 0.5);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_TRUE(groups[0].params[0] == w);
  SGD opt({{.params = {w}, .weight_decay = 0.5}, {.params = {b}, .weight_decay = 0, .lr_scale = 0.5}}, {.lr = 0.25});
  opt.step({ones({2, 2}), ones({2})});
  EXPECT_EQ(w.value().to_vector<float>()[0], 1 - 0.25f * 1.5f);
  EXPECT_EQ(b.value().to_vector<float>()[0], 1 - 0.125f);
}

TEST(Optim, FrozenParametersStay) {
  Parameter a(ones({2}), "a"), b(ones({3}), "b");
  SGD opt({a, b}, {.lr = 1});
  a.requires_grad(false);
  opt.step({ones({2}), ones({3})});
  EXPECT_EQ(a.value().to_vector<float>()[0], 1);
  EXPECT_EQ(b.value().to_vector<float>()[0], 0);
  opt.step({ones({3})});  // gradients of parameters(true)
  EXPECT_EQ(a.value().to_vector<float>()[0], 1);
  EXPECT_EQ(b.value().to_vector<float>()[0], -1);
}

TEST(Optim, RefusesWhatDoesNotFit) {
  Parameter a(ones({2}), "a"), b(ones({3}), "b");
  SGD opt({a, b});
  EXPECT_EQ(error_of([&] {
              opt.step({ones({2}), ones({3}), ones({1})});
            }),
            "step: got 3 gradients; need one for each of 2 parameters or of the 2 that are not frozen, in the order of "
            "parameters()");
  EXPECT_EQ(error_of([&] {
              opt.step({ones({3}), ones({2})});
            }),
            "step: gradient 0 has shape [3], parameter 'a' [2]; need gradients in the order of parameters()");
  EXPECT_EQ(error_of([&] { SGD({a, a}); }), "optimiser: parameter 'a' is given twice; need each once");
  const Parameter unnamed(ones({2}));
  EXPECT_EQ(error_of([&] {
              SGD({a, unnamed, unnamed});
            }),
            "optimiser: parameter 2 (without a name) is given twice; need each once");
  EXPECT_EQ(error_of([&] { SGD({a}, {.lr = 1e300}); }), "optimiser: lr is 1e+300; need a finite number >= 0");
  EXPECT_EQ(error_of([&] { AdamW({a}, {.betas = {0.9, 1.5}}); }), "AdamW: betas are 0.9 and 1.5; need 0 <= beta < 1");
}

// decay_groups reorders the model's parameters; both parameters have one shape.
struct TwoOrders {
  Parameter scale{Tensor::from_vector({1, 2}, {2}), "scale"}, w{Tensor::from_vector({3, 4}, {1, 2}), "w"},
      bias{Tensor::from_vector({5, 6}, {2}), "bias"};
  std::vector<Parameter> model{bias, scale, w};
  SGD opt{decay_groups({scale, w, bias}, 0.0), {.lr = 1}};
  Tensor loss() const { return (scale.value() * 10.0).sum() + (w.value() * 100.0).sum() + bias.value().sum(); }
  std::vector<float> first() const {
    return {scale.value().to_vector<float>()[0], w.value().to_vector<float>()[0], bias.value().to_vector<float>()[0]};
  }
};
const std::vector<float> kStepped{1 - 10, 3 - 100, 5 - 1};

TEST(Optim, GradientsFindTheirParameters) {
  TwoOrders any, clipped, scaled, minimized;
  any.opt.step(grad(any.loss(), any.model));
  EXPECT_EQ(any.first(), kStepped);
  clipped.opt.step(clip_grad_norm(grad(clipped.loss(), clipped.model), 1e9).grads);
  EXPECT_EQ(clipped.first(), kStepped);
  const GradScaler scaler;
  scaled.opt.step(scaler.unscale(grad(scaler.scale(scaled.loss()), scaled.model)));
  EXPECT_EQ(scaled.first(), kStepped);
  minimized.opt.minimize(minimized.loss());
  EXPECT_EQ(minimized.first(), kStepped);
  minimized.bias.requires_grad(false);
  minimized.opt.minimize(minimized.loss());
  EXPECT_EQ(minimized.first(), (std::vector<float>{1 - 20, 3 - 200, 5 - 1}));
}

TEST(Optim, GradientsOfOtherParametersAreErrors) {
  TwoOrders t;
  const Parameter other(ones({2}), "other");
  EXPECT_EQ(error_of([&] {
              t.opt.step(grad(t.loss() + other.value().sum(), std::vector{t.w, t.bias, other}));
            }),
            "step: got a gradient of parameter 'other', which this optimiser does not update or got twice; need one "
            "gradient for each of its parameters: grad(loss, opt.parameters(true))");
  EXPECT_EQ(error_of([&] {
              t.opt.step(grad(t.loss(), std::vector{t.w, t.bias}));
            }),
            "step: got no gradient of parameter 'scale'; need one gradient for each parameter that is not frozen: "
            "grad(loss, opt.parameters(true))");
  Gradients fewer = grad(t.loss(), t.model);
  fewer.pop_back();
  EXPECT_EQ(error_of([&] { t.opt.step(fewer); }), "step: got 2 gradients of 3 parameters; need one gradient for each");
  EXPECT_EQ(t.first(), (std::vector<float>{1, 3, 5}));
}

TEST(Optim, StateIsNamedAfterParametersAndLazy) {
  Parameter p(
      TensorType{.shape = {1 << 20, 1 << 20}},
      [] {
        return zeros({1 << 20, 1 << 20});
      },
      "blocks.0.weight");
  AdamW opt({p});
  std::vector<std::string> names;
  for (const auto& [name, cell] : opt.named_cells()) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"opt.lr", "opt.steps", "blocks.0.weight.exp_avg", "blocks.0.weight.exp_avg_sq"}));
  EXPECT_FALSE(opt.named_cells()[2].second.materialised());
}

TEST(Optim, ResumingFromStateIsExact) {
  Parameter a(ones({2}), "a"), b(ones({2}), "a");
  AdamW first({a}), second({b});
  first.set_lr(0.125);
  first.step({Tensor::from_vector({1, -2}, {2})});
  second.load_state_dict(first.state_dict());
  b.set(a.value());
  for (AdamW* opt : {&first, &second}) opt->step({Tensor::from_vector({-3, 5}, {2})});
  EXPECT_EQ(a.value().to_vector<float>(), b.value().to_vector<float>());
  auto state = first.state_dict();
  state["x"] = ones({1});
  state.erase("a.exp_avg");
  EXPECT_EQ(error_of([&] { second.load_state_dict(state); }),
            "load_state_dict: optimiser state: 'a.exp_avg' is missing, 'x' is unexpected");
}

// The rate of f64 parameters has all its digits; f32 parameters get it rounded once.
TEST(Optim, TheRateIsF64) {
  for (const DType dtype : {kFloat64, kFloat32}) {
    const Parameter p(ones({1}, {.dtype = dtype}), "p");
    SGD opt({p}, {.lr = 0.1});
    opt.step({ones({1}, {.dtype = dtype})});
    EXPECT_EQ(p.value().item<double>(), dtype == kFloat64 ? 1 - 0.1 : double{1.0f - 0.1f});
    opt.set_lr(0.3);
    EXPECT_EQ(opt.lr.value().item<double>(), 0.3);
    auto state = opt.state_dict();
    state["opt.lr"] = full({}, 0.1);  // state of a checkpoint with an f32 rate
    opt.load_state_dict(state);
    EXPECT_EQ(opt.lr.value().item<double>(), double{0.1f});
  }
}

TEST(Optim, LoadChecksNumbersAsTheConstructorDoes) {
  const Parameter a(ones({2}), "a");
  SGD opt({a}, {.lr = 0.5, .momentum = 0.5});
  const auto error_with = [&](const std::string& name, const Tensor& value) {
    auto state = opt.state_dict();
    state[name] = value;
    return error_of([&] { opt.load_state_dict(state); });
  };
  const std::string head = "load_state_dict: optimiser state: '";
  for (const double lr : {std::nan(""), -1.0, HUGE_VAL, 1e300})
    EXPECT_EQ(error_with("opt.lr", Tensor::from_vector<double>({lr}, {})),
              str_cat(head, "opt.lr' is ", lr, ", need a finite number >= 0"));
  EXPECT_EQ(error_with("opt.steps", Tensor::from_vector<int64_t>({-3}, {})),
            head + "opt.steps' is -3, need a finite number >= 0");
  EXPECT_EQ(error_with("opt.steps", full({}, 1.5)), head + "opt.steps' is f32, need i64");
  EXPECT_EQ(error_with("opt.lr", ones({2})), head + "opt.lr' has shape [2], need []");
  EXPECT_EQ(error_with("a.momentum", Tensor()), head + "a.momentum' is undefined");
  EXPECT_EQ(opt.lr.value().item<float>(), 0.5f);
  EXPECT_EQ(error_with("opt.lr", full({}, 0.25)), "");
  EXPECT_EQ(opt.lr.value().item<float>(), 0.25f);
}

TEST(Optim, NamesOfStateDoNotDependOnCells) {
  SGD opt({Parameter(ones({2}), "a")}, {.lr = 0.5});
  const auto before = opt.state_dict();
  opt.lr = Buffer(full({}, 0.25));
  opt.steps = Buffer(zeros({}, {.dtype = kInt64}), "mine");
  EXPECT_EQ(opt.state_dict().at("opt.lr").item<float>(), 0.25f);
  opt.load_state_dict(before);
  EXPECT_EQ(opt.lr.value().item<float>(), 0.5f);
  // Parameters of several modules may have one name, and a name may look like one of ours.
  const std::vector<Parameter> same{Parameter(ones({1}), "a"), Parameter(ones({1}), "param2.a"),
                                    Parameter(ones({1}), "a"), Parameter(ones({1}), "a")};
  EXPECT_EQ(AdamW(same).state_dict().size(), 2u + 8u);
  EXPECT_EQ(EMA(same).state_dict().size(), 1u + 4u);
}

TEST(Optim, ACapturedFunctionCannotKeepARateOrMakeAnOptimiser) {
  const Parameter a(ones({2}), "a");
  const SGD opt({a});
  const auto in_capture = [&](const std::function<void()>& fn) {
    return error_of([&] { capture([&](Tensor t) { return fn(), t; }, ones({})); });
  };
  EXPECT_EQ(in_capture([&] { opt.set_lr(0.5); }),
            "set_lr: called inside a compiled function, which would keep this one number; need a call between steps");
  EXPECT_EQ(in_capture([&] { SGD({a}); }),
            "optimiser: made inside a compiled function; make it before the step, which then keeps its state");
  EXPECT_EQ(in_capture([&] { opt.lr.set(opt.lr.value() * 0.5); }), "");
}

TEST(Optim, MinimizeNeedsALossOfItsParameters) {
  const Parameter a(ones({2}), "a"), b(ones({2}), "b"), c(ones({2}), "c");
  SGD opt({a, b}, {.lr = 0.5});
  const std::string none =
      "minimize: the loss depends on none of the 2 parameters of the optimiser, as of 'a'; need a "
      "loss of its model: make the optimiser after replacing a layer, and use no detach() or "
      "NoGrad";
  const auto frozen = [&] {
    const NoGrad guard;
    return a.value() * 2.0;
  };
  const std::vector<std::pair<std::function<Tensor()>, std::string>> cases{
      {[&] { return sum(c.value()); }, none},
      {[&] { return sum(c.value() * a.value().detach()); }, none},
      {[&] { return sum(c.value() * frozen()); }, none},
      {[&] { return sum(c.value() * b.value()); }, ""},  // `a` alone has no gradient
      {[&] { return checkpoint([](const Tensor& x) { return sum(x * x); }, a.value()); }, ""},
  };
  for (const auto& [loss, want] : cases) {
    EXPECT_EQ(error_of([&] { opt.minimize(loss()); }), want);
    EXPECT_EQ(error_of([&] { capture([&](Tensor t) { return opt.minimize(loss()), t; }, ones({})); }), want);
  }
  EXPECT_EQ(opt.steps.value().item<int64_t>(), 2);
  a.set(ones({2}));  // a value that was read before set() is one of the same parameter
  const Tensor loss = sum(a.value());
  a.set(a.value() * 2.0);
  EXPECT_EQ(error_of([&] { opt.minimize(loss); }), "");
  a.requires_grad(false), b.requires_grad(false);
  EXPECT_EQ(error_of([&] { opt.minimize(sum(c.value())); }),
            "minimize: all 2 parameters of the optimiser are frozen; need one or more with requires_grad(true)");
}

TEST(Optim, StateSavesNoTornCell) {
  const AdamW opt({Parameter(ones({2}), "a"), Parameter(ones({3}), "b")});
  for (const auto& [name, cell] : opt.named_cells()) cell.cell().torn = name == "b.exp_avg";
  EXPECT_EQ(error_of([&] { opt.state_dict(); }),
            "state_dict: 1 of 6 cells were torn by a step that failed half-way: 'b.exp_avg'; load a checkpoint or set "
            "them first, or get the values of the others with state_dict(&torn)");
  std::vector<std::string> torn;
  EXPECT_EQ(opt.state_dict(&torn).size(), 5u);
  EXPECT_EQ(torn, std::vector<std::string>{"b.exp_avg"});
}

TEST(Optim, ClipsByTheNormOfAll) {
  auto [clipped, norm] =
      clip_grad_norm({Tensor::from_vector({3, 4, 0}, {3}), Tensor(), Tensor::from_vector({12, 0}, {2})}, 1.0);
  EXPECT_FLOAT_EQ(norm.item<float>(), 13);
  EXPECT_FLOAT_EQ(clipped[0].to_vector<float>()[0], 0.23076921301775288f);
  EXPECT_FALSE(clipped[1].defined());
  EXPECT_FLOAT_EQ(clipped[2].to_vector<float>()[0], 0.9230768520710115f);
  EXPECT_EQ(clip_grad_norm({ones({4})}, 5.0).grads[0].to_vector<float>()[0], 1);
  // The factor is below the least f16.
  const Tensor small = clip_grad_norm({full({4}, 32768, {.dtype = kFloat16})}, 0x1p-10).grads[0];
  EXPECT_EQ(small.to(kFloat32).to_vector<float>(), std::vector<float>(4, 0x1p-11f));
}

TEST(Optim, Schedules) {
  const CosineWarmup cosine(1.0, 10, 110, 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(0), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(9), 1.0);
  EXPECT_DOUBLE_EQ(cosine.at(10), 1.0);
  EXPECT_DOUBLE_EQ(cosine.at(60), 0.55);
  EXPECT_DOUBLE_EQ(cosine.at(110), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(1000), 0.1);
  EXPECT_DOUBLE_EQ((LinearWarmup{2.0, 0, 10, 0.5}.at(5)), 1.5);
  EXPECT_DOUBLE_EQ((ConstantWarmup{2.0, 4}.at(1)), 1.0);
  EXPECT_DOUBLE_EQ((ConstantWarmup{2.0, 4}.at(100)), 2.0);
}

}  // namespace
}  // namespace weft::optim
