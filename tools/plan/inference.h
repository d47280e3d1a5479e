// The cost of generating text with a model on GPUs, from its shapes: operations and bytes of prefill and of decoding.
#pragma once
#include <optional>

#include "tools/plan/step_cost.h"

namespace weft::planner {

struct InferenceWorkload {
  ModelShape model;
  Machine machine;
  int gpus = 1;                             // tp splits the model over them
  int64_t prompt = 1024, generated = 1024;  // tokens
  double weight_bytes = 2, kv_bytes = 2;    // bytes of an element
  DType products = kBFloat16;
  double memory_margin = kMemoryMargin;
  /// Bytes of all GPUs together; threads of one CPU share its memory.
  double memory() const { return machine.memory * (machine.shares_cores ? 1 : gpus); }
  double usable_memory() const { return (1 - memory_margin) * memory(); }
};

/// The bound of decoding by the weights that one token uses (of experts, only the chosen), at the data sheet's memory
/// rate: tokens per second of one sequence.
double decode_bound(const InferenceWorkload& s, double gpus);
/// The two terms of decode_bound: bytes per second of a GPU, and bytes.
double bound_rate(const Machine& machine);
double bound_bytes(const InferenceWorkload& s);

/// One token of each of `batch` sequences, with the keys and values of `context` tokens each.
struct Decode {
  int64_t batch = 1;
  double seconds = 0;  // the longer of memory and products, plus communication and launches
  double weight_seconds = 0, cache_seconds = 0,
         product_seconds = 0;  // products overlap with the reads of their operands
  double communication_seconds = 0, launch_seconds = 0;
  double intensity = 0;           // operations per byte
  double weights = 0, cache = 0;  // bytes, over all GPUs
  bool fits = true;
  const char* bound = "";  // memory of weights, memory of keys and values, products, communication
};
Decode decode(const InferenceWorkload& s, int64_t batch, double context);

/// Seconds until `batch` prompts are processed.
double prefill_seconds(const InferenceWorkload& s, int64_t batch);
/// The smallest batch whose products take longer than its memory traffic without keys and values: the machine's ridge
/// over the intensity of one row. 0: none up to 2^24.
double compute_bound_batch(const InferenceWorkload& s);
/// Sequences whose keys and values fit beside the weights at the full context; 0: the weights do not fit.
int64_t largest_batch(const InferenceWorkload& s);
/// The smallest power of 2 of GPUs whose memory holds the weights and one sequence; 0: none up to 2^20.
int gpus_needed(InferenceWorkload s);

/// A change of the heads of keys and values or of the tokens of the longest context; empty: no change.
struct InferenceChange {
  std::optional<int64_t> kv_heads, context;
};
/// "kv_heads=1,8,H,context=8192,32768" gives every combination of the values of both names; H: the number of heads.
/// Throws InvalidArgument, naming the part, for other text.
std::vector<InferenceChange> inference_changes(const InferenceWorkload& s, const std::string& text);
/// The workload after a change. The prompt is the context without the generated tokens. Throws InvalidArgument if the
/// change does not fit the model or the generated tokens.
InferenceWorkload changed(InferenceWorkload s, const InferenceChange& change);

std::string inference_report(const InferenceWorkload& s, double usd_per_gpu_hour,
                             const std::vector<InferenceChange>& changes);
/// The same figures as JSON; bytes, seconds and tokens per second.
std::string inference_json(const InferenceWorkload& s, double usd_per_gpu_hour,
                           const std::vector<InferenceChange>& changes);

}  // namespace weft::planner
