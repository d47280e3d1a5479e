#include "tools/bench/step_model.h"

#include <list>

#include "framework/dispatch/capture.h"
#include "models/nn/transformer/model_flops.h"
#include "tools/bench/model.h"

namespace weft::bench {
namespace {

// Two convolutions beside the identity, or beside a convolution of 1 x 1 where the shape changes.
struct ResidualBlock : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1, norm2;
  std::list<nn::Conv2d> short_conv;
  std::list<nn::BatchNorm2d> short_norm;

  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : conv1(in, out, 3, {.stride = stride, .padding = 1, .bias = false}),
        conv2(out, out, 3, {.padding = 1, .bias = false}),
        norm1(out),
        norm2(out) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    if (stride == 1 && in == out) return;
    register_module("short_conv",
                    short_conv.emplace_back(in, out, 1, nn::ConvOptions{.stride = stride, .bias = false}));
    register_module("short_norm", short_norm.emplace_back(out));
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor y = norm2(conv2(relu(norm1(conv1(x)))));
    return relu(y + (short_conv.empty() ? x : short_norm.front()(short_conv.front()(x))));
  }
};

struct ResNet : nn::Module {
  nn::Conv2d stem{3, 64, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d norm{64};
  std::list<ResidualBlock> blocks;
  nn::Linear head{512, 10};

  ResNet() {
    register_module("stem", stem);
    register_module("norm", norm);
    int64_t channels = 64;
    for (int64_t out : {64, 128, 256, 512})
      for (int k : {0, 1}) {
        const int64_t stride = k == 0 && out > 64 ? 2 : 1;
        register_module("blocks." + std::to_string(blocks.size()), blocks.emplace_back(channels, out, stride));
        channels = out;
      }
    register_module("head", head);
  }
  Tensor operator()(const Tensor& images) const {
    Tensor x = relu(norm(stem(images)));
    for (const ResidualBlock& b : blocks) x = b(x);
    return head(x.mean({2, 3}));
  }
};

constexpr int64_t kTime = 64, kHidden = 512, kVocab = 96;

struct LstmModel : nn::Module {
  nn::Embedding tok{kVocab, kHidden};
  nn::LSTM lstm{kHidden, kHidden};
  nn::Linear head{kHidden, kVocab};
  LstmModel() {
    register_module("tok", tok);
    register_module("lstm", lstm);
    register_module("head", head);
  }
  Tensor operator()(const Tensor& tokens) const { return head(lstm(tok(tokens)).output); }
};

}  // namespace

double StepModel::step_flops() const {
  const auto [x, y] = batch();
  const Ref<Graph> forward =
      capture_graph([this](std::span<const Tensor> in) { return std::vector{loss(in[0], in[1], kFloat32)}; },
                    std::vector{x.type(), y.type()});
  return nn::training_flops(*forward);
}

StepModel make_step_model(const std::string& name) {
  StepModel m;
  if (name == "resnet") {
    const auto net = std::make_shared<ResNet>();
    m.module = net;
    m.items = 64;
    m.loss = [net](const Tensor& x, const Tensor& y, DType dtype) { return cross_entropy((*net)(x.to(dtype)), y); };
    m.batch = [] { return std::pair{randn({64, 3, 32, 32}), randint(0, 10, {64})}; };
  } else if (name == "lstm") {
    const auto net = std::make_shared<LstmModel>();
    m.module = net;
    m.items = kTime * 32;
    m.loss = [net](const Tensor& x, const Tensor& y, DType dtype) {
      WEFT_CHECK(dtype == kFloat32, "lstm: activations are ", dtype, "; need f32");
      return cross_entropy((*net)(x), y);
    };
    m.batch = [] { return std::pair{randint(0, kVocab, {kTime, 32}), randint(0, kVocab, {kTime, 32})}; };
  } else {
    const Decoder decoder = make_decoder(name);
    m.module = decoder.model;
    m.items = decoder.batch * decoder.model->context();
    m.loss = [net = decoder.model](const Tensor& x, const Tensor& y, DType dtype) {
      net->set_compute_dtype(dtype);
      return net->loss(x, y).loss;
    };
    m.batch = [decoder] {
      Tensor x = decoder.tokens();
      return std::pair{x, decoder.tokens()};
    };
  }
  return m;
}

}  // namespace weft::bench
