// main() of the generate programs.
#include <iostream>

#include "framework/cli/cli.h"
#include "framework/dispatch/state/generator.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/data/tokenizer.h"
#include "models/nn/nn.h"
#include "models/train/checkpoint.h"
#include "models/train/generate.h"
#include "models/train/load.h"

namespace weft::train {

constexpr const char* kPrompt = "\n";

int generate_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary = str_cat("Writes text with a ", family.name, " model.");
  ModelOptions model;
  SampleOptions o{.max_new_tokens = 400, .temperature = 0.8};
  std::string prompt = kPrompt;
  File tokens;
  bool json = false;
  const Flags flags = model_flags(
      model,
      {
          {"prompt", &prompt, "text to continue"},
          {"tokens", &tokens, "file of token ids separated by white space, instead of --prompt; prints ids"},
          {"max_new_tokens", &o.max_new_tokens, "tokens to write", {0}},
          {"temperature", &o.temperature, "above 1 is bolder, below 1 safer; 0 always takes the likeliest token", {0}},
          {"top_k", &o.top_k, "choose among the k likeliest tokens; 0: among all", {0}},
          {"top_p",
           &o.top_p,
           "choose among the likeliest tokens that have this much probability together",
           {0, 1, true}},
          {"seed", &o.seed, "seed of the choices"},
          {"json", &json, "print one JSON object {prompt_ids, ids, text} instead of the text"},
      });
  return run_program(argc, argv, summary.c_str(), flags, [&] {
    if (prompt.empty()) usage_error("--prompt: got an empty text; need at least one character");
    if (tokens && prompt != kPrompt) usage_error("need one of --prompt TEXT and --tokens FILE");
    if (!tokens) need_tokenizer(model, "--prompt");
    const LoadedModel m = load_model(family, model);
    const std::vector<int32_t> ids = tokens ? read_ids(tokens.path, *m.model) : m.tokenizer->encode(prompt);
    WEFT_CHECK(!ids.empty(), tokens.path, ": has no token; need at least 1");
    watch_interrupts();
    const auto text_of = [&](int32_t id) { return tokens ? str_cat(id, " ") : m.tokenizer->decode({&id, 1}); };
    if (!json && !tokens) std::cout << prompt << std::flush;
    const std::vector<int32_t> made = generate(*m.model, ids, o, [&](int32_t id) {
      if (!json) std::cout << text_of(id) << std::flush;
      return !interrupted();
    });
    if (json) {
      io::OrderedJson j;
      j["prompt_ids"] = ids;
      j["ids"] = made;
      if (m.tokenizer) j["text"] = m.tokenizer->decode(made);
      std::cout << io::write_json(j);
    }
    std::cout << "\n";
    return interrupted_code();
  });
}

}  // namespace weft::train
