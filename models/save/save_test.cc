#include "models/save/save.h"

#include <cstring>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "framework/testing/values.h"
#include "models/nn/layers/linear.h"
#include "models/nn/layers/norm.h"
#include "models/optim/ema.h"
#include "models/optim/grad_scaler.h"
#include "models/optim/optimizers/adamw.h"
#include "models/optim/scheduler.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::expect_error;
using testing::same_bits;

std::string path_of(const char* name) { return ::testing::TempDir() + "/" + name; }

struct Net : nn::Module {
  nn::Linear a{4, 8}, b{8, 2};
  nn::LayerNorm norm{{8}};
  Buffer count{zeros({}, {.dtype = kInt64})};
  Net() {
    register_module("a", a);
    register_module("b", b);
    register_module("norm", norm);
    register_buffer("count", count);
  }
  Tensor operator()(const Tensor& x) const { return b(norm(relu(a(x)))); }
};

TEST(Save, TensorsComeBackToTheBit) {
  testing::Random random(1);
  nn::StateDict values;
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{2, 3}, Shape{1, 2, 1, 5}}) {
      const Tensor x = Tensor::empty({dtype, Device::cpu(), shape});
      auto* bytes = x.view_for_kernel().as<uint8_t>();  // any bits: NaNs, denormals
      for (int64_t i = 0; i < x.type().nbytes(); ++i)
        bytes[i] = static_cast<uint8_t>(dtype == kBool ? random.bits() % 2 : random.bits());
      values[str_cat(dtype, shape)] = x;
    }
  }
  values["turned"] = transpose(arange(6).view({2, 3}), 0, 1);  // not contiguous
  values["broadcast"] = expand(ones({1}), {4});
  const std::string path = path_of("all.safetensors");
  save(values, path);
  const nn::StateDict back = load(path);
  ASSERT_EQ(back.size(), values.size());
  for (const auto& [name, value] : values) {
    const Tensor& got = back.at(name);
    ASSERT_EQ(got.type(), value.type()) << name;
    const Tensor want = value.contiguous();
    EXPECT_EQ(0, value.numel() == 0 ? 0
                                    : std::memcmp(got.view_for_kernel().data, want.view_for_kernel().data,
                                                  static_cast<size_t>(got.type().nbytes())))
        << name;
  }
  save(nn::StateDict{}, path);  // replaces
  EXPECT_TRUE(load(path).empty());
  Tensor one;
  expect_error([&] { load(one, path); }, path + ": has 0 tensors; need one, or load(path)[name]");
  save(arange(3), path);
  load(one, path);
  EXPECT_TRUE(same_bits(one, arange(3)));
}

TEST(Save, ModulesOptimisersAndGeneratorsResumeToTheBit) {
  const std::string folder = path_of("resume");
  io::make_folders(folder);
  auto steps = [](Net& net, optim::AdamW& opt, int n) {
    Tensor loss;
    for (int i = 0; i < n; ++i) {
      loss = mse_loss(net(randn({3, 4})), randn({3, 2}));
      opt.minimize(loss);
      net.count.set(net.count.value() + 1);
      advance_random_step();
    }
    return loss;
  };
  manual_seed(7);
  Net net;
  optim::AdamW opt(net.parameters());
  steps(net, opt, 2);
  save(net, folder + "/model.safetensors");
  save(opt, folder + "/opt.safetensors");
  save(default_generator(), folder + "/random.safetensors");
  const Tensor want = steps(net, opt, 2);

  manual_seed(99);
  Net other;
  optim::AdamW other_opt(other.parameters());
  load(other, folder + "/model.safetensors");
  load(other_opt, folder + "/opt.safetensors");
  load(default_generator(), folder + "/random.safetensors");
  const Tensor got = steps(other, other_opt, 2);
  EXPECT_TRUE(same_bits(got, want));
  for (const auto& [name, value] : net.state_dict()) EXPECT_TRUE(same_bits(other.state_dict().at(name), value)) << name;
  EXPECT_EQ(load(folder).size(), net.state_dict().size());  // the folder's model.safetensors
}

// The parts of a run that are no modules and no optimisers.
struct WholeRun {
  Net net;
  optim::AdamW opt{net.parameters()};
  optim::Scheduler warmup{opt, optim::CosineWarmup{.base = 0.5, .warmup = 3, .total = 9}};
  optim::ReduceLROnPlateau plateau{opt, {.factor = 0.5, .patience = 1}};
  optim::GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
  optim::EMA ema{net, 0.75};
  std::vector<double> rates;

  void steps(int begin, int end) {
    for (int i = begin; i < end; ++i) {
      opt.minimize(mse_loss(net(full({3, 4}, 0.25 * i)), ones({3, 2})));
      ema.update();
      scaler.update(full({}, i != 3, {.dtype = kBool}));
      i < 6 ? warmup.step() : plateau.step(1.0);  // the plateau begins with the rate of the last warm-up step
      rates.push_back(opt.lr.value().item<double>());
    }
  }
  void write(const std::string& folder) const {
    io::make_folders(folder);
    save(net, folder + "/model.safetensors");
    save(opt, folder + "/opt.safetensors");
    save(warmup, folder + "/warmup.safetensors");
    save(plateau, folder + "/plateau.safetensors");
    save(scaler, folder + "/scaler.safetensors");
    save(ema, folder + "/ema.safetensors");
  }
  void read(const std::string& folder, bool on_plateau) {
    load(net, folder + "/model.safetensors");
    load(opt, folder + "/opt.safetensors");
    load(warmup, folder + "/warmup.safetensors");
    if (on_plateau) load(plateau, folder + "/plateau.safetensors");  // it sets the rate, too
    load(scaler, folder + "/scaler.safetensors");
    load(ema, folder + "/ema.safetensors");
  }
};

TEST(Save, SchedulersScalersAndMeansResumeToTheBit) {
  WholeRun whole;
  whole.steps(0, 12);
  for (const int at : {2, 5, 9}) {
    const std::string folder = path_of("schedule");
    WholeRun before;
    before.steps(0, at);
    before.write(folder);
    WholeRun after;
    after.read(folder, at > 6);
    after.steps(at, 12);
    before.steps(at, 12);
    EXPECT_EQ(after.rates, std::vector<double>(whole.rates.begin() + at, whole.rates.end())) << at;
    EXPECT_EQ(before.rates, whole.rates);
    for (const auto& [name, value] : before.net.state_dict())
      EXPECT_TRUE(same_bits(after.net.state_dict().at(name), value)) << name;
    for (const auto& [name, value] : before.ema.state_dict())
      EXPECT_TRUE(same_bits(after.ema.state_dict().at(name), value)) << name;
    EXPECT_EQ(after.scaler.get_scale(), before.scaler.get_scale());
    EXPECT_NE(after.scaler.get_scale(), 1024);
    EXPECT_EQ(after.warmup.last_epoch(), 6);
  }
  // Without its state, a schedule begins anew.
  WholeRun anew;
  load(anew.opt, path_of("schedule") + "/opt.safetensors");
  anew.steps(2, 3);
  EXPECT_NE(anew.rates[0], whole.rates[2]);
  expect_error([&] { load(anew.warmup, path_of("schedule") + "/plateau.safetensors"); },
               path_of("schedule") + "/plateau.safetensors: load_state_dict: Scheduler: 'last_epoch' is missing");
  const std::string placed =
      testing::placed_error_of([&] { load(anew.scaler, path_of("schedule") + "/warmup.safetensors"); });
  EXPECT_NE(placed.find("/warmup.safetensors: load_state_dict: GradScaler state: 'loss_scale' is missing"), placed.npos)
      << placed;
  EXPECT_NE(placed.find("; at models/save/save_test.cc:"), placed.npos) << placed;
}

TEST(Save, ErrorsNameTheFileAndWhatDiffers) {
  const std::string path = path_of("net.safetensors");
  Net net;
  save(net, path);
  nn::StateDict values = load(path);
  values["a.wait"] = values.at("a.weight");
  values.erase("a.weight");
  values["b.bias"] = ones({3});
  const std::string wrong = path_of("wrong.safetensors");
  save(values, wrong);
  const Tensor before = net.b.bias.value();
  expect_error([&] { load(net, wrong); },
               wrong +
                   ": load_state_dict: 1 missing: 'a.weight' (nearest there: 'a.wait'); 1 unexpected: 'a.wait' "
                   "(nearest there: 'a.weight'); 'b.bias' has shape [3], need [2]");
  EXPECT_TRUE(same_bits(net.b.bias.value(), before));
  values["b.bias"] = ones({2});
  save(values, wrong);
  load(net, wrong, /*strict=*/false);
  EXPECT_TRUE(same_bits(net.b.bias.value(), ones({2})));
  const std::string placed = testing::placed_error_of([&] { load(net, path_of("none.safetensors")); });
  EXPECT_NE(placed.find("none.safetensors"), placed.npos) << placed;
  EXPECT_NE(placed.find("; at models/save/save_test.cc:"), placed.npos) << placed;
  expect_error([&] { load(default_generator(), path); },
               path + ": is not the state of a generator; need the tensors 'seed', 'step' and 'outside', each i64[]");
  optim::AdamW opt(net.parameters());
  expect_error([&] { load(opt, path); }, path + ": load_state_dict: optimiser state: 'opt.lr' is missing");
  expect_error([&] { save(nn::StateDict{{"x", Tensor()}}, path); }, "save: the tensor 'x' has no value");
  expect_error([&] { save(nn::StateDict{{"caf\xE9", ones({1})}}, path); }, "of a tensor is not UTF-8");
  EXPECT_NE(error_of([&] { save(net, "/nowhere/at/all.safetensors"); }).find("/nowhere/at/all"), std::string::npos);
  expect_error(
      [&] {
        capture(
            [&](Tensor x) {
              save(net, path);
              return x;
            },
            ones({1}));
      },
      "save: called inside a compiled function");
  expect_error(
      [&] {
        capture(
            [&](Tensor x) {
              load(net, path);
              return x;
            },
            ones({1}));
      },
      "load: called inside a compiled function");
}

}  // namespace
}  // namespace weft
