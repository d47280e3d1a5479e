#include "tools/plan/inference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "compiler/cost/collective_seconds.h"
#include "compiler/cost/roofline.h"
#include "framework/base/error.h"
#include "framework/base/units.h"

namespace weft::planner {
namespace {

constexpr double kUsable = 0.94;  // of memory

template <class... A>
std::string format(const char* how, A... values) {
  char text[256];
  std::snprintf(text, sizeof text, how, values...);
  return text;
}

double weights_of(const InferenceWorkload& s) { return static_cast<double>(s.model.parameters()) * s.weight_bytes; }

double context_of(const InferenceWorkload& s) { return static_cast<double>(s.prompt + s.generated); }

// Weights that one step reads: of experts those that some of `rows` tokens choose.
double read_weights(const InferenceWorkload& s, double rows) {
  const ModelShape& m = s.model;
  const double experts = static_cast<double>(m.expert_layers() * m.expert_parameters());
  const double all = static_cast<double>(m.parameters()) - (m.tied ? 0 : static_cast<double>(m.table_parameters()));
  if (experts == 0) return all * s.weight_bytes;
  const double missed = std::pow(1 - static_cast<double>(m.top_k) / static_cast<double>(m.experts), rows);
  return (all - experts * missed) * s.weight_bytes;
}

// Two all-reduces of the stream in each layer.
double communication(const InferenceWorkload& s, double rows) {
  const int nodes = (s.gpus + s.machine.links.node - 1) / s.machine.links.node;
  return 2 * static_cast<double>(s.model.layers) *
         collective_seconds(Collective::kAllReduce, rows * static_cast<double>(s.model.dim) * 2, s.gpus, nodes,
                            s.machine);
}

}  // namespace

double decode_bound(const InferenceWorkload& s, double gpus) {
  const double rate = s.machine.theoretical.bytes > 0 ? s.machine.theoretical.bytes : s.machine.bytes;
  return rate * gpus / weights_of(s);
}

Decode decode(const InferenceWorkload& s, int64_t batch, double context) {
  const double b = static_cast<double>(batch), heads = static_cast<double>(s.model.heads * s.model.head_dim);
  Decode r{.batch = batch};
  r.weights = weights_of(s);
  r.cache = b * context_of(s) * s.model.kv_bytes(s.kv_bytes);
  const double read = read_weights(s, b), keys = b * context * s.model.kv_bytes(s.kv_bytes);
  const double flops = b * (2 * static_cast<double>(s.model.multiplying_parameters()) +
                            4 * static_cast<double>(s.model.layers) * heads * context);
  r.intensity = flops / (read + keys);
  const ResourceSeconds t = resource_seconds(s.machine, {.flops = flops / s.gpus,
                                                         .bytes = (read + keys) / s.gpus,
                                                         .products = flops / s.gpus,
                                                         .product_dtype = s.products});
  // A step of decoding is a stream of its weights: it reaches what a copy reaches.
  r.memory_seconds = t.memory * s.machine.reached;
  r.product_seconds = t.products;
  r.communication_seconds = communication(s, b);
  r.seconds = std::max(r.memory_seconds, r.product_seconds) + r.communication_seconds +
              8 * static_cast<double>(s.model.layers) * s.machine.launch;
  r.fits = r.weights + r.cache <= kUsable * s.machine.memory * s.gpus;
  r.bound = r.communication_seconds > std::max(r.memory_seconds, r.product_seconds) ? "communication"
            : r.product_seconds > r.memory_seconds                                  ? "products"
            : keys > read                                                           ? "keys and values"
                                                                                    : "weights";
  return r;
}

double prefill_seconds(const InferenceWorkload& s, int64_t batch) {
  const double tokens = static_cast<double>(batch * s.prompt);
  const double flops = s.model.training_flops(s.prompt) / 3 * tokens -
                       2 * static_cast<double>(s.model.table_parameters()) * (tokens - static_cast<double>(batch));
  return roofline_seconds(s.machine, {.flops = flops / s.gpus,
                                      .bytes = read_weights(s, tokens) / s.gpus,
                                      .products = flops / s.gpus,
                                      .product_dtype = s.products}) +
         communication(s, tokens);
}

double compute_bound_batch(const InferenceWorkload& s) {
  for (int64_t b = 1; b <= int64_t{1} << 24; b = b < 64 ? b + 1 : b + b / 64) {
    const Decode d = decode(s, b, 0);
    if (d.product_seconds >= d.memory_seconds) return static_cast<double>(b);
  }
  return 0;
}

int64_t largest_batch(const InferenceWorkload& s) {
  const double left = kUsable * s.machine.memory * s.gpus - weights_of(s);
  return left <= 0 ? 0 : static_cast<int64_t>(left / (context_of(s) * s.model.kv_bytes(s.kv_bytes)));
}

int gpus_needed(InferenceWorkload s) {
  for (s.gpus = 1; s.gpus < 1 << 20; s.gpus *= 2)
    if (largest_batch(s) >= 1) break;
  return s.gpus;
}

std::string inference_report(const InferenceWorkload& s, double usd, const std::vector<int64_t>& kv_heads) {
  const Machine& m = s.machine;
  const double ridge = m.products_of(s.products) / m.bytes, n = static_cast<double>(s.model.parameters());
  const int64_t most = largest_batch(s);
  std::string text = str_cat(
      s.model.name, ": ", format("%.2f", n / 1e9), " B parameters, ", bytes_text(weights_of(s)), "; ", s.gpus, " x ",
      m.name, "; prompts of ", s.prompt, " tokens, ", s.generated, " generated\n", "hardware: ", format("%.0f", ridge),
      " operations per byte (", format("%.0f", m.products_of(s.products) / 1e12), " TFLOP/s, ",
      format("%.2f", m.bytes / 1e12),
      " TB/s); decoding one sequence: ", format("%.2f", decode(s, 1, static_cast<double>(s.prompt)).intensity), "\n");
  text += str_cat("keys and values: ", bytes_text(s.model.kv_bytes(2)), " a token in bf16, ",
                  bytes_text(s.model.kv_bytes(1)), " in fp8, ", bytes_text(s.model.kv_bytes(4)), " in f32\n");
  text += str_cat("bound of decoding at batch 1, ", bytes_text(weights_of(s)), " of weights at ",
                  format("%.2f", std::max(m.theoretical.bytes, m.bytes) * s.gpus / 1e12),
                  " TB/s: ", format("%.1f", decode_bound(s, s.gpus)), " tokens/s\n");
  const double turn = compute_bound_batch(s);
  text += str_cat("decoding turns compute-bound at batch ", turn > 0 ? format("%.0f", turn) : std::string("(never)"),
                  ", without keys and values; ", most, " sequences fit; GPUs needed: ", gpus_needed(s), "\n");
  const auto row = [&](const InferenceWorkload& one, int64_t batch) {
    const Decode d = decode(one, batch, static_cast<double>(one.prompt) + static_cast<double>(one.generated) / 2);
    const double rate = static_cast<double>(batch) / d.seconds, first = prefill_seconds(one, batch);
    std::string line = format("  %7lld  %12s  %9s  %10.1f  %12.0f  %9.1f  %9s  %s", static_cast<long long>(batch),
                              seconds_text(first).c_str(), seconds_text(d.seconds).c_str(), 1 / d.seconds, rate,
                              d.intensity, bytes_text(d.cache).c_str(), d.bound);
    if (usd > 0) line += format("  %.2f", 1e6 / rate / 3600 * usd * one.gpus);
    return line + (d.fits ? "\n" : "  (does not fit)\n");
  };
  text += format("  %7s  %12s  %9s  %10s  %12s  %9s  %9s  %s\n", "batch", "first token", "step", "tokens/s",
                 "all tokens/s", "ops/byte", "cache", usd > 0 ? "bound by  USD/1e6" : "bound by");
  for (int64_t b : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}) text += row(s, b);
  for (int64_t heads : kv_heads) {
    InferenceWorkload other = s;
    other.model.kv_heads = heads > 0 ? heads : s.model.heads;
    check_shape(other.model);
    const int64_t fits = std::max<int64_t>(1, largest_batch(other));
    const Decode d = decode(other, fits, context_of(other));
    text += str_cat("what if kv_heads=", other.model.kv_heads, ": ", bytes_text(other.model.kv_bytes(s.kv_bytes)),
                    " a token, ", largest_batch(other), " sequences fit, then ",
                    format("%.0f", static_cast<double>(fits) / d.seconds), " tokens/s, bound by ", d.bound, "\n");
  }
  return text;
}

}  // namespace weft::planner
