// gpu bench: Weft's speed on a GPU, and the GPU's bounds, for copies and memory-bound ops, products (and the effect of
// their data on power and clocks), flex_attention, chains of ops (eager, compiled, replayed), training steps.
// torch_bench.py measures the same work under the same names.
#include "tools/gpu/bench.h"

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "compiler/cost/machine/rates.h"
#include "framework/cuda/gpu.h"
#include "framework/cuda/libraries/driver_api.h"
#include "framework/cuda/libraries/nvml.h"
#include "framework/cuda/stream.h"
#include "framework/io/file.h"
#include "models/gpt/config.h"
#include "models/nn/transformer/language_model.h"
#include "tools/bench/model.h"
#include "tools/bench/report.h"
#include "tools/gpu/extents.h"
#include "weft.h"

namespace weft::bench {
namespace {

using cuda::Event;
using cuda::Gpu;

GpuBenchOptions options;

Gpu& gpu() { return Gpu::get(options.device); }
Device device() { return gpu().device(); }

struct TimedCall {
  double device_ms = 0;  // time of one call
  double host_us = 0;    // time until the call returns
};

/// Medians over 7 repetitions. Each repeats the call for about 20 ms.
TimedCall time_on_gpu(const std::function<void()>& body) {
  if (options.compile) {
    body(), body();  // the second call of a step is captured, and has kernels of its own
    return {1, 1};
  }
  Event begin(gpu(), true), end(gpu(), true);
  auto run = [&](int64_t calls) {
    begin.record(gpu().stream());
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) body();
    const double host = seconds_since(start);
    end.record(gpu().stream());
    return TimedCall{end.ms_since(begin) / static_cast<double>(calls), host * 1e6 / static_cast<double>(calls)};
  };
  // Warm up: kernels are compiled, graphs are captured, and clocks rise during the first 100 ms.
  run(3);
  if (shrunk()) return run(2);
  const double once = std::max(run(1).device_ms, 1e-3);
  run(static_cast<int64_t>(std::clamp(100 / once, 1.0, 10000.0)));
  const auto calls = static_cast<int64_t>(std::clamp(20 / once, 1.0, 2000.0));
  std::vector<double> device, host;
  for (int r = 0; r < 7; ++r) {
    device.push_back(run(calls).device_ms);
    host.push_back(run(3).host_us);  // few calls, because the host waits when a queue is full
  }
  return {median(device), median(host)};
}

// Prints and writes the row at once, so that a later crash does not lose it.
void add(Report& report, const BenchRow& row) {
  if (options.compile) return;
  std::printf("%s: %.5g %s\n", row.name.c_str(), row.value, row.unit.c_str());
  std::fflush(stdout);
  report.add(row);
  if (!options.json.empty()) io::write_file_atomic(io::resolve_path(options.json), report.to_json());
}

bool failed = false;

// Runs the cases of one name. If they fail, the error is printed and kept, and the other cases follow.
void attempt(Report& report, const std::string& name, const std::function<void()>& cases) {
  try {
    cases();
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), e.what());
    report.fact(str_cat(name, " failed"), e.what());
    failed = true;
  }
}

Tensor normal(const Shape& shape, DType dtype) { return randn(shape, {.device = device()}).to(dtype); }

double copy_rate = kNone;  // GB/s, read and written

void memory(Report& report) {
  const int64_t n = at_most(int64_t{1} << 28, int64_t{1} << 12);
  auto rate = [](double bytes, const TimedCall& t) { return bytes / (t.device_ms * 1e6); };
  {
    const Tensor x = zeros({n}).to(device());
    auto copy = compile([](Tensor a) { return a + 1; });
    copy_rate = rate(8.0 * n, time_on_gpu([&] { copy(x); }));
    add(report, {"x + 1 f32, 1 GiB", copy_rate, "GB/s", gpu().properties().memory_rate() / 1e9});
  }
  // Operands of at least 512 MB: little of them stays in the L2 cache between calls.
  const int64_t rows = at_most<int64_t>(65536, 64), cols = at_most<int64_t>(4096, 64),
                side = at_most<int64_t>(16384, 64);
  for (DType t : {kFloat32, kBFloat16}) {
    const double bytes = static_cast<double>(rows * cols * itemsize(t));
    const Tensor x = normal({rows, cols}, t), y = normal({rows, cols}, t), w = normal({cols}, t);
    auto row = [&](const char* of, double passes, const std::function<void()>& body) {
      const std::string name = str_cat(of, " ", t);
      attempt(report, name, [&] {
        add(report, {name, rate(passes * bytes, time_on_gpu(body)), "GB/s", copy_rate, 0.9 * copy_rate});
      });
    };
    auto gelu_mul = compile([](Tensor a, Tensor b) { return gelu(a) * b; });
    row("gelu(a) * b", 3, [&] { gelu_mul(x, y); });
    auto soft = compile([](Tensor a) { return softmax(a, 1); });
    row("softmax rows", 2, [&] { soft(x); });
    auto norm = compile([=](Tensor a, Tensor b, Tensor c) { return rms_norm(a + b, {cols}, c); });
    row("rms_norm(a + b)", 3, [&] { norm(x, y, w); });
    auto sums = compile([](Tensor a) { return sum(a, 0); });
    row("sum over rows", 1, [&] { sums(x); });
    auto turn = compile([](Tensor a, Tensor b) { return a.transpose(0, 1) + b; });
    const Tensor square = normal({side, side}, t), other = normal({side, side}, t);
    const double scale = static_cast<double>(side * side) / static_cast<double>(rows * cols);
    row("a.T + b", 3 * scale, [&] { turn(square, other); });
  }
}

void products(Report& report) {
  const int64_t n = at_most<int64_t>(8192, 64);
  const double flops = 2.0 * n * n * n;
  const cuda::Nvml nvml(gpu().properties().pci_bus);
  if (!nvml.why_not().empty()) report.fact("nvml", nvml.why_not());
  // The data decides how much power a tensor core draws, and so its clock.
  const std::pair<const char*, Tensor> data[] = {
      {"zeros", zeros({n, n})}, {"normal", randn({n, n})}, {"uniform", rand({n, n})}};
  for (const auto& [name, values] : data) {
    const Tensor a = values.to(kBFloat16).to(device()), b = a * 1;
    double watts = 0, mhz = 0;
    // Power settles within some tenths of a second, and NVML averages over as long. So run for 1.5 s, and time and read
    // power in the last half.
    const double once = time_on_gpu([&] { matmul(a, b); }).device_ms;
    if (options.compile) continue;
    auto work = [&](double ms) {
      for (double t = 0; t < ms; t += once) matmul(a, b);
    };
    work(at_most(750.0, once));
    Event begin(gpu(), true), end(gpu(), true);
    begin.record(gpu().stream());
    std::vector<double> all_watts, all_mhz;
    int64_t done = 0;
    for (const auto start = Clock::now(); done == 0 || seconds_since(start) < at_most(0.75, 0.0); ++done) {
      matmul(a, b);
      if (done % 16) continue;
      gpu().stream().synchronize();
      matmul(a, b), ++done;  // keep the device busy while power is read
      all_watts.push_back(nvml.watts());
      all_mhz.push_back(nvml.clock_mhz());
    }
    end.record(gpu().stream());
    const double ms = end.ms_since(begin) / static_cast<double>(done);
    watts = median(all_watts), mhz = median(all_mhz);
    add(report, {str_cat("product bf16 8192 ", name), flops / (ms * 1e9), "TFLOP/s"});
    add(report, {str_cat("product bf16 8192 ", name, " power"), watts, "W"});
    add(report, {str_cat("product bf16 8192 ", name, " clock"), mhz, "MHz"});
  }
  const int64_t m = at_most<int64_t>(4096, 64);
  const Tensor x = normal({n, m}, kBFloat16), w = normal({m, m}, kBFloat16), bias = normal({m}, kBFloat16);
  auto plain = compile([](Tensor a, Tensor b) { return matmul(a, b); });
  auto fused = compile([](Tensor a, Tensor b, Tensor c) { return gelu(matmul(a, b) + c, "tanh"); });
  const TimedCall alone = time_on_gpu([&] { plain(x, w); }), whole = time_on_gpu([&] { fused(x, w, bias); });
  add(report, {"gelu(x w + b) bf16", whole.device_ms, "ms", alone.device_ms, 1.05 * alone.device_ms});
}

void flex(Report& report) {
  const int64_t length = at_most<int64_t>(8192, 256), short_length = at_most<int64_t>(1024, 256);
  struct GpuAttentionCase {
    const char* name;
    int64_t batch, heads, kv_heads, length, dim;
    double share, goal, goal_backward;  // share: visible pairs of all pairs
    MaskMod mask;
    ScoreMod score = {};
  };
  const GpuAttentionCase cases[] = {
      {"none", 1, 16, 16, length, 128, 1, kNone, kNone, {}},
      {"causal", 1, 16, 16, length, 128, 0.5, 450, 350, attention::causal()},
      {"window 512", 1, 16, 16, length, 128, 512.0 / static_cast<double>(length), kNone, kNone,
       attention::sliding_window(512)},
      {"alibi", 1, 16, 16, length, 128, 1, kNone, kNone, {}, attention::alibi(16)},
      {"causal, 4 queries a key", 1, 32, 8, length, 128, 0.5, kNone, kNone, attention::causal()},
      {"causal, 16 x 1024, heads of 64", 16, 12, 12, short_length, 64, 0.5, kNone, kNone, attention::causal()},
  };
  auto measure = [&](const GpuAttentionCase& c) {
    const int64_t batch = at_most<int64_t>(c.batch, 1), heads = c.heads;
    const Tensor q = normal({batch, heads, c.length, c.dim}, kBFloat16),
                 k = normal({batch, c.kv_heads, c.length, c.dim}, kBFloat16),
                 v = normal({batch, c.kv_heads, c.length, c.dim}, kBFloat16);
    FlexAttentionOptions options{.score_mod = c.score, .enable_gqa = c.heads != c.kv_heads};
    if (c.mask) options.block_mask = create_block_mask(c.mask, 1, 1, c.length, c.length);
    const double flops = 4.0 * static_cast<double>(batch * heads * c.length * c.length * c.dim) * c.share;
    auto forward = compile([&](Tensor a, Tensor b, Tensor d) { return flex_attention(a, b, d, options); });
    const TimedCall f = time_on_gpu([&] { forward(q, k, v); });
    add(report, {str_cat("attention ", c.name), flops / (f.device_ms * 1e9), "TFLOP/s", kNone, c.goal});
    auto both = compile([&](Tensor a, Tensor b, Tensor d) {
      a = a.requires_grad(), b = b.requires_grad(), d = d.requires_grad();
      const Tensor y = flex_attention(a, b, d, options);
      return grad(sum(y.to(kFloat32)), {a, b, d});
    });
    const TimedCall all = time_on_gpu([&] { both(q, k, v); });
    add(report, {str_cat("attention ", c.name, " backward"), 2.5 * flops / ((all.device_ms - f.device_ms) * 1e9),
                 "TFLOP/s", kNone, c.goal_backward});
  };
  for (const GpuAttentionCase& c : cases) attempt(report, str_cat("attention ", c.name), [&] { measure(c); });
  attempt(report, "decode", [&] {  // one query for each of 64 sequences: the time to read the keys and values
    const int64_t batch = at_most<int64_t>(64, 2), heads = 32, kv_heads = 8, dim = 128;
    const Tensor q = normal({batch, heads, 1, dim}, kBFloat16), k = normal({batch, kv_heads, length, dim}, kBFloat16),
                 v = normal({batch, kv_heads, length, dim}, kBFloat16);
    auto decode = compile([](Tensor a, Tensor b, Tensor d) { return flex_attention(a, b, d, {.enable_gqa = true}); });
    const TimedCall t = time_on_gpu([&] { decode(q, k, v); });
    const double bytes = 2 * static_cast<double>(k.numel() * itemsize(kBFloat16));
    add(report, {"attention of one query, 8192 keys", bytes / (t.device_ms * 1e6), "GB/s",
                 gpu().properties().memory_rate() / 1e9});
  });
}

// Finds the size from which the device limits the speed, and not the host.
void chains(Report& report) {
  constexpr int kOps = 32;
  const char* names[] = {"eager", "compiled", "graph"};
  double meets[3] = {kNone, kNone, kNone};
  for (int64_t n = 64; n <= at_most<int64_t>(4096, 64); n *= 2) {
    // Scaled so that values do not grow or shrink over the products.
    const Tensor x = normal({n, n}, kBFloat16),
                 w = (randn({n, n}) * (1 / std::sqrt(static_cast<double>(n)))).to(kBFloat16).to(device());
    auto chain = [](Tensor a, Tensor b) {
      for (int i = 0; i < kOps; ++i) a = matmul(a, b);
      return a;
    };
    for (int how = 0; how < 3; ++how) {
      auto step = compile(chain, {.enabled = how > 0, .cuda_graph = how == 2});
      const TimedCall t = time_on_gpu([&] { step(x, w); });
      add(report, {str_cat("32 products of ", n, " ", names[how]), t.device_ms * 1e3, "us"});
      add(report, {str_cat("32 products of ", n, " ", names[how], ", host"), t.host_us, "us"});
      if (std::isnan(meets[how]) && t.device_ms * 1e3 > 1.1 * t.host_us) meets[how] = static_cast<double>(n);
    }
  }
  for (int how = 0; how < 3; ++how) add(report, {str_cat("device keeps busy from ", names[how]), meets[how], "rows"});
}

// A training step in bf16 on random tokens.
TimedCall time_step(nn::LanguageModel& model, int64_t batch, int64_t length) {
  model.to(device());
  model.set_compute_dtype(kBFloat16);
  optim::AdamW opt(model.parameters(), {.lr = 1e-4});
  auto step = compile([&](Tensor tokens, Tensor targets) {
    const Tensor loss = model.loss(tokens, targets).loss;
    opt.step(grad(loss, opt.parameters()));
    return loss;
  });
  const Tensor tokens = randint(0, model.vocab(), {batch, length}).to(device()),
               targets = randint(0, model.vocab(), {batch, length}).to(device());
  return time_on_gpu([&] { step(tokens, targets); });
}

void gpt2(Report& report) {
  const int64_t batch = at_most<int64_t>(16, 1), length = at_most<int64_t>(1024, 64);
  nn::ConfigMap config = gpt::family().preset("gpt2");
  config["dropout"] = "0";  // as in the measurements that set the goals
  if (shrunk()) config["layers"] = "1", config["vocab"] = "256";
  const auto model = gpt::family().make(config);
  const TimedCall t = time_step(*model, batch, length);
  const double rate = model->flops_per_token(length) * static_cast<double>(batch * length) / (t.device_ms * 1e-3);
  add(report, {"step of gpt2 124M bf16", t.device_ms, "ms"});
  add(report, {"step of gpt2 124M bf16, host", t.host_us, "us", kNone, 20});
  add(report, {"step of gpt2 124M bf16, MFU", rate / rates_of(device()).products16, "MFU", 1, 0.5});
}

void decoder(Report& report, const std::string& name) {
  const nn::ConfigMap small{{"layers", "1"}, {"vocab", "256"}, {"context", "64"}};
  const Decoder decoder = make_decoder(name, shrunk() ? small : nn::ConfigMap{});
  const int64_t batch = at_most<int64_t>(decoder.batch, 1), length = decoder.model->context();
  const TimedCall t = time_step(*decoder.model, batch, length);
  const double flops = decoder.model->flops_per_token(length) * static_cast<double>(batch * length);
  add(report, {str_cat("step of ", name, " bf16"), t.device_ms, "ms"});
  add(report, {str_cat("step of ", name, " bf16, host"), t.host_us, "us", kNone, 20});
  add(report, {str_cat("step of ", name, " bf16 rate"), flops / (t.device_ms * 1e9), "TFLOP/s"});
}

void steps(Report& report) {
  attempt(report, "gpt2", [&] { gpt2(report); });
  for (const char* name : {"gpt_tiny", "gpt_base", "moe_small"}) attempt(report, name, [&] { decoder(report, name); });
}

}  // namespace

int run_gpu_bench(const GpuBenchOptions& asked) {
  options = asked;
  if (const cuda::Availability& cuda = cuda::availability(); !cuda.ok) {
    std::printf("skipped: %s\n", cuda.why.c_str());
    return 77;
  }
  Report report("gpu");
  report.fact("gpu", gpu().properties().to_string());
  const std::pair<const char*, void (*)(Report&)> parts[] = {
      {"products", products}, {"flex", flex}, {"steps", steps}, {"memory", memory}, {"chains", chains}};
  failed = false;
  for (const auto& [name, part] : parts)
    if (std::string_view(name).find(options.only) != std::string_view::npos)
      attempt(report, name, [&, part = part] { part(report); });
  report.finish(options.json);
  return failed ? 1 : 0;
}

}  // namespace weft::bench
