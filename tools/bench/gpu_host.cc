// gpu_host: the host's time for a step that a GPU replays, measured without a GPU. The calls of the fake driver return
// at once, so this is Weft's own time, without the driver's.
//   ./bazelw run //tools/bench:gpu_host
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "compiler/targets/cuda/testing/host_kernels_gpu.h"
#include "framework/base/switches.h"
#include "framework/dispatch/device/host_read.h"
#include "models/gpt/config.h"
#include "weft.h"

namespace weft {
namespace {

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The median of `steps` calls of f, in microseconds.
template <class F>
double median_us(int steps, const F& f) {
  std::vector<double> us;
  for (int i = 0; i < steps; ++i) {
    const double begin = now_us();
    f(i);
    us.push_back(now_us() - begin);
  }
  std::nth_element(us.begin(), us.begin() + steps / 2, us.end());
  return us[steps / 2];
}

int run(int steps) {
  set_switch("WEFT_CXX", "none");
  set_switch("WEFT_VERIFY", "0");
  internal::HostKernelsGpu gpu({.memory = size_t{12} << 30}, true);
  const Device cuda = Device::cuda();
  manual_seed(1);
  const auto model = gpt::family().make(gpt::family().preset("gpt_base"));
  model->to(cuda);
  model->set_compute_dtype(kBFloat16);
  optim::AdamW opt(model->parameters(), {.lr = 1e-3});
  auto step = compile([&](Tensor x, Tensor y) {
    const nn::LossOut out = model->loss(x, y);
    auto [grads, norm] = optim::clip_grad_norm(grad(out.loss, opt.parameters()), 1.0);
    commit_if(logical_and(isfinite(out.loss), isfinite(norm)));
    opt.step(grads);
    return std::array{out.loss, norm, isfinite(norm)};
  });
  const auto batch = [&](int i) { return full({2, 64}, i % 7, {.dtype = kInt32}).to(cuda); };
  std::vector<Tensor> xs, ys;
  for (int i = 0; i < 3; ++i) xs.push_back(batch(i)), ys.push_back(batch(i + 1));
  for (int i = 0; i < 4; ++i) step(xs[0], ys[0]);
  const double same = median_us(steps, [&](int) { step(xs[0], ys[0]); });
  const double moved = median_us(steps, [&](int i) { step(xs[i % 3], ys[i % 3]); });
  HostRead last({step(xs[0], ys[0])[0]});
  const double loop = median_us(steps, [&](int i) {
    opt.set_lr(1e-3 / (i + 1));
    const Tensor x = batch(i), y = batch(i + 1);
    const auto out = step(x, y);
    HostRead now({out[0], out[1], out[2]});
    last.wait();
    last = std::move(now);
  });
  const CompileStats s = step.stats();
  std::printf("gpt_base bf16: %ld launches, %ld cells a step\n", static_cast<long>(s.kernels),
              static_cast<long>(s.cells));
  std::printf("  replay, nothing moved            %7.1f us\n", same);
  std::printf("  replay, arguments moved          %7.1f us\n", moved);
  std::printf("  learning rate, batch, step, read %7.1f us\n", loop);
  last = {};
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) { return weft::run(argc > 1 ? std::atoi(argv[1]) : 200); }
