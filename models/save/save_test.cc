#include "models/save/save.h"

#include <cstring>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "framework/testing/values.h"
#include "models/nn/layers/linear.h"
#include "models/nn/layers/norm.h"
#include "models/optim/optimizers/adamw.h"
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
