// A third kind of device in one file: its operations are the CPU's, counted. Eager calls and a compiled training step
// run on it with the CPU's bits, and no other file knows of it.
#include <gtest/gtest.h>

#include "compiler/targets/cpu/target.h"
#include "compiler/targets/operations.h"
#include "weft.h"

namespace weft {
namespace {

struct Counts {
  int64_t eager = 0, prepared = 0, runs = 0, launches = 0;
};

class CountingReplay final : public Replay {
 public:
  CountingReplay(std::unique_ptr<Replay> on_cpu, int64_t calls, Counts& counts)
      : on_cpu_(std::move(on_cpu)), calls_(calls), counts_(counts) {}
  void run(bool moved) override {
    count();
    on_cpu_->run(moved);
  }
  void run_by_one(const std::function<void(size_t)>& before) override {
    count();
    on_cpu_->run_by_one(before);
  }
  void run_timed(const std::function<void(size_t, double)>& after) override {
    count();
    on_cpu_->run_timed(after);
  }
  size_t at() const override { return on_cpu_->at(); }

 private:
  void count() {
    ++counts_.runs;
    counts_.launches += calls_;
  }
  const std::unique_ptr<Replay> on_cpu_;
  const int64_t calls_;
  Counts& counts_;
};

class CountingTarget final : public Target {
 public:
  Counts counts;
  bool out_of_memory = false;  // the next prepare() fails

  Allocator& allocator(Device) override { return Allocator::of(Device::cpu(100)); }
  void copy(const StridedView& from, Device, const StridedView& to, Device) override {
    cpu_.copy(from, Device::cpu(), to, Device::cpu());
  }
  std::shared_ptr<Operation> prepare(Device device, const OpDef& op, const Attrs& attrs,
                                     std::span<const StridedView> in, std::span<const StridedView> out, int alignment,
                                     const PrepareOptions& options) override {
    ++counts.prepared;
    if (std::exchange(out_of_memory, false)) throw Error(Code::kResourceExhausted, "toy: out of memory");
    return cpu_.prepare(device, op, attrs, in, out, alignment, options);
  }
  LoadReport compile(Device device, std::span<const std::shared_ptr<Operation>> all, const LoadOptions& o) override {
    return cpu_.compile(device, all, o);
  }
  void run_now(const KernelCall& call, Device device, SourceLine line) override {
    ++counts.eager;
    cpu_.run_now(call, device, line);
  }
  std::unique_ptr<Replay> replay(Device device, std::span<const StepCall> calls, ReplayOptions options) override {
    const auto n = static_cast<int64_t>(calls.size());
    return std::make_unique<CountingReplay>(cpu_.replay(device, calls, std::move(options)), n, counts);
  }
  Agreement agreement(const Operation& operation, const Node& n, const PrepareOptions& options) const override {
    return cpu_.agreement(operation, n, options);
  }

 private:
  internal::CpuTarget& cpu_ = internal::cpu_target();
};

struct Registered {
  CountingTarget target;
  Registered() { register_target(DeviceType::kOther, &target); }
  ~Registered() {
    internal::forget_operations(DeviceType::kOther);
    register_target(DeviceType::kOther, nullptr);
  }
};

struct Mlp : nn::Module {
  nn::Linear up, down;
  Mlp() : up(6, 32), down(32, 1) {
    register_module("up", up);
    register_module("down", down);
  }
  Tensor operator()(const Tensor& x) const { return down(gelu(up(x))); }
};

// Losses of three steps, then the weights.
std::vector<float> train(Device device, bool compiled) {
  manual_seed(3);
  Mlp model;
  const Tensor x = randn({16, 6}), y = sum(x, {1}, true);
  model.to(device);
  optim::AdamW opt(model.parameters(), {.lr = 1e-2});
  auto step = compile(
      [&](Tensor in, Tensor target) {
        const Tensor loss = mse_loss(model(in), target);
        opt.step(grad(loss, model.parameters()));
        return loss;
      },
      {.enabled = compiled});
  std::vector<float> all;
  for (int i = 0; i < 3; ++i) all.push_back(step(x.to(device), y.to(device)).item<float>());
  for (const Parameter& p : model.parameters())
    for (float v : p.value().to(Device::cpu()).to_vector<float>()) all.push_back(v);
  return all;
}

TEST(ToyTarget, ATrainingStepRunsOnAThirdKindOfDevice) {
  Registered other;
  EXPECT_EQ(train(Device::other(), true), train(Device::cpu(), true));
  const Counts compiled = other.target.counts;
  EXPECT_EQ(compiled.runs, 3);
  EXPECT_GE(compiled.launches, 3 * 4);
  EXPECT_GT(compiled.prepared, 0);
  EXPECT_EQ(train(Device::other(), false), train(Device::cpu(), false));
  EXPECT_GT(other.target.counts.eager, 3 * 10);
  EXPECT_EQ(other.target.counts.runs, 3);
}

TEST(ToyTarget, PlanningThatRunsOutOfMemoryIsTriedAgain) {
  Registered other;
  const Tensor x = ones({4}).to(Device::other());
  auto step = compile([](Tensor t) { return t * 2.0 + t; }, {.memory_budget = int64_t{1} << 30});
  other.target.out_of_memory = true;
  EXPECT_THROW(step(x), Error);
  EXPECT_FALSE(other.target.out_of_memory);
  EXPECT_EQ(step(x).to(Device::cpu()).to_vector<float>(), std::vector<float>(4, 3));
}

TEST(ToyTarget, WithoutATargetTheErrorSaysWhatIsMissing) {
  try {
    zeros({2}, {.device = Device::other()});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("allocate: device other:0 is not available; need cpu; at "));
  }
}

}  // namespace
}  // namespace weft
