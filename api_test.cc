// The public names are a contract: code in the documentation compiles against weft.h alone and behaves as documented.
#include <gtest/gtest.h>

#include <complex>
#include <sstream>

#include "weft.h"

// Names of a program beside `using namespace weft`.
namespace profiler {
constexpr int own = 1;
}
namespace hooks {
constexpr int own = 2;
}
namespace fft {
constexpr int own = 3;
}
struct to_sparse {
  int own = 4;
};
struct Sample {
  int own = 5;
};
struct Window {};
struct Padding {};
struct Trace {};
struct Switch {};
enum class Leaf { kOwn };
using std::complex;

namespace {

using namespace weft;

TEST(Api, LeavesNamesToPrograms) {
  EXPECT_EQ(profiler::own + hooks::own + fft::own + to_sparse().own, 10);
  EXPECT_EQ(Sample().own, 5);
  EXPECT_EQ(sizeof(Window) + sizeof(Padding) + sizeof(Trace) + sizeof(Switch), 4u);
  EXPECT_EQ(Leaf::kOwn, Leaf::kOwn);
  EXPECT_EQ(complex<float>(1, 2).imag(), 2);
  Tensor complex = ones({2});
  EXPECT_EQ(complex.numel(), 2);
}

TEST(Api, TensorsAreValues) {
  weft::manual_seed(0);
  Tensor a = randn({2, 3}, {.dtype = kBFloat16, .device = Device::cpu()});
  Tensor b = matmul(a, a.transpose(0, 1)) + 1.0f;
  EXPECT_EQ(b.shape(), Shape({2, 2}));
  EXPECT_EQ(b.dtype(), kBFloat16);
  EXPECT_EQ(b.device(), Device::cpu());
  EXPECT_EQ(b.dim(), 2);
  EXPECT_EQ(b.numel(), 4);
  Tensor c = Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(c.sum().item<float>(), 10);
  EXPECT_EQ(c.to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(c.data<float>()[3], 4);
  EXPECT_EQ(c.to(kFloat64).dtype(), kFloat64);
  EXPECT_EQ(c[1].to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_EQ(c.slice(1, 0, 1).to_vector<float>(), (std::vector<float>{1, 3}));
  EXPECT_EQ(c.slice(-1, -1, 2).to_vector<float>(), (std::vector<float>{2, 4}));
  float memory[2] = {5, 6};
  bool freed = false;
  {
    Tensor blob = Tensor::from_blob(memory, {2}, kFloat32, [&](void*) { freed = true; });
  }
  EXPECT_TRUE(freed);
  Tensor back = from_dlpack(to_dlpack(c));
  EXPECT_EQ(back.to_vector<float>(), c.to_vector<float>());
  std::ostringstream out;
  out << c;
  EXPECT_NE(out.str().find("[1., 2.]"), std::string::npos) << out.str();
  try {
    EXPECT_EQ(c.to(Device::cuda(0)).to(Device::cpu()).to_vector<float>(), c.to_vector<float>());
  } catch (const Error& e) {  // where there is no GPU
    EXPECT_EQ(e.code(), Code::kUnavailable) << e.what();
  }
  EXPECT_GT(memory_stats().peak, 0);
}

TEST(Api, TypesPrint) {
  std::ostringstream out;
  const Tensor x = zeros({2, 3}, {.dtype = kBFloat16});
  out << x.shape() << " " << x.dtype() << " " << x.device() << " " << x.type() << " " << Device::cuda(1);
  EXPECT_EQ(out.str(), "[2, 3] bf16 cpu bf16[2, 3] cuda:1");
}

TEST(Api, ValuesOfTheUsualIntegerTypes) {
  EXPECT_EQ(Tensor::from_vector<long long>({1, 2}, {2}).dtype(), kInt64);
  static_assert(!HasDType<uint16_t> && !HasDType<size_t> && !HasDType<char>, "from_vector converts all but char");
  const Tensor n = sum(Tensor::from_vector<int64_t>({3, 4}, {2}));
  EXPECT_EQ(n.item<size_t>(), 7u);
  EXPECT_EQ(n.item<long long>(), 7);
  EXPECT_EQ(n.item<int16_t>(), 7);
  EXPECT_EQ(n.item<char>(), 7);
}

TEST(Api, SpellingsOfPyTorch) {
  Tensor x = ones({2});
  const Tensor old = x;
  x += 1;
  x *= x + 1;
  x -= 2.0;
  x /= 2;
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{2, 2}));
  EXPECT_EQ(old.to_vector<float>(), (std::vector<float>{1, 1}));  // x got another value
  EXPECT_TRUE(x.equal(full({2}, 2)) && !x.equal(old));
  EXPECT_EQ(x.sizes(), Shape{2});
  EXPECT_EQ(x.clip(0, 1.5).to_vector<float>(), (std::vector<float>{1.5, 1.5}));
  EXPECT_EQ(randn(2, 3).shape(), (Shape{2, 3}));
  EXPECT_EQ(zeros(2, 3, 4, {.dtype = kFloat64}).type().to_string(), "f64[2, 3, 4]");
  EXPECT_EQ(ones(1, 2, 3, 4).shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(eye(2, {.dtype = kInt64}).to_vector<int>(), (std::vector<int>{1, 0, 0, 1}));
  const std::vector<size_t> sizes{1, 2};
  EXPECT_EQ(Tensor::from_vector(sizes, {2}).type().to_string(), "i64[2]");
  const auto step = compile([](Tensor a) {
    a += 1;
    return a;
  });
  EXPECT_EQ(step(ones({2})).to_vector<float>(), (std::vector<float>{2, 2}));
}

TEST(Api, MasksAsInPyTorch) {
  const Tensor a = Tensor::from_vector<bool>({true, true, false}, {3});
  const Tensor b = Tensor::from_vector<bool>({true, false, false}, {3});
  using V = std::vector<bool>;
  EXPECT_EQ((!a).to_vector<bool>(), (V{false, false, true}));
  EXPECT_EQ((a + b).dtype(), kBool);
  EXPECT_EQ((a + b).to_vector<bool>(), (V{true, true, false}));
  EXPECT_EQ((a * b).to_vector<bool>(), (V{true, false, false}));
  EXPECT_EQ((a + 1).to_vector<int64_t>(), (std::vector<int64_t>{2, 2, 1}));
}

TEST(Api, NamesThatUsersHaveThemselves) {
  const Tensor x = Tensor::from_vector({1, 3}, {2});
  EXPECT_FLOAT_EQ(x.std().item<float>(), std::sqrt(2.f));  // std(x) is ambiguous with namespace std here
  EXPECT_FLOAT_EQ(weft::std(x).item<float>(), std::sqrt(2.f));
  EXPECT_EQ(x.var({0}, 0).item<float>(), 1);
}

TEST(Api, EveryOpOfTheListIsThere) {
  Tensor x = rand({4, 6}) + 0.5, y = rand({4, 6}) + 0.5, i = Tensor::from_vector<int64_t>({0, 2}, {2});
  for (Tensor t : {add(x, y),
                   sub(x, y),
                   mul(x, y),
                   div(x, y),
                   pow(x, y),
                   neg(x),
                   abs(x),
                   exp(x),
                   log(x),
                   log1p(x),
                   sqrt(x),
                   rsqrt(x),
                   sin(x),
                   cos(x),
                   tanh(x),
                   sigmoid(x),
                   erf(x),
                   relu(x),
                   gelu(x, "none"),
                   gelu(x, "tanh"),
                   silu(x),
                   softplus(x),
                   maximum(x, y),
                   minimum(x, y),
                   clamp(x, 0.6, 1.0),
                   where(x > y, x, y),
                   softmax(x, -1),
                   log_softmax(x, -1),
                   cumsum(x, 0),
                   tril(x),
                   triu(x),
                   layer_norm(x, {6}, ones({6}), zeros({6}), 1e-5),
                   rms_norm(x, ones({6}), 1e-5),
                   dropout(x, 0.5, true)})
    EXPECT_EQ(t.shape(), x.shape());
  for (Tensor t : {eq(x, y), ne(x, y), lt(x, y), le(x, y), gt(x, y), ge(x, y), logical_and(x, y), logical_or(x, y),
                   logical_not(x), isfinite(x)})
    EXPECT_EQ(t.dtype(), kBool);
  for (Tensor t : {sum(x), mean(x), amax(x), amin(x), prod(x), var(x), argmax(x), logsumexp(x, {0, 1}), mse_loss(x, y)})
    EXPECT_EQ(t.dim(), 0);
  EXPECT_EQ(topk(x, 3).values.shape(), Shape({4, 3}));
  EXPECT_EQ(sort(x).indices.dtype(), kInt64);
  EXPECT_EQ(reshape(x, {3, -1}).shape(), Shape({3, 8}));
  EXPECT_EQ(x.view({24}).shape(), Shape({24}));
  EXPECT_EQ(permute(x, {1, 0}).shape(), transpose(x, 0, 1).shape());
  EXPECT_EQ(expand(x.unsqueeze(0), {2, 4, 6}).squeeze(0).dim(), 3);
  EXPECT_EQ(flatten(x).shape(), Shape({24}));
  EXPECT_EQ(cat({x, y}, 0).shape(), Shape({8, 6}));
  EXPECT_EQ(stack({x, y}).shape(), Shape({2, 4, 6}));
  EXPECT_EQ(split(x, 2, 1).size(), 3u);
  EXPECT_EQ(chunk(x, 2, 0)[1].shape(), Shape({2, 6}));
  EXPECT_EQ(slice(x, 0, 1, 3).shape(), Shape({2, 6}));
  EXPECT_EQ(pad(x, {1, 1}).shape(), Shape({4, 8}));
  EXPECT_EQ(arange(5).to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(full({2}, 3).to_vector<float>(), (std::vector<float>{3, 3}));
  EXPECT_EQ(one_hot(i, 3).to_vector<int64_t>(), (std::vector<int64_t>{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(index_select(x, 0, i).shape(), Shape({2, 6}));
  EXPECT_EQ(gather(x, 0, zeros({1, 6}, {.dtype = kInt64})).shape(), Shape({1, 6}));
  EXPECT_EQ(scatter_add(x, 0, zeros({1, 6}, {.dtype = kInt64}), ones({1, 6})).shape(), x.shape());
  EXPECT_EQ(embedding(i, x).shape(), Shape({2, 6}));
  EXPECT_EQ(linear(x, rand({3, 6})).shape(), Shape({4, 3}));
  EXPECT_EQ(einsum("ij,kj->ik", x, y).shape(), Shape({4, 4}));
  EXPECT_EQ(bmm(x.unsqueeze(0), y.t().unsqueeze(0)).shape(), Shape({1, 4, 4}));
  Tensor targets = Tensor::from_vector<int64_t>({0, 5, -100, 2}, {4});
  EXPECT_EQ(cross_entropy(x, targets, {.ignore_index = -100, .label_smoothing = 0.1}).dim(), 0);
  EXPECT_EQ(nll_loss(log_softmax(x, -1), targets).dim(), 0);
  EXPECT_EQ(grouped_matmul(x, rand({2, 6, 3}), Tensor::from_vector<int64_t>({0, 1, 4}, {3})).shape(), Shape({4, 3}));
  Tensor q = rand({1, 2, 5, 4});
  EXPECT_EQ(scaled_dot_product_attention(q, q, q, {.is_causal = true}).shape(), q.shape());
}

TEST(Api, ErrorsNameOpShapesAndRule) {
  try {
    matmul(zeros({4, 8}), zeros({9, 2}));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), str_cat("matmul: inner dimensions differ: [4, 8] x [9, 2] (8 != 9); need equal "
                                             "ones; at api_test.cc:",
                                             __LINE__ - 5));
    EXPECT_EQ(e.code(), Code::kInvalidArgument);
  }
}

TEST(Api, Differentiation) {
  Tensor w = ones({2}).requires_grad(), b = ones({2}).requires_grad();
  Tensor loss = sum(w * w * 3.0 + b);
  std::vector<Tensor> g = grad(loss, {w, b});
  EXPECT_EQ(g[0].to_vector<float>(), (std::vector<float>{6, 6}));
  Tensor second = grad(sum(grad(loss, {w}, {.create_graph = true})[0]), {w})[0];
  EXPECT_EQ(second.to_vector<float>(), (std::vector<float>{6, 6}));
  Tensor y = custom_grad([](Tensor x) { return x * 2.0; }, [](Tensor, Tensor, Tensor dy) { return dy * 10.0; })(w);
  EXPECT_EQ(grad(sum(y), {w})[0].to_vector<float>(), (std::vector<float>{10, 10}));
  {
    NoGrad guard;
    EXPECT_FALSE((w * 2.0).requires_grad_enabled());
  }
  EXPECT_EQ(grad(sum(checkpoint([](const Tensor& x) { return x * x; }, w)), {w})[0].to_vector<float>(),
            (std::vector<float>{2, 2}));
}

// A user's type may have any name inside a module.
struct State {
  int steps = 0;
};
struct Counting : nn::Module {
  State state;
  Tensor operator()(const Tensor& x) {
    State next{state.steps + 1};
    state = next;
    return x * static_cast<double>(state.steps);
  }
};

struct Mlp : nn::Module {
  nn::Linear up, down;
  Mlp(int64_t d, int64_t h) : up(d, h), down(h, d) {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor operator()(const Tensor& x) { return down(gelu(up(x))); }
};

TEST(Api, ModulesAndOptimisers) {
  Mlp m(8, 16);
  EXPECT_EQ(m.named_parameters()[0].first, "up.weight");
  EXPECT_EQ(Counting()(ones({1})).item<float>(), 1);
  EXPECT_EQ(m.num_parameters(), 8 * 16 + 16 + 16 * 8 + 8);
  Mlp other(8, 16);
  other.load_state_dict(m.state_dict());
  Tensor x = randn({4, 8});
  EXPECT_EQ(m(x).to_vector<float>(), other(x).to_vector<float>());
  optim::AdamW opt(m.parameters(), {.lr = 3e-4, .betas = {0.9, 0.95}, .eps = 1e-8, .weight_decay = 0.1});
  auto [clipped, norm] = optim::clip_grad_norm(grad(mse_loss(m(x), x), m.parameters()), 1.0);
  EXPECT_GT(norm.item<float>(), 0);
  opt.step(clipped);
  EXPECT_NE(m(x).to_vector<float>(), other(x).to_vector<float>());
  m.to(kBFloat16);
  EXPECT_EQ(m.parameters()[0].dtype(), kBFloat16);
}

TEST(Api, CaptureAndCompile) {
  Mlp model(8, 16);
  optim::SGD opt(model.parameters(), {.lr = 0.1});
  auto step = compile([&](Tensor x, Tensor y) {
    Tensor loss = mse_loss(model(x), y);
    opt.minimize(loss);
    return loss;
  });
  Tensor x = randn({4, 8}), y = randn({4, 8});
  float first = step(x, y).item<float>(), last = first;
  for (int i = 0; i < 20; ++i) last = step(x, y).item<float>();
  EXPECT_LT(last, first);
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_GT(step.stats().planned_peak_bytes, 0);
  EXPECT_NE(step.report().find("dot"), std::string::npos);
  Graph g = capture([&](Tensor a) { return model(a); }, x);
  EXPECT_NE(g.to_string().find("dot"), std::string::npos);
  EXPECT_NE(g.to_dot().find("digraph"), std::string::npos);
  EXPECT_FALSE(g.to_proto().empty());
  auto reads = compile([&](Tensor a) { return a * sum(a).item<float>(); });
  try {
    reads(x);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("api_test.cc"), std::string::npos) << e.what();
  }
}

}  // namespace
