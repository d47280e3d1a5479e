// Deep Q-learning (Mnih et al. 2015, van Hasselt et al. 2016) that balances a pole on a cart (Barto et al. 1983).
//   ./bazelw run //models/examples:dqn
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "weft.h"

ABSL_FLAG(int, steps, 20000, "steps of the cart, each with an optimiser step");
ABSL_FLAG(uint64_t, seed, 0, "seed of the weights, the cart and the exploration");

using namespace weft;

namespace {

using RandomEngine = std::mt19937_64;
using CartState = std::array<float, 4>;  // position, velocity, angle, angular velocity

float uniform(RandomEngine& random, float lo, float hi) {
  return std::uniform_real_distribution<float>(lo, hi)(random);
}

/// A reward of 1 for each step, 500 steps at most, as in Gym's CartPole-v1.
struct CartPole {
  CartState state;
  int steps = 0;
  explicit CartPole(RandomEngine& random) {
    for (float& x : state) x = uniform(random, -0.05F, 0.05F);
  }
  /// Pushes the cart to the left (0) or to the right (1); false if the pole fell or the cart left the track.
  bool push(int64_t action) {
    auto& [x, v, angle, omega] = state;
    const float force = action == 1 ? 10.0F : -10.0F, s = std::sin(angle), c = std::cos(angle), dt = 0.02F;
    const float push = (force + 0.05F * omega * omega * s) / 1.1F;  // masses 1 and 0.1, half length 0.5
    const float alpha = (9.8F * s - c * push) / (0.5F * (4.0F / 3 - 0.1F * c * c / 1.1F));
    const float a = push - 0.05F * alpha * c / 1.1F;
    x += dt * v, v += dt * a, angle += dt * omega, omega += dt * alpha;
    ++steps;
    return std::abs(x) < 2.4F && std::abs(angle) < 0.2095F;
  }
};

struct ReplayBatch {
  Tensor state, action, next, alive;  // [N, 4], [N], [N, 4], [N]
};

/// The last transitions.
class ReplayMemory {
 public:
  void add(const CartState& state, int64_t action, const CartState& next, bool alive) {
    const Transition t{state, action, next, alive};
    if (all_.size() < kCapacity)
      all_.push_back(t);
    else
      all_[at_++ % kCapacity] = t;
  }
  ReplayBatch sample(int64_t n, RandomEngine& random) const {
    std::vector<float> state, next, alive;
    std::vector<int64_t> action;
    for (int64_t i = 0; i < n; ++i) {
      const Transition& t = all_[random() % all_.size()];
      state.insert(state.end(), t.state.begin(), t.state.end());
      next.insert(next.end(), t.next.begin(), t.next.end());
      action.push_back(t.action);
      alive.push_back(t.alive ? 1.0F : 0.0F);
    }
    return {Tensor::from_vector(state, {n, 4}), Tensor::from_vector(action, {n}), Tensor::from_vector(next, {n, 4}),
            Tensor::from_vector(alive, {n})};
  }

 private:
  struct Transition {
    CartState state;
    int64_t action;
    CartState next;
    bool alive;
  };
  static constexpr size_t kCapacity = 20000;
  std::vector<Transition> all_;
  size_t at_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  RandomEngine random(absl::GetFlag(FLAGS_seed));
  manual_seed(absl::GetFlag(FLAGS_seed));
  const nn::Sequential net(nn::Linear(4, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(), nn::Linear(128, 2));
  const nn::Sequential target = clone(net);  // follows net slowly
  const int steps = absl::GetFlag(FLAGS_steps);
  optim::AdamW opt(net.parameters(), {.lr = 1e-3});
  optim::Scheduler schedule(opt, optim::CosineAnnealingLR{.base = 1e-3, .t_max = std::max(steps, 1)});
  auto train_step = compile([&](ReplayBatch b) {
    // Double Q-learning: net chooses the next action, target estimates its value.
    const Tensor next = target(b.next).gather(1, net(b.next).argmax(1, true)).squeeze(1);
    const Tensor want = (1.0 + 0.99 * b.alive * next).detach();
    const Tensor loss = smooth_l1_loss(net(b.state).gather(1, b.action.unsqueeze(1)).squeeze(1), want);
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 10.0).grads);
    const std::vector<Parameter> from = net.parameters(), to = target.parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].set(lerp(to[i], from[i], 0.01).detach());
    return loss;
  });
  auto best_action = compile([&](Tensor state) {
    NoGrad guard;
    return net(state).argmax(1);
  });
  auto act = [&](const CartState& s) {
    return best_action(Tensor::from_vector(std::vector<float>(s.begin(), s.end()), {1, 4})).item<int64_t>();
  };
  auto score = [&](int episodes) {  // mean number of steps without exploration
    RandomEngine other(12345);
    double sum = 0;
    for (int i = 0; i < episodes; ++i) {
      CartPole cart(other);
      while (cart.steps < 500 && cart.push(act(cart.state))) {
      }
      sum += cart.steps;
    }
    return sum / episodes;
  };

  ReplayMemory memory;
  CartPole cart(random);
  std::printf(" step    loss  steps of the pole (at most 500)\n");
  for (int i = 1; i <= steps; ++i) {
    const float explore = std::max(0.05F, 1 - static_cast<float>(i) / 5000);
    const CartState before = cart.state;
    const int64_t action = uniform(random, 0, 1) < explore ? static_cast<int64_t>(random() % 2) : act(before);
    const bool alive = cart.push(action);
    memory.add(before, action, cart.state, alive);
    if (!alive || cart.steps == 500) cart = CartPole(random);
    const Tensor loss = train_step(memory.sample(128, random));
    schedule.step();
    if (i % 2000 == 0 || i == 1) std::printf("%5d  %6.4f  %.1f\n", i, loss.item(), score(5));
  }
  std::printf("mean steps over 20 episodes: %.1f of 500\n", score(20));
}
