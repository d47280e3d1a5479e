// The program of docs/training.md: a test runs it, and compares the page's blocks with it.
#include <cstdio>
#include <filesystem>

#include "compiler/onnx/export.h"
#include "models/train/checkpoint.h"
#include "weft.h"
using namespace weft;

struct Classifier : nn::Module {
  nn::Linear hidden{2, 32}, head{32, 2};
  nn::Dropout drop{0.1};
  Classifier() {
    register_module("hidden", hidden);
    register_module("head", head);
    register_module("drop", drop);
  }
  Tensor operator()(const Tensor& x) const { return head(drop(relu(hidden(x)))); }
};

// Points of a square; points inside a circle are class 1.
data::TensorDataset<2> points() {
  manual_seed(0);
  Tensor x = rand({512, 2}) * 2 - 1;
  return data::TensorDataset(x, ((x * x).sum(1) < 0.6).to(kInt64));
}

void train_in_f16() {
  const auto dataset = points();
  data::DataLoader loader(dataset, {.batch_size = 64, .shuffle = true});
  Classifier model;
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  optim::GradScaler scaler;
  auto step = compile([&](Tensor x, Tensor label) {
    Tensor loss = cross_entropy(model(x.to(kFloat16)), label);  // the loss of 16-bit values is f32
    auto grads = scaler.unscale(grad(scaler.scale(loss), opt.parameters(true)));
    auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
    Tensor ok = logical_and(isfinite(loss), isfinite(norm));
    scaler.update(ok);
    commit_if(ok);  // a step that overflowed writes no cell but the scale
    opt.step(clipped);
    return std::pair(loss, ok);
  });
  double last = 0;
  for (int epoch = 0; epoch < 20; ++epoch)
    for (auto [x, label] : loader) {
      auto [loss, ok] = step(x, label);
      if (!ok.item<bool>()) std::printf("skipped a step; the scale is now %g\n", scaler.get_scale());
      last = loss.item();
    }
  std::printf("f16: loss %.3f\n", last);
  WEFT_CHECK(last < 0.35, "training: loss ", last, "; need half of the first loss, log(2)");

  model.eval();
  auto forward = compile([&](Tensor x) { return model(x); });
  forward.prepare(zeros({64, 2}));  // the shape of the exported input
  onnx_export(forward, "model.onnx", {.inputs = {"x"}, .outputs = {"logits"}});
  model.train();

  // An overflow changes no weight and halves the scale.
  const double scale = scaler.get_scale();
  const Tensor weight = model.head.weight.value();
  auto [loss, ok] = step(full({64, 2}, 1e30), zeros({64}, {.dtype = kInt64}));
  WEFT_CHECK(!ok.item<bool>() && scaler.get_scale() == scale / 2, "training: scale ", scaler.get_scale());
  WEFT_CHECK(equal(model.head.weight.value(), weight), "training: a step that overflowed changed a weight");
}

// The loss of the last of `steps` steps, which begin at the newest checkpoint in `folder`.
double train_to(int64_t steps, const std::string& folder) {
  const auto dataset = points();
  data::DataLoader loader(dataset, {.batch_size = 64, .shuffle = true});
  Classifier model;
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  auto step = compile([&](Tensor x, Tensor label) {
    Tensor loss = cross_entropy(model(x), label);
    opt.minimize(loss);
    return loss;
  });

  train::NamedCells others = opt.named_cells();  // besides the weights, all cells that a step reads
  others.emplace_back("rng.seed", default_generator().seed);
  others.emplace_back("rng.step", default_generator().step);
  train::TrainState state;
  if (const std::string newest = train::latest_checkpoint(folder); !newest.empty()) {
    state = train::read_state(newest);
    train::load_cells(train::open_tensors(newest, "model", state), model.named_cells());
    train::load_cells(train::open_tensors(newest, "optimizer", state), others);
    loader.seek({.epoch = state.step / loader.size(), .batch = state.step % loader.size()});
  }
  double last = 0;
  while (state.step < steps)
    for (auto [x, label] : loader) {
      last = step(x, label).item();
      if (++state.step % 5 == 0) train::save_checkpoint(folder, state, model.named_cells(), others, /*keep=*/3);
      if (state.step == steps) break;
    }
  return last;
}

int main() {
  train_in_f16();
  std::filesystem::remove_all("whole");
  std::filesystem::remove_all("parts");
  const double whole = train_to(25, "whole");
  train_to(10, "parts");  // ends in an epoch of 8 steps
  const double parts = train_to(25, "parts");
  std::printf("own loop: loss %.9g in one run, %.9g in two\n", whole, parts);
  WEFT_CHECK(parts == whole, "training: the resumed run differs");
}
