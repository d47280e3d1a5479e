// use_all.cc of commit 0848e293, unchanged below this line: programs that users wrote before 0.2 build until 0.3.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "compiler/aot/export.h"
#include "distributed/distributed.h"
#include "models/data/image.h"
#include "models/data/tokenizer.h"
#include "models/gpt/config.h"
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

void use_all(const std::string& folder) {
  const auto one = losses([](auto fn) { return compile(fn); });
  const auto two = losses([](auto fn) { return dist::compile(fn, {.mesh = dist::Mesh({{"dp", 2}})}); });
  for (size_t i = 0; i < one.size(); ++i) check(std::abs(one[i] - two[i]) < 1e-5, "dist: the loss of one device");

  // An error that one library throws is the type that another one catches.
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
