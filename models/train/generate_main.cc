// Flags of the generate programs.
#include <iostream>

#include "absl/flags/flag.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/data/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/generate.h"
#include "models/train/load.h"
#include "weft.h"

ABSL_FLAG(std::string, checkpoint, "", "checkpoint folder step_N, or a folder of them (the newest); needed");
ABSL_FLAG(std::string, prompt, "\n", "text to continue");
ABSL_FLAG(int64_t, max_new_tokens, 400, "tokens to write");
ABSL_FLAG(double, temperature, 0.8, "above 1 is bolder, below 1 safer; 0 always takes the likeliest token");
ABSL_FLAG(int64_t, top_k, 0, "choose among the k likeliest tokens; 0: among all");
ABSL_FLAG(double, top_p, 1.0, "choose among the likeliest tokens that have this much probability together");
ABSL_FLAG(int64_t, seed, 0, "seed of the choices");
ABSL_FLAG(std::string, dtype, "f32", "f32, bf16 or f16: what activations are computed in");
ABSL_FLAG(bool, json, false, "print one JSON object {prompt_ids, ids, text} instead of the text");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or cuda:N: where the model runs");
ABSL_FLAG(int64_t, threads, 0, "threads; 0: all cores");

namespace weft::train {

int generate_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary = str_cat("Writes text with a ", family.name, " model.");
  return run_program(argc, argv, summary.c_str(), [&](const std::vector<std::string>& rest) {
    if (!rest.empty()) usage_error(str_cat("unexpected argument '", rest[0], "'; --help lists the flags"));
    SampleOptions o{.max_new_tokens = absl::GetFlag(FLAGS_max_new_tokens),
                    .temperature = absl::GetFlag(FLAGS_temperature),
                    .top_k = absl::GetFlag(FLAGS_top_k),
                    .top_p = absl::GetFlag(FLAGS_top_p),
                    .seed = static_cast<uint64_t>(absl::GetFlag(FLAGS_seed))};
    const std::string prompt = absl::GetFlag(FLAGS_prompt);
    if (absl::GetFlag(FLAGS_checkpoint).empty())
      usage_error("--checkpoint is needed: a folder that a train program wrote");
    if (prompt.empty()) usage_error("--prompt: got an empty text; need at least one character");
    if (o.max_new_tokens < 0) usage_error(str_cat("--max_new_tokens: got ", o.max_new_tokens, "; need 0 or more"));
    if (!(o.temperature >= 0)) usage_error(str_cat("--temperature: got ", o.temperature, "; need 0 or more"));
    if (o.top_k < 0) usage_error(str_cat("--top_k: got ", o.top_k, "; need 0 or more"));
    if (!(o.top_p > 0 && o.top_p <= 1)) usage_error(str_cat("--top_p: got ", o.top_p, "; need above 0 and at most 1"));
    const int64_t threads = absl::GetFlag(FLAGS_threads);
    if (threads < 0) usage_error(str_cat("--threads: got ", threads, "; need 0 or more"));
    if (threads > 0) set_num_threads(static_cast<int>(threads));
    LoadedModel m =
        load_model(family, absl::GetFlag(FLAGS_checkpoint), absl::GetFlag(FLAGS_dtype), absl::GetFlag(FLAGS_device));
    const std::vector<int32_t> ids = m.tokenizer->encode(prompt);
    const bool json = absl::GetFlag(FLAGS_json);
    watch_interrupts();
    if (!json) std::cout << prompt << std::flush;
    const std::vector<int32_t> made = generate(*m.model, ids, o, [&](int32_t id) {
      if (!json) std::cout << m.tokenizer->decode({&id, 1}) << std::flush;
      return !interrupted();
    });
    if (json) {
      io::OrderedJson j;
      j["prompt_ids"] = ids;
      j["ids"] = made;
      j["text"] = m.tokenizer->decode(made);
      std::cout << io::write_json(j);
    }
    std::cout << "\n";
    return 0;
  });
}

}  // namespace weft::train
