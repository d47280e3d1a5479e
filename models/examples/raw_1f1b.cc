// A pipeline by hand (Narayanan et al. 2019): each rank has some layers of the model and runs the state machine of 1F1B
// over sends and receives. Loss and weights equal, bit for bit, the results of dist::compile on the model of one
// device.
//   ./bazelw run //models/examples:raw_1f1b -- --ranks 4 --microbatches 8
#include <cstdio>
#include <deque>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "distributed/distributed.h"
#include "weft.h"

ABSL_FLAG(int, ranks, 2, "ranks, each with its part of the layers; need a divisor of 8");
ABSL_FLAG(int, microbatches, 8, "parts of the batch; need a divisor of 64");

using namespace weft;

namespace {

constexpr int kLayers = 8;
constexpr int64_t kBatch = 64, kDim = 128;
constexpr double kRate = 0.05;

Tensor layer(const Tensor& x, const Tensor& w) { return x + gelu(matmul(x, w)); }

struct StepResult {
  Tensor loss;
  std::vector<Tensor> weights;
};

/// One rank: warm-up with a forward for each later rank, then one forward and one backward in turn, then the other
/// backwards.
class PipelineRank {
 public:
  PipelineRank(std::vector<Tensor> weights, const Tensor& x, const Tensor& y, int microbatches)
      : weights_(std::move(weights)),
        x_(x.chunk(microbatches)),
        y_(y.chunk(microbatches)),
        microbatches_(microbatches) {
    for (Tensor& w : weights_) {
      grads_.push_back(zeros_like(w));
      w = w.detach().requires_grad();
    }
  }

  StepResult run() {
    const int warm_up = std::min(last_ - rank_, microbatches_);
    for (int m = 0; m < warm_up; ++m) forward(m);
    for (int m = warm_up; m < microbatches_; ++m) {
      forward(m);
      backward();
    }
    for (int m = 0; m < warm_up; ++m) backward();
    for (dist::Transfer& t : sent_) t.wait();
    for (size_t i = 0; i < weights_.size(); ++i) weights_[i] = weights_[i].detach() - grads_[i] * kRate;
    return {loss_, weights_};
  }

 private:
  struct Alive {  // a microbatch between its forward and its backward
    Tensor in, out;
  };

  void forward(int m) {
    Tensor x = rank_ == 0 ? x_[m] : dist::start_recv(x_[0], "pp", rank_ - 1).wait();
    if (rank_ > 0) x = x.requires_grad();
    Tensor out = x;
    for (const Tensor& w : weights_) out = layer(out, w);
    if (rank_ == last_) {
      out = mse_loss(out, y_[m]) / static_cast<double>(microbatches_);
      loss_ = loss_ + out.detach();
    } else {
      sent_.push_back(dist::start_send(out, "pp", rank_ + 1));
    }
    alive_.push_back({x, out});
  }

  void backward() {
    const Alive a = alive_.front();
    alive_.pop_front();
    Tensor loss = a.out;
    // The gradient of sum(out g) by out is g.
    if (rank_ != last_) loss = sum(a.out * dist::start_recv(a.out, "pp", rank_ + 1).wait());
    std::vector<Tensor> leaves = weights_;
    if (rank_ > 0) leaves.push_back(a.in);
    const std::vector<Tensor> g = grad(loss, leaves);
    for (size_t i = 0; i < weights_.size(); ++i) grads_[i] = grads_[i] + g[i];
    if (rank_ > 0) sent_.push_back(dist::start_send(g.back(), "pp", rank_ - 1));
  }

  std::vector<Tensor> weights_, grads_;
  const std::vector<Tensor> x_, y_;
  const int microbatches_, rank_ = static_cast<int>(dist::coordinate("pp")),
                           last_ = static_cast<int>(dist::group_size("pp")) - 1;
  Tensor loss_ = zeros({});
  std::deque<Alive> alive_;
  std::vector<dist::Transfer> sent_;
};

/// Compiles the pipeline from the step of one device.
StepResult compiled(int ranks, int microbatches, const std::vector<Tensor>& weights, const Tensor& x, const Tensor& y) {
  std::vector<Parameter> parameters;
  for (const Tensor& w : weights) parameters.emplace_back(w, str_cat("layers.", parameters.size()));
  optim::SGD opt(parameters, {.lr = kRate});
  auto step = dist::compile(
      [&](Tensor in, Tensor want) {
        auto [loss, g] = accumulate(microbatches, std::pair{in, want}, [&](Tensor out, Tensor target) {
          for (const Parameter& w : parameters) out = layer(out, w.value());
          const Tensor loss = mse_loss(out, target) / static_cast<double>(microbatches);
          Gradients g = grad(loss, parameters);
          return std::pair{loss.detach(), std::move(g)};
        });
        opt.step(g);
        return loss;
      },
      {.mesh = dist::Mesh{{"pp", ranks}}});
  StepResult r{step(x, y), {}};
  for (const Parameter& p : parameters) r.weights.push_back(p.value());
  if (ranks > 1) std::printf("%s", step.plan().pipeline().c_str());
  return r;
}

bool same_bits(const Tensor& a, const Tensor& b) { return a.to_vector<float>() == b.to_vector<float>(); }

}  // namespace

int main(int argc, char** argv) try {
  absl::ParseCommandLine(argc, argv);
  const int ranks = absl::GetFlag(FLAGS_ranks), microbatches = absl::GetFlag(FLAGS_microbatches);
  WEFT_CHECK(ranks >= 1 && kLayers % ranks == 0, "raw_1f1b: --ranks is ", ranks, "; need a divisor of ", kLayers);
  WEFT_CHECK(microbatches >= 2 && kBatch % microbatches == 0, "raw_1f1b: --microbatches is ", microbatches,
             "; need 2 or more, and a divisor of ", kBatch);
  manual_seed(0);
  std::vector<Tensor> weights;
  for (int i = 0; i < kLayers; ++i) weights.push_back(randn({kDim, kDim}) * 0.1);
  const Tensor x = randn({kBatch, kDim}), y = randn({kBatch, kDim});

  std::vector<StepResult> of_rank(static_cast<size_t>(ranks));
  dist::World world(dist::Mesh{{"pp", ranks}});
  world.run([&](int rank) {
    const int n = kLayers / ranks;
    const std::vector<Tensor> own(weights.begin() + rank * n, weights.begin() + (rank + 1) * n);
    of_rank[rank] = PipelineRank(own, x, y, microbatches).run();
  });
  StepResult by_hand{of_rank.back().loss, {}};
  for (const StepResult& r : of_rank) by_hand.weights.insert(by_hand.weights.end(), r.weights.begin(), r.weights.end());
  std::printf("by hand, %d ranks and %d microbatches: loss %.6f\n%s", ranks, microbatches, by_hand.loss.item<float>(),
              world.statistics().c_str());

  const StepResult c = compiled(ranks, microbatches, weights, x, y);
  int different = !same_bits(c.loss, by_hand.loss);
  for (size_t i = 0; i < weights.size(); ++i) different += !same_bits(c.weights[i], by_hand.weights[i]);
  std::printf("compiled: loss %.6f; loss and %d weights %s\n", c.loss.item<float>(), kLayers,
              different ? "DIFFER" : "have the same bits");
  return different > 0;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
