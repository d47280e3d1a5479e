// use_all FOLDER: uses the components weft, dist, data, train and onnx in one program, and exports a step to FOLDER.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "compiler/aot/export.h"
#include "compiler/onnx/export.h"
#include "distributed/distributed.h"
#include "models/data/readers/image.h"
#include "models/data/tokenizer.h"
#include "models/gpt/config.h"
#include "models/train/checkpoint.h"
#include "models/train/trainer.h"
#include "weft.h"

namespace {

using namespace weft;

void check(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(what);
  std::printf("%s: ok\n", what);
}

struct Training {
  nn::Linear model{4, 2};
  optim::AdamW opt{model.parameters(), {.lr = 1e-2}};
  Tensor operator()(Tensor x, Tensor y) {
    Tensor loss = mse_loss(model(x), y);
    opt.minimize(loss);
    return loss;
  }
};

Tensor input() { return arange(32).to(kFloat32).reshape({8, 4}) / 32; }
Tensor target() { return ones({8, 2}); }

template <class Make>
std::vector<float> losses(Make make) {
  manual_seed(1);
  Training training;
  auto step = make([&](Tensor x, Tensor y) { return training(x, y); });
  std::vector<float> out;
  for (int i = 0; i < 3; ++i) out.push_back(step(input(), target()).template item<float>());
  return out;
}

// The losses of a run of `steps` steps, which continues from the newest checkpoint in `folder` and leaves one there.
std::vector<float> resumed_losses(const std::string& folder, int64_t steps) {
  manual_seed(1);
  Training training;
  train::TrainState state;
  if (const std::string newest = train::latest_checkpoint(folder); !newest.empty()) {
    state = train::read_state(newest);
    train::load_cells(train::open_tensors(newest, "model", state), training.model.named_cells());
    train::load_cells(train::open_tensors(newest, "optimizer", state), training.opt.named_cells());
  }
  auto step = compile([&](Tensor x, Tensor y) { return training(x, y); });
  std::vector<float> out;
  for (; state.step < steps; ++state.step) out.push_back(step(input(), target()).item<float>());
  train::save_checkpoint(folder, state, training.model.named_cells(), training.opt.named_cells(), /*keep=*/1);
  return out;
}

void check_checkpoints(const std::string& folder, const std::vector<float>& whole) {
  std::filesystem::remove_all(folder);
  std::vector<float> parts = resumed_losses(folder, 2);
  const std::vector<float> rest = resumed_losses(folder, 3);
  parts.insert(parts.end(), rest.begin(), rest.end());
  check(parts == whole, "train: a loop of its own resumes with equal bits");
}

void check_onnx(const std::string& path) {
  const nn::Linear model(4, 2);
  model.named_cells();
  const auto forward = compile([&](Tensor x) { return model(x); });
  forward.prepare(input());
  onnx_export(forward, path);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::vector<float> weights = model.weight.value().to_vector<float>();
  const std::string raw(reinterpret_cast<const char*>(weights.data()), weights.size() * sizeof(float));
  check(bytes.find(raw) != std::string::npos, "onnx: a file with the weights");
}

void use_all(const std::string& folder) {
  const auto one = losses([](auto fn) { return compile(fn); });
  const auto two = losses([](auto fn) { return dist::compile(fn, {.mesh = dist::Mesh({{"dp", 2}})}); });
  for (size_t i = 0; i < one.size(); ++i) check(std::abs(one[i] - two[i]) < 1e-5, "dist: the loss of one device");

  check_checkpoints(folder + "/own_checkpoints", one);
  check_onnx(folder + "/model.onnx");

  // One library catches an error that another library throws, by its type.
  bool caught = false;
  try {
    data::decode_image(std::as_bytes(std::span("not a picture")));
  } catch (const Error& e) {
    caught = true;
  }
  check(caught, "data: an error of weft");

  train::TrainOptions options;
  options.config = "gpt_tiny";
  options.data = "synthetic";
  options.steps = 2;
  options.batch_size = 1;
  options.seq_len = 4;
  options.checkpoint_every = "0";
  options.checkpoint_dir = folder + "/checkpoints";
  std::filesystem::remove_all(options.checkpoint_dir);
  check(train::train(gpt::family(), options) == 0, "train: two steps of GPT");

  Training training;
  auto step = compile([&](Tensor x, Tensor y) { return training(x, y); });
  step.prepare(input(), target());
  aot_export(step, "exported_step", {.folder = folder});
  std::ofstream(folder + "/exported_step.txt") << std::hexfloat << step(input(), target()).item<float>() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    use_all(argc > 1 ? argv[1] : ".");
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "use_all: %s\n", e.what()), 1;
  }
}
