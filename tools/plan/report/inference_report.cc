#include <algorithm>

#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/plan/inference.h"
#include "tools/profile/table.h"

namespace weft::planner {
namespace {

using profiler::fixed;
using profiler::number_text;

constexpr int64_t kBatches[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

// The figures of one batch.
struct Batch {
  Decode decode;
  double first_token, tokens_per_second, usd;  // seconds; tokens of all sequences; USD for 10^6 tokens
};

Batch batch_of(const InferenceWorkload& s, int64_t batch, double usd_per_gpu_hour) {
  const Decode d = decode(s, batch, static_cast<double>(s.prompt) + static_cast<double>(s.generated) / 2);
  const double rate = static_cast<double>(batch) / d.seconds;
  return {d, prefill_seconds(s, batch), rate, 1e6 / rate / 3600 * usd_per_gpu_hour * s.gpus};
}

// A changed workload with its largest batch that fits, at the end of its sequences, where keys and values are longest.
struct Changed {
  InferenceWorkload workload;
  double token_bytes, sequence_bytes;  // bytes of keys and values
  int64_t fits;
  Decode decode;  // decoding of this batch; of one sequence if none fits
  double context() const { return static_cast<double>(workload.prompt + workload.generated); }
  double tokens_per_second() const { return static_cast<double>(decode.batch) / decode.seconds; }
};

Changed changed_of(const InferenceWorkload& s, const InferenceChange& change) {
  Changed c{.workload = changed(s, change)};
  c.token_bytes = c.workload.model.kv_bytes(s.kv_bytes);
  c.sequence_bytes = c.token_bytes * c.context();
  c.fits = largest_batch(c.workload);
  c.decode = decode(c.workload, std::max<int64_t>(1, c.fits), c.context());
  return c;
}

std::vector<Changed> all_changed(const InferenceWorkload& s, const std::vector<InferenceChange>& changes) {
  std::vector<Changed> all;
  for (const InferenceChange& change : changes) all.push_back(changed_of(s, change));
  return all;
}

// The batch for comparing rows: the most sequences that fit in every row that fits one.
int64_t common_batch(const std::vector<Changed>& all) {
  int64_t least = 0;
  for (const Changed& c : all)
    if (c.fits > 0) least = least == 0 ? c.fits : std::min(least, c.fits);
  return std::max<int64_t>(1, least);
}

std::string what_if_text(const InferenceWorkload& s, const std::vector<InferenceChange>& changes) {
  const std::vector<Changed> all = all_changed(s, changes);
  const int64_t common = common_batch(all);
  std::vector<std::vector<std::string>> rows{{"what if", "a token", "a sequence", "fit", "step", "tokens/s",
                                              "all tokens/s", "bound by", str_cat("step at ", common),
                                              str_cat("tokens/s at ", common)}};
  for (const Changed& c : all) {
    std::string what =
        str_cat("context ", c.workload.prompt + c.workload.generated, ", kv_heads ", c.workload.model.kv_heads);
    if (c.fits == 0) what += ": does not fit";
    const double at_common = decode(c.workload, common, c.context()).seconds;
    rows.push_back({what, bytes_text(c.token_bytes), bytes_text(c.sequence_bytes), str_cat(c.fits),
                    seconds_text(c.decode.seconds), fixed(1 / c.decode.seconds, 1), fixed(c.tokens_per_second(), 0),
                    c.decode.bound, seconds_text(at_common), fixed(1 / at_common, 1)});
  }
  return profiler::table_text(rows) + str_cat("step and tokens/s: with the sequences that fit in each row, and at ",
                                              common, " sequences; at the end of the context\n");
}

// "693 TFLOP/s, 3 TB/s, 231 operations per byte".
std::string ridge_text(double flops, double bytes) {
  return str_cat(number_text(flops / 1e12), " TFLOP/s, ", number_text(bytes / 1e12), " TB/s, ", fixed(flops / bytes, 0),
                 " operations per byte");
}

}  // namespace

std::string inference_report(const InferenceWorkload& s, double usd, const std::vector<InferenceChange>& changes) {
  const Machine& m = s.machine;
  const Decode one = decode(s, 1, 0);
  const double turn = compute_bound_batch(s), peak = m.products_of(s.products);
  const int needed = gpus_needed(s);
  std::string text = str_cat(s.model.name, ": ", fixed(static_cast<double>(s.model.parameters()) / 1e9, 2),
                             " B parameters, ", bytes_text(one.weights), "; ", s.gpus, " x ", m.name,
                             needed == 0        ? "; no number of GPUs holds a sequence"
                             : s.gpus == needed ? ", the number needed"
                                                : str_cat("; GPUs needed: ", needed),
                             "; ", bytes_text(s.usable_memory()), " usable of ", bytes_text(s.memory()),
                             "; prompts of ", s.prompt, " tokens, ", s.generated, " generated\n");
  text += str_cat("reached on a GPU: ", ridge_text(m.reached * peak, m.bytes));
  if (m.theoretical.bytes > 0) text += str_cat("; data sheet: ", ridge_text(peak, m.theoretical.bytes));
  text += str_cat("\nkeys and values: ", bytes_text(s.model.kv_bytes(2)), " a token in bf16, ",
                  bytes_text(s.model.kv_bytes(1)), " in fp8, ", bytes_text(s.model.kv_bytes(4)), " in f32; ",
                  largest_batch(s), " sequences fit\n");
  text +=
      str_cat("bound of decoding at batch 1, ", bytes_text(bound_bytes(s)), " of weights at ",
              number_text(bound_rate(m) * s.gpus / 1e12), " TB/s: ", fixed(decode_bound(s, s.gpus), 1), " tokens/s\n");
  text += str_cat("decoding has ", fixed(one.intensity, 2),
                  " operations per byte of weights for one sequence, and turns compute-bound at batch ",
                  turn > 0 ? fixed(turn, 0) : std::string("(never)"), ", without keys and values\n");
  std::vector<std::vector<std::string>> rows{{"batch", "first token", "step", "weights", "cache", "products",
                                              "communication", "tokens/s", "all tokens/s", "ops/byte", "cache size",
                                              "bound by"}};
  if (usd > 0) rows[0].push_back("USD/1e6");
  for (int64_t n : kBatches) {
    const Batch b = batch_of(s, n, usd);
    const Decode& d = b.decode;
    rows.push_back({str_cat(n), seconds_text(b.first_token), seconds_text(d.seconds), seconds_text(d.weight_seconds),
                    seconds_text(d.cache_seconds), seconds_text(d.product_seconds),
                    seconds_text(d.communication_seconds), fixed(1 / d.seconds, 1), fixed(b.tokens_per_second, 0),
                    fixed(d.intensity, 1), bytes_text(d.cache), d.bound});
    if (usd > 0) rows.back().push_back(fixed(b.usd, 2));
    if (!d.fits) rows.back().push_back("(does not fit)");
  }
  text += str_cat(
      profiler::table_text(rows),
      "step: reading weights, or their products if these take longer; reading the cache (keys and values, here at the "
      "middle of\ngeneration), or attention's products; then communication and ",
      seconds_text(one.launch_seconds), " of launches\n");
  if (s.gpus > s.model.kv_heads)
    text +=
        str_cat("more GPUs than heads of keys and values, ", s.model.kv_heads,
                ": each GPU has a copy of one, so that the cache of all is ",
                number_text(static_cast<double>(s.gpus) / static_cast<double>(s.model.kv_heads)), " times as large\n");
  return changes.empty() ? text : text + what_if_text(s, changes);
}

std::string inference_json(const InferenceWorkload& s, double usd, const std::vector<InferenceChange>& changes) {
  io::OrderedJson json{{"model", s.model.name},
                       {"parameters", s.model.parameters()},
                       {"machine", s.machine.name},
                       {"gpus", s.gpus},
                       {"prompt", s.prompt},
                       {"generated", s.generated},
                       {"kv_heads", s.model.kv_heads},
                       {"weight_bytes", decode(s, 1, 0).weights},
                       {"kv_bytes_per_token", s.model.kv_bytes(s.kv_bytes)},
                       {"decode_bound_tokens_per_second", decode_bound(s, s.gpus)},
                       {"usable_memory", s.usable_memory()},
                       {"reached_flops", s.machine.reached * s.machine.products_of(s.products)},
                       {"reached_bytes_per_second", s.machine.bytes},
                       {"compute_bound_batch", compute_bound_batch(s)},
                       {"sequences_that_fit", largest_batch(s)},
                       {"gpus_needed", gpus_needed(s)}};
  for (int64_t n : kBatches) {
    const Batch b = batch_of(s, n, usd);
    io::OrderedJson one{{"batch", n},
                        {"first_token_seconds", b.first_token},
                        {"step_seconds", b.decode.seconds},
                        {"tokens_per_second", 1 / b.decode.seconds},
                        {"all_tokens_per_second", b.tokens_per_second},
                        {"operations_per_byte", b.decode.intensity},
                        {"weight_seconds", b.decode.weight_seconds},
                        {"cache_seconds", b.decode.cache_seconds},
                        {"product_seconds", b.decode.product_seconds},
                        {"communication_seconds", b.decode.communication_seconds},
                        {"launch_seconds", b.decode.launch_seconds},
                        {"cache_bytes", b.decode.cache},
                        {"fits", b.decode.fits},
                        {"bound_by", b.decode.bound}};
    if (usd > 0) one["usd_per_1e6_tokens"] = b.usd;
    json["batches"].push_back(std::move(one));
  }
  const std::vector<Changed> all = all_changed(s, changes);
  const int64_t common = common_batch(all);
  for (const Changed& c : all) {
    const double at_common = decode(c.workload, common, c.context()).seconds;
    json["what_if"].push_back({{"kv_heads", c.workload.model.kv_heads},
                               {"context", c.workload.prompt + c.workload.generated},
                               {"kv_bytes_per_token", c.token_bytes},
                               {"kv_bytes_per_sequence", c.sequence_bytes},
                               {"sequences_that_fit", c.fits},
                               {"batch", c.decode.batch},
                               {"step_seconds", c.decode.seconds},
                               {"tokens_per_second", 1 / c.decode.seconds},
                               {"all_tokens_per_second", c.tokens_per_second()},
                               {"common_batch", common},
                               {"step_seconds_at_common_batch", at_common},
                               {"tokens_per_second_at_common_batch", 1 / at_common},
                               {"bound_by", c.decode.bound}});
  }
  return io::write_json(json, 1) + "\n";
}

}  // namespace weft::planner
