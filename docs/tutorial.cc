// The program of docs/tutorial.md: a test runs it, and compares the page's blocks with it.
#include <cstdio>
#include <fstream>
#include <iostream>

#include "distributed/distributed.h"
#include "weft.h"
using namespace weft;

struct Classifier : nn::Module {
  nn::Linear in{2, 32}, hidden{32, 32}, head{32, 2};
  nn::Dropout drop{0.1};
  Classifier() {
    register_module("in", in);
    register_module("hidden", hidden);
    register_module("head", head);
    register_module("drop", drop);
  }
  Tensor operator()(const Tensor& x) const { return head(drop(relu(hidden(relu(in(x)))))); }
};

struct Noisy {
  Tensor x, label;
  int64_t size() const { return x.size(0); }
  std::array<Tensor, 2> get(int64_t i, uint64_t seed) const {
    const double shift = static_cast<double>(seed % 1000) / 1e5;
    return {x[i] + shift, label[i]};
  }
};

// Points of a square; points inside a circle are class 1.
void write_files() {
  const Tensor x = rand({1024, 2}) * 2 - 1, inside = ((x * x).sum(1) < 0.6).to(kInt64);
  data::save_npy(x, "points.npy");
  std::ofstream csv("points.csv");
  csv << "x0,x1,label\n";
  for (int64_t i = 0; i < x.size(0); ++i)
    csv << x[i][0].item() << "," << x[i][1].item() << "," << inside[i].item<int>() << "\n";
  std::ofstream idx("digits.idx", std::ios::binary);
  idx << std::string("\0\0\x08\3\0\0\0\1\0\0\0\2\0\0\0\2\1\2\3\4", 20);  // u8 [1, 2, 2]
}

int main() {
  manual_seed(0);
  write_files();

  data::Csv table = data::read_csv("points.csv");             // a tensor for each column
  Tensor x = table.matrix({"x0", "x1"});                      // f32 [rows, 2]
  Tensor label = table["label"];                              // i64 [rows]
  Tensor same_x = data::load_npy("points.npy");               // NumPy's arrays, also .npz
  Tensor digits = data::read_idx("digits.idx").to(kFloat32);  // MNIST's files, also as .gz

  data::TensorDataset train(x.slice(0, 0, 896), label.slice(0, 0, 896));
  data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .drop_last = true});
  data::DataLoader noisy(Noisy{x, label}, {.batch_size = 64, .workers = 2});

  Classifier model;
  optim::AdamW opt(model.parameters(), {.lr = 5e-3});
  auto train_step = [&](Tensor x, Tensor label) {
    Tensor loss = cross_entropy(model(x), label);
    opt.minimize(loss);
    return loss;
  };
  auto step = compile(train_step);
  auto accuracy = compile([&](Tensor x, Tensor label) {
    NoGrad guard;
    return (model(x).argmax(-1) == label).to(kFloat32).mean();
  });

  Tensor test_x = x.slice(0, 896, 1024), test_label = label.slice(0, 896, 1024);
  for (int epoch = 0; epoch < 10; ++epoch) {
    model.train();
    Tensor loss;
    for (auto [batch_x, batch_label] : loader) loss = step(batch_x, batch_label);
    model.eval();
    std::printf("epoch %d  loss %.3f  accuracy %.3f\n", epoch, loss.item(), accuracy(test_x, test_label).item());
  }
  WEFT_CHECK(step.stats().captures == 1, "tutorial: ", step.stats().captures, " captures; need 1");
  WEFT_CHECK(accuracy(test_x, test_label).item() > 0.8, "tutorial: the model has not learned");

  for (auto [batch_x, batch_label] : noisy) step(batch_x, batch_label);
  model.eval();

  save(model, "model.safetensors");
  save(opt, "optimizer.safetensors");

  Classifier again;
  load(again, "model.safetensors");
  again.eval();
  WEFT_CHECK(equal(again(test_x), model(test_x)), "tutorial: the loaded model differs");
  WEFT_CHECK(allclose(same_x, x) && digits.numel() == 4, "tutorial: the files differ");

  Classifier tuned;
  load(tuned, "model.safetensors");
  tuned.freeze();                                        // the old layers stay as they are
  tuned.head = nn::Linear(32, 3);                        // replaces the registered layer; not frozen
  optim::AdamW tuner(tuned.parameters(), {.lr = 1e-2});  // after the replacement
  auto tune = compile([&](Tensor x, Tensor label) {
    Tensor loss = cross_entropy(tuned(x), label);
    tuner.minimize(loss);
    return loss;
  });
  Tensor rings = floor(1.5 * (x * x).sum(1)).clamp(0, 2).to(kInt64);  // three classes
  const double before = tune(x, rings).item();
  for (int i = 0; i < 50; ++i) tune(x, rings);
  WEFT_CHECK(tune(x, rings).item() < before, "tutorial: the new head has not learned");
  WEFT_CHECK(equal(tuned.in.weight.value(), model.in.weight.value()), "tutorial: a frozen layer changed");

  double beta = 0.5;
  auto fixed = compile([&](Tensor x) { return x * beta; }, {.check_capture = 1});
  fixed(ones({2}));
  beta = 0.25;
  std::string error;
  try {
    fixed(ones({2}));
  } catch (const Error& e) {
    std::cout << (error = e.what()) << "\n";
  }
  WEFT_CHECK(error.find("check_capture") != std::string::npos, "tutorial: no error of check_capture");

  auto scaled = compile([](Tensor x, Tensor beta) { return x * beta; });
  scaled(ones({2}), 0.5);
  Tensor y = scaled(ones({2}), 0.25);  // another number, the same capture
  WEFT_CHECK(y.sum().item() == 0.5 && scaled.stats().captures == 1, "tutorial: ", y);

  auto root = compile([](Tensor x) { return (sqrt(x) * 2).sum(); });
  std::cout << root.first_nonfinite(tensor({1.0, -1.0})) << "\n";

  auto round_through = custom_grad([](Tensor x) { return round(x); }, [](Tensor, Tensor, Tensor dy) { return dy; });
  Tensor a = tensor({0.4, 1.6}).requires_grad();
  Tensor da = grad((round_through(a) * a).sum(), {a})[0];  // round(a) + a
  WEFT_CHECK(allclose(da, tensor({0.4, 3.6})), "tutorial: ", da);

  Tensor v = tensor({1.0, -1.0}).requires_grad();
  auto gradients = vmap([&](Tensor example) { return grad(square((example * v).sum()), {v})[0]; });
  Tensor each = gradients(tensor({{1.0, 2.0}, {3.0, 4.0}}));  // [2, 2]
  WEFT_CHECK(allclose(each, tensor({{-2.0, -4.0}, {-6.0, -8.0}})), "tutorial: ", each);

  Tensor m = tensor({{1.0, 2.0}, {3.0, 4.0}});
  Tensor lower = kernel([&](Index i, Index j) { return where(i >= j, m(i, j) - m(j, i), 0.0); }, {2, 2});
  WEFT_CHECK(allclose(lower, tensor({{0.0, 0.0}, {1.0, 0.0}})), "tutorial: ", lower);

  const CustomOp row_range({
      .name = "my.row_range",
      .infer =
          [](const InferCall& c) {
            const TensorType& t = c.in[0];
            WEFT_CHECK(t.shape.size() == 2 && t.dtype == kFloat32, "row_range: got ", t, "; need f32 of two dims");
            return Types{{t.dtype, t.device, Shape{t.shape[0]}}};
          },
      .vjp =
          [](const VjpCall& c) {
            const Tensor &t = c.in[0], dy = c.grad[0].unsqueeze(1);
            return Grads{dy * ((t == t.amax({1}, true)).to(kFloat32) - (t == t.amin({1}, true)).to(kFloat32))};
          },
      .dims = [](const Attrs&, auto in, auto out) { return DimMap::parse("row column? -> row", in, out); },
      .kernel =
          [](const KernelCall& c) {
            const int64_t columns = c.in[0].shape[1];
            parallel_for(c.in[0].shape[0], [&](int64_t row) {
              const float* t = c.in[0].as<float>() + row * columns;
              const auto [least, most] = std::minmax_element(t, t + columns);
              c.out[0].as<float>()[row] = *most - *least;
            });
          },
  });
  Tensor range = row_range({tensor({{1.0, 5.0}, {2.0, 2.5}})});  // 4, 0.5
  WEFT_CHECK(allclose(range, tensor({4.0, 0.5})), "tutorial: ", range);

  auto mesh_step = dist::compile(train_step, {.mesh = dist::Mesh({{"dp", 2}})});
  Tensor loss = mesh_step(x.slice(0, 0, 64), label.slice(0, 0, 64));  // whole batch in, whole loss out
  std::cout << mesh_step.plan().to_string();
  WEFT_CHECK(loss.item() < 1, "tutorial: loss ", loss, " on a mesh");
}
