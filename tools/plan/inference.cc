#include "tools/plan/inference.h"

#include <algorithm>
#include <cmath>

#include "compiler/cost/collective_seconds.h"
#include "compiler/cost/roofline.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"
#include "tools/plan/report/what_if.h"

namespace weft::planner {
namespace {

double weights_of(const InferenceWorkload& s) { return static_cast<double>(s.model.parameters()) * s.weight_bytes; }

double context_of(const InferenceWorkload& s) { return static_cast<double>(s.prompt + s.generated); }

// Weights of experts that none of `rows` tokens chooses.
double unread_experts(const InferenceWorkload& s, double rows) {
  const ModelShape& m = s.model;
  if (m.experts() == 0) return 0;
  const double missed = std::pow(1 - static_cast<double>(m.top_k()) / static_cast<double>(m.experts()), rows);
  return static_cast<double>(m.expert_parameters()) * missed * s.weight_bytes;
}

// Weights that one step reads: all but the table of an untied embedding.
double read_weights(const InferenceWorkload& s, double rows) {
  const double table = s.model.tied ? 0 : static_cast<double>(s.model.table_parameters()) * s.weight_bytes;
  return weights_of(s) - table - unread_experts(s, rows);
}

// Keys and values of one token over all GPUs. If there are more GPUs than heads, several GPUs store each head.
double kv_bytes_of(const InferenceWorkload& s) {
  const double copies = std::max(1.0, static_cast<double>(s.gpus) / static_cast<double>(s.model.kv_heads));
  return copies * s.model.kv_bytes(s.kv_bytes);
}

// Two all-reduces of the stream in each layer.
double communication(const InferenceWorkload& s, double rows) {
  const int nodes = (s.gpus + s.machine.links.node - 1) / s.machine.links.node;
  return 2 * static_cast<double>(s.model.layers()) *
         collective_seconds(Collective::kAllReduce, rows * static_cast<double>(s.model.dim) * 2, s.gpus, nodes,
                            s.machine);
}

}  // namespace

double bound_rate(const Machine& m) { return m.theoretical.bytes > 0 ? m.theoretical.bytes : m.bytes; }
double bound_bytes(const InferenceWorkload& s) { return weights_of(s) - unread_experts(s, 1); }
double decode_bound(const InferenceWorkload& s, double gpus) { return bound_rate(s.machine) * gpus / bound_bytes(s); }

Decode decode(const InferenceWorkload& s, int64_t batch, double context) {
  const double b = static_cast<double>(batch), heads = static_cast<double>(s.model.heads * s.model.head_dim);
  Decode r{.batch = batch};
  r.weights = weights_of(s);
  r.cache = b * context_of(s) * kv_bytes_of(s);
  const double read = read_weights(s, b), keys = b * context * kv_bytes_of(s);
  const double linear = b * 2 * s.model.multiplying_parameters(),
               attention = b * 4 * static_cast<double>(s.model.layers()) * heads * context;
  r.intensity = (linear + attention) / (read + keys);
  // Products of linear layers overlap with reads of weights, attention's products with reads of keys and values.
  const auto part = [&](double flops, double bytes) {
    return resource_seconds(
        s.machine,
        {.flops = flops / s.gpus, .bytes = bytes / s.gpus, .products = flops / s.gpus, .product_dtype = s.products});
  };
  const ResourceSeconds layers = part(linear, read), scores = part(attention, keys);
  // A step of decoding streams its weights and reaches the rate of a copy.
  r.weight_seconds = layers.memory * s.machine.reached;
  r.cache_seconds = scores.memory * s.machine.reached;
  r.product_seconds = layers.products + scores.products;
  r.communication_seconds = communication(s, b);
  r.launch_seconds = 8 * static_cast<double>(s.model.layers()) * s.machine.launch;
  const double of_layers = std::max(r.weight_seconds, layers.products),
               of_scores = std::max(r.cache_seconds, scores.products);
  r.seconds = of_layers + of_scores + r.communication_seconds + r.launch_seconds;
  r.fits = r.weights + r.cache <= s.usable_memory();
  const double most = std::max({of_layers, of_scores, r.communication_seconds});
  r.bound = most == r.communication_seconds                            ? "communication"
            : most == of_layers && layers.products <= r.weight_seconds ? "weights"
            : most == of_scores && scores.products <= r.cache_seconds  ? "keys and values"
                                                                       : "products";
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
  const auto bound = [&](int64_t b) {
    const Decode d = decode(s, b, 0);
    return d.product_seconds >= d.weight_seconds;
  };
  int64_t b = 1;
  while (!bound(b)) {
    if (b > int64_t{1} << 24) return 0;
    b += b < 64 ? 1 : b / 64;
  }
  while (b > 1 && bound(b - 1)) --b;
  return static_cast<double>(b);
}

int64_t largest_batch(const InferenceWorkload& s) {
  const double left = s.usable_memory() - weights_of(s);
  return left <= 0 ? 0 : static_cast<int64_t>(left / (context_of(s) * kv_bytes_of(s)));
}

int gpus_needed(InferenceWorkload s) {
  for (s.gpus = 1; s.gpus <= 1 << 20; s.gpus *= 2)
    if (largest_batch(s) >= 1) return s.gpus;
  return 0;
}

std::vector<InferenceChange> inference_changes(const InferenceWorkload& s, const std::string& text) {
  static constexpr std::string_view kNames[] = {"kv_heads", "context"};
  static constexpr const char* kNeed = "with --inference, need kv_heads=1,8,H or context=8192,32768, or both";
  std::vector<int64_t> heads, contexts;
  for (const ChangeList& list : change_lists(text, kNames, kNeed))
    for (const std::string& value : list.values) {
      const bool of_heads = list.name == "kv_heads";
      int64_t n = of_heads && value == "H" ? s.model.heads : 0;
      if (n == 0) {
        const std::optional<int64_t> given = parse_number<int64_t>(value, 1, int64_t{1} << 40);
        WEFT_CHECK(given, "what_if: got '", list.name, "=", one_line(value, 40), "'; ", kNeed);
        n = *given;
      }
      (of_heads ? heads : contexts).push_back(n);
    }
  std::vector<InferenceChange> all;
  for (size_t i = 0; i < std::max<size_t>(1, contexts.size()); ++i)
    for (size_t k = 0; k < std::max<size_t>(1, heads.size()); ++k) {
      InferenceChange& c = all.emplace_back();
      if (!contexts.empty()) c.context = contexts[i];
      if (!heads.empty()) c.kv_heads = heads[k];
    }
  return all;
}

InferenceWorkload changed(InferenceWorkload s, const InferenceChange& c) {
  if (c.kv_heads) {
    WEFT_CHECK(s.model.heads % *c.kv_heads == 0, "what_if: kv_heads is ", *c.kv_heads, "; need a divisor of heads, ",
               s.model.heads);
    s.model = s.model.with_kv_heads(*c.kv_heads);
  }
  if (c.context) {
    WEFT_CHECK(*c.context > s.generated, "what_if: context is ", *c.context, "; need more than the generated tokens, ",
               s.generated, " (--generated)");
    s.prompt = *c.context - s.generated;
  }
  return s;
}

}  // namespace weft::planner
