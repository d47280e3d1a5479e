// The warning about trainable parameters that a training step reads but does not train.
#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/core/core.h"

namespace weft {
namespace {

std::string stderr_of(const std::function<void()>& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

struct Net {
  Parameter body{ones({3, 3}), "body"}, head{ones({3, 2}), "head"};
  Parameter unnamed{ones({2})};
  Tensor with_head(const Tensor& x) const {
    const NameScope scope("classifier");
    return matmul(x, head);
  }
  Tensor loss(const Tensor& x) const {
    const Tensor h = with_head(matmul(x, body));
    return sum(h + unnamed);
  }
};

TEST(Untrained, AreNamedOnceAtCapture) {
  Net net;
  auto step = compile([&](Tensor x) {
    const Tensor loss = net.loss(x);
    const std::vector<Tensor> g = grad(loss, std::vector<Parameter>{net.body});
    net.body.set(net.body - 0.1 * g[0]);
    return loss;
  });
  const std::string text = stderr_of([&] { step(ones({4, 3})); });
  EXPECT_EQ(text.find("weft: compile: the loss of the step depends on 2 trainable parameters of which it takes no "
                      "gradient: 'head' f32[3, 2] at "),
            0u)
      << text;
  EXPECT_NE(text.find(", one without a name f32[2] at "), std::string::npos) << text;
  EXPECT_NE(text.find("untrained_test.cc:"), std::string::npos) << text;
  EXPECT_NE(text.find(", in classifier, one"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(stderr_of([&] { step(ones({4, 3})); }), "");
}

TEST(Untrained, NothingIsSaidWithoutCause) {
  Net net;
  std::vector<std::shared_ptr<void>> kept;  // compiled functions that are dropped cause another warning
  const auto run = [&](const std::function<Tensor(Tensor)>& fn) {
    net = Net();  // no gradient of its parameters was taken
    auto step = std::make_shared<decltype(compile(fn))>(compile(fn));
    kept.push_back(step);
    return stderr_of([&] { (*step)(ones({4, 3})); });
  };
  EXPECT_EQ(run([&](const Tensor& x) { return net.loss(x); }), "");  // no training
  EXPECT_EQ(run([&](const Tensor& x) {
              const Tensor loss = net.loss(x);
              grad(loss, std::vector<Parameter>{net.body, net.head, net.unnamed});
              return loss;
            }),
            "");
  EXPECT_EQ(run([&](const Tensor& x) {  // written without a gradient, like an average of weights
              const Tensor loss = net.loss(x);
              const std::vector<Tensor> g = grad(loss, std::vector<Parameter>{net.body, net.head});
              net.body.set(net.body - g[0]);
              net.unnamed.set(net.unnamed * 0.5);
              return loss + sum(g[1]);
            }),
            "");
  // The two steps of a GAN: each trains its half.
  const Net other;
  const auto half = [&](const Parameter& p) {
    return run([&, p](const Tensor& x) {
      const Tensor loss = matmul(matmul(x, other.body), other.head).sum();
      return loss + sum(grad(loss, std::vector<Parameter>{p})[0]);
    });
  };
  EXPECT_NE(half(other.body), "");  // nothing trains the head
  EXPECT_EQ(half(other.head), "");  // a step trains the body
  EXPECT_EQ(half(other.body), "");
  other.head.set(other.head.value() * 2.0);
  EXPECT_EQ(half(other.body), "");
  // A teacher: read under NoGrad, or detached.
  EXPECT_EQ(run([&](const Tensor& x) {
              Tensor target;
              {
                const NoGrad guard;
                target = matmul(x, net.head);
              }
              const Tensor loss = sum(matmul(x, net.body)) * sum(target) + sum(net.unnamed.value().detach());
              return loss + sum(grad(loss, std::vector<Parameter>{net.body})[0]);
            }),
            "");
  EXPECT_EQ(run([&](const Tensor& x) {  // in the step, and not in the loss that is trained
              const Tensor other = net.loss(x), loss = sum(matmul(x, net.body));
              return other + sum(grad(loss, std::vector<Parameter>{net.body})[0]);
            }),
            "");
  EXPECT_EQ(run([&](const Tensor& x) {  // the gradient of the input trains nothing
              const Tensor at = x.requires_grad();
              return grad(net.loss(at), {at})[0];
            }),
            "");
  EXPECT_EQ(run([&](const Tensor& x) {
              net.head.requires_grad(false);
              net.unnamed.requires_grad(false);
              const Tensor loss = net.loss(x);
              return loss + sum(grad(loss, std::vector<Parameter>{net.body})[0]);
            }),
            "");
}

}  // namespace
}  // namespace weft
