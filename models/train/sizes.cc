#include "models/train/sizes.h"

#include <algorithm>
#include <string>

#include "distributed/control/identity.h"
#include "distributed/launch/free_memory.h"
#include "framework/base/saturate.h"
#include "framework/base/units.h"

namespace weft::train {
namespace {

// A process has tokens and targets of 4 bytes, in the batch of the loader and as arguments of the step.
constexpr int64_t kBytesOfToken = 16;
// A weight and the two moments of AdamW, in f32. Gradients and activations need more.
constexpr int64_t kBytesOfWeight = 12;

std::string text_of(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

}  // namespace

void check_batch_fits(const char* flag, int64_t rows, int64_t length, int64_t memory) {
  const int64_t need = saturating_mul(saturating_mul(rows, length), kBytesOfToken);
  check_flag(flag, memory < 0 || need <= memory, str_cat(rows),
             str_cat("at most ", memory / kBytesOfToken / length, ": the tokens of a step with --seq_len ", length,
                     " take ", text_of(need), ", and this host has ", text_of(memory), " of memory"));
}

int64_t memory_of_state(Device device) {
  const bool here = device.type == DeviceType::kCpu && control::identity_of(control::environment()).one_host();
  return here ? dist::host_memory() : -1;
}

void check_model_fits(const TrainOptions& o, const Setup& p, const nn::LanguageModel& model, int64_t memory) {
  int64_t weights = 0;
  for (const Parameter& parameter : model.parameters()) {
    int64_t n = 1;
    for (const int64_t extent : parameter.type().shape) n = saturating_mul(n, extent);
    weights = saturating_add(weights, n);
  }
  const int64_t need = saturating_mul(weights, kBytesOfWeight);
  std::string set;
  for (const auto& [field, value] : o.set) set += str_cat(set.empty() ? "" : ",", field, "=", value);
  check_flag(source_flag(o), memory < 0 || need <= memory,
             str_cat(p.config_name, set.empty() ? "" : " with --set ", set),
             str_cat("a smaller model: its weights and the moments of the optimizer take ", text_of(need),
                     ", and this host has ", text_of(memory), " of memory"));
}

void check_length(const TrainOptions& o, int64_t context) {
  check_flag("seq_len", o.seq_len <= context, std::to_string(o.seq_len),
             str_cat("at most the model's context of ", context));
}

void check_vocabulary(const TrainOptions& o, const Setup& p, const nn::LanguageModel& model, int64_t need) {
  if (!p.on_text || model.vocab() >= need) return;
  const std::string flag = source_flag(o), set = flag == "config" ? str_cat(", --set vocab=", need) : "";
  usage_error(str_cat("--", flag, ": '", p.config_name, "' has a vocabulary of ", model.vocab(), " tokens; text needs ",
                      need, "; use --data synthetic, another --tokenizer", set, " or another model"));
}

}  // namespace weft::train
