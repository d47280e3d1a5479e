// The collectives of training steps with their numbers and bytes: terms of a sum are added where they are fewest, and
// terms of one gradient are added before ranks reduce them. Each step equals one device's.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "distributed/launch/compile.h"
#include "distributed/plan/collective_names.h"
#include "framework/base/switches.h"
#include "weft.h"

namespace weft::dist {
namespace {

struct Net : nn::Module {
  virtual ~Net() = default;
  virtual Tensor loss(const Tensor& x, const Tensor& y) const = 0;
  virtual std::array<Tensor, 2> batch() const = 0;
};

constexpr int64_t kBatch = 16, kTime = 5;

// The samples have different means, so statistics of one rank's samples would differ.
struct ConvNet : Net {
  nn::Sequential net;
  template <class Norm>
  ConvNet(const Norm& norm4, const Norm& norm8)
      : net(nn::Conv2d(1, 4, 3, {.padding = 1}), norm4, nn::ReLU(), nn::MaxPool2d(2),
            nn::Conv2d(4, 8, 3, {.padding = 1}), norm8, nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
            nn::Linear(8 * 4 * 4, 10)) {
    register_module("net", net);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const override { return cross_entropy(net(x), y); }
  std::array<Tensor, 2> batch() const override {
    const Tensor means = arange(kBatch).to(kFloat64).reshape({kBatch, 1, 1, 1});
    return {randn({kBatch, 1, 16, 16}, {.dtype = kFloat64}) + means, randint(0, 10, {kBatch})};
  }
};

// Rows of features, with targets of the size of the outputs.
struct RowsNet : Net {
  int64_t in = 6, out = 6;
  std::array<Tensor, 2> batch() const override {
    return {randn({kBatch, kTime, in}, {.dtype = kFloat64}), randn({kBatch, kTime, out}, {.dtype = kFloat64})};
  }
};

template <class Layer>
struct RecurrentNet : RowsNet {
  Layer layer;
  nn::Linear head;
  explicit RecurrentNet(int64_t hidden) : layer(6, hidden, {.batch_first = true}), head(hidden, 6) {
    register_module("layer", layer);
    register_module("head", head);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const override { return mse_loss(head(layer(x).output), y); }
};

// The program's own loop over the positions.
struct CellNet : RowsNet {
  nn::GRUCell cell;
  CellNet() : cell(6, 6) { register_module("cell", cell); }
  Tensor loss(const Tensor& x, const Tensor& y) const override {
    Tensor h, sum;
    for (int64_t t = 0; t < kTime; ++t) {
      h = cell(select(x, 1, t), h);
      const Tensor own = mse_loss(h, select(y, 1, t));
      sum = sum.defined() ? sum + own : own;
    }
    return sum;
  }
};

struct TwiceNet : RowsNet {
  nn::Linear layer;
  TwiceNet() : layer(6, 6) { register_module("layer", layer); }
  Tensor loss(const Tensor& x, const Tensor& y) const override { return mse_loss(layer(tanh(layer(x))), y); }
};

// A layer that two losses use.
struct TwoLossesNet : RowsNet {
  nn::Linear layer;
  TwoLossesNet() : layer(6, 6) { register_module("layer", layer); }
  Tensor loss(const Tensor& x, const Tensor& y) const override {
    return mse_loss(layer(x), y) + mse_loss(layer(x * x), y);
  }
};

struct TiedNet : Net {
  nn::Embedding tok;
  nn::Linear layer;
  explicit TiedNet(int64_t vocab) : tok(vocab, 8), layer(8, 8), vocab_(vocab) {
    register_module("tok", tok);
    register_module("layer", layer);
  }
  Tensor loss(const Tensor& x, const Tensor& y) const override {
    return cross_entropy(linear(tanh(layer(tok(x))), tok.weight), y);
  }
  std::array<Tensor, 2> batch() const override {
    return {randint(0, vocab_, {kBatch, kTime}), randint(0, vocab_, {kBatch, kTime})};
  }

 private:
  const int64_t vocab_;
};

// Statistics over the batch of other kinds: a mean over all elements, a mean over the batch, and their products.
struct CentredNet : RowsNet {
  nn::Linear layer;
  CentredNet() : layer(6, 6) { register_module("layer", layer); }
  Tensor loss(const Tensor& x, const Tensor& y) const override {
    const Tensor z = layer(x), centred = z - mean(z), scaled = centred * (mean(z, Dims{0, 1}) + 2);
    return mean(square(scaled - y)) + mean(exp(z - mean(z, Dims{0}, true)));
  }
};

struct Traffic {
  int64_t count = 0, bytes = 0;
  friend bool operator==(const Traffic&, const Traffic&) = default;
};
using Table = std::map<std::string, Traffic>;  // "forward activations all-reduce@dp" -> its collectives

struct Case {
  std::string name, mesh;
  std::function<std::unique_ptr<Net>()> make;
  Table table = {};
  int zero = -1;
  int64_t parts = 1;
};

CompileOptions options_of(const Case& c) {
  CompileOptions o{.mesh = Mesh::parse(c.mesh)};
  o.plan.zero = c.zero;
  o.communication = std::make_shared<CommunicationOptions>(CommunicationOptions{.bucket = false, .overlap = false});
  return o;
}

// The steps of a training, with f64.
struct Training {
  explicit Training(const Case& c) : parts(c.parts) {
    manual_seed(5);
    net = c.make();
    net->to(kFloat64);
    net->train();
    opt = std::make_unique<optim::SGD>(net->parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  }
  Tensor operator()(const Tensor& x, const Tensor& y) const {
    auto [loss, g] = accumulate(parts, std::pair{x, y}, [&](const Tensor& a, const Tensor& b) {
      const Tensor own = net->loss(a, b) / static_cast<double>(parts);
      std::vector<Tensor> gradients = grad(own, opt->parameters());
      return std::pair{own.detach(), std::move(gradients)};
    });
    const auto [clipped, norm] = optim::clip_grad_norm(g, 1.0);
    opt->step(clipped);
    return loss;
  }
  const int64_t parts;
  std::unique_ptr<Net> net;
  std::unique_ptr<optim::SGD> opt;
};

PlanReport plan_of(const Case& c) {
  const Training t(c);
  const auto [x, y] = t.net->batch();
  return plan([&](Tensor a, Tensor b) { return t(a, b); }, options_of(c), x, y);
}

Table table_of(const PlanReport& p) {
  Table table;
  for (const PlannedCollective& c : p.collectives()) {
    Traffic& t = table[str_cat(to_string(c.phase), " ", to_string(c.subject), " ", title(c.kind), "@", c.axes)];
    ++t.count;
    t.bytes += c.bytes;
  }
  return table;
}

std::string text_of(const PlanReport& p) {
  std::string s;
  for (const auto& [what, t] : table_of(p)) s += str_cat(what, " ", t.count, " x, ", t.bytes, " bytes\n");
  for (const PlannedCollective& c : p.collectives())
    s += str_cat("  ", to_string(c.phase), " ", title(c.kind), "@", c.axes, " ", c.bytes, " ", to_string(c.subject),
                 " ", c.what, " ", c.line, "; ", c.why, "\n");
  return s;
}

template <class Norm>
std::unique_ptr<Net> conv_net() {
  return std::make_unique<ConvNet>(Norm(4), Norm(8));
}
std::unique_ptr<Net> group_norm_net() { return std::make_unique<ConvNet>(nn::GroupNorm(2, 4), nn::GroupNorm(2, 8)); }
std::unique_ptr<Net> instance_norm_net() {
  const nn::InstanceNormOptions track{.track_running_stats = true};
  return std::make_unique<ConvNet>(nn::InstanceNorm2d(4, track), nn::InstanceNorm2d(8, track));
}
template <class N, class... A>
std::function<std::unique_ptr<Net>()> net(A... args) {
  return [=] { return std::make_unique<N>(args...); };
}

// Gradients are reduced once; so are sums of forward and backward, such as the loss and statistics.
Table data_parallel(const Traffic& gradients, const Traffic& forward, const Traffic& backward = {}) {
  Table t{{"backward gradients all-reduce@dp", gradients}, {"forward activations all-reduce@dp", forward}};
  if (backward.count) t["backward activations all-reduce@dp"] = backward;
  return t;
}

// Parameters are gathered once in forward, and once more if backward reads them. Gradients are scattered once, and the
// squares of their norm are summed.
Table sharded(const Traffic& parameters, const Traffic& again, const Traffic& forward = {1, 8},
              const Traffic& backward = {}) {
  Table t{{"forward parameters all-gather@fsdp", parameters},
          {"backward gradients reduce-scatter@fsdp", parameters},
          {"forward activations all-reduce@fsdp", forward},
          {"update activations all-reduce@fsdp", {1, 8}}};
  if (again.count) t["backward parameters all-gather@fsdp"] = again;
  if (backward.count) t["backward activations all-reduce@fsdp"] = backward;
  return t;
}

Table scattered(const Traffic& gradients, const Traffic& updates) {
  return {{"backward gradients reduce-scatter@dp", gradients},
          {"update parameters all-gather@dp", updates},
          {"forward activations all-reduce@dp", {1, 8}},
          {"update activations all-reduce@dp", {1, 8}}};
}

std::vector<Case> cases() {
  // Bytes of numbers in f64. The convolutions have 4 and 8 channels; `statistics`: mean and variance of each channel.
  constexpr int64_t conv = 8 * (4 * 9 + 4 + 8 * 4 * 9 + 8), affine = 8 * 2 * (4 + 8), dense = 8 * (10 * 128 + 10);
  constexpr int64_t statistics = affine, matrices = 8 * (8 * 4 * 9 + 10 * 128), layer = 8 * (6 * 6 + 6);
  const auto recurrent = [](int64_t gates, int64_t hidden) {
    return 8 * (gates * hidden * (6 + hidden + 2) + 6 * hidden + 6);
  };
  const auto recurrent_again = [](int64_t gates, int64_t hidden) { return 8 * (gates * hidden * hidden + 6 * hidden); };
  const auto tied = [](int64_t vocab) { return 8 * (vocab * 8 + 8 * 8 + 8); };
  const auto tied_again = [](int64_t vocab) { return 8 * (vocab * 8 + 8 * 8); };
  const Traffic both{2, layer}, matrix{1, 8 * 6 * 6};
  Table instance_norm = data_parallel({6, conv + dense}, {2, 16});
  instance_norm["forward parameters all-reduce@dp"] = {4, statistics};  // the running statistics
  return {
      {"batch norm", "dp2", conv_net<nn::BatchNorm2d>,
       data_parallel({10, conv + affine + dense}, {4 + 2, statistics + 16}, {4, statistics})},
      {"batch norm", "fsdp2", conv_net<nn::BatchNorm2d>,
       sharded({10, conv + affine + dense}, {2, matrices}, {4 + 2, statistics + 16}, {4, statistics})},
      {"group norm", "dp2", group_norm_net, data_parallel({10, conv + affine + dense}, {2, 16})},
      {"instance norm", "dp2", instance_norm_net, instance_norm},
      // A large batch sums gradients from position to position; a small one has one product.
      {"LSTM, large batch", "dp2", net<RecurrentNet<nn::LSTM>>(3), data_parallel({6, recurrent(4, 3)}, {1, 8})},
      {"LSTM, large batch", "fsdp2", net<RecurrentNet<nn::LSTM>>(3),
       sharded({6, recurrent(4, 3)}, {2, recurrent_again(4, 3)})},
      {"LSTM, small batch", "fsdp2", net<RecurrentNet<nn::LSTM>>(16),
       sharded({6, recurrent(4, 16)}, {2, recurrent_again(4, 16)})},
      {"GRU, large batch", "fsdp2", net<RecurrentNet<nn::GRU>>(3),
       sharded({6, recurrent(3, 3)}, {2, recurrent_again(3, 3)})},
      {"GRU cell", "fsdp2", net<CellNet>(), sharded({4, 8 * 18 * (6 + 6 + 2)}, {1, 8 * 18 * 6})},
      {"a layer used twice", "dp2", net<TwiceNet>(), data_parallel(both, {1, 8})},
      {"a layer used twice", "fsdp2", net<TwiceNet>(), sharded(both, matrix)},
      {"a layer used twice, zero 2", "dp2", net<TwiceNet>(), scattered(both, both), 2},
      {"a layer used twice, 2 parts, zero 1", "dp2", net<TwiceNet>(), scattered(both, both), 1, 2},
      // From zero 2 on, the gradients of each part are scattered, so that no rank has whole gradients all the time.
      {"a layer used twice, 2 parts, zero 2", "dp2", net<TwiceNet>(), scattered({4, 2 * layer}, both), 2, 2},
      {"a layer of two losses", "fsdp2", net<TwoLossesNet>(), sharded(both, {})},
      // An embedding that is the head, too. If few rows are looked up, another table's gradient gathers the rows.
      {"tied, few rows", "dp2", net<TiedNet>(200), data_parallel({3, tied(200)}, {2, 16})},
      {"tied, few rows", "fsdp2", net<TiedNet>(200), sharded({3, tied(200)}, {2, tied_again(200)}, {2, 16})},
      {"tied, many rows", "dp2", net<TiedNet>(24), data_parallel({3, tied(24)}, {2, 16})},
      {"tied, many rows", "fsdp2", net<TiedNet>(24), sharded({3, tied(24)}, {2, tied_again(24)}, {2, 16})},
      {"means", "dp2", net<CentredNet>(), data_parallel(both, {4, 8 * (1 + 6 + 5 * 6 + 1)}, {3, 8 * (1 + 6 + 5 * 6)})},
      {"means",
       "tp2",
       net<CentredNet>(),
       {{"forward activations all-reduce@tp", {2, 16}},
        {"backward activations all-reduce@tp", {1, 8}},
        {"update activations all-reduce@tp", {1, 8}}}},
  };
}

TEST(Traffic, IsTheLeast) {
  for (const Case& c : cases()) {
    const PlanReport p = plan_of(c);
    EXPECT_EQ(table_of(p), c.table) << c.name << " on " << c.mesh << "\n" << text_of(p);
  }
}

std::vector<double> train(const Case& c) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  const Training t(c);
  const auto step = dist::compile([&](Tensor a, Tensor b) { return t(a, b); }, options_of(c));
  manual_seed(6);
  std::vector<double> all;
  for (int i = 0; i < 3; ++i) {
    const auto [x, y] = t.net->batch();
    const Tensor loss = step(x, y);
    all.push_back(loss.item<double>());
  }
  for (const auto& [name, cell] : t.net->named_cells())
    for (const double v : cell.value().detach().to_vector<double>()) all.push_back(v);
  return all;
}

TEST(Traffic, StepsEqualThoseOfOneDevice) {
  for (const Case& c : cases()) {
    Case one = c;
    one.mesh = "";
    const std::vector<double> want = train(one), got = train(c);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-9 * (1e-3 + std::fabs(want[i]))) << c.name << " on " << c.mesh << ", value " << i;
  }
}

}  // namespace
}  // namespace weft::dist
