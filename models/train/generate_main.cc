// main() of the generate programs.
#include <iostream>
#include <optional>

#include "framework/base/clock.h"
#include "framework/cli/cli.h"
#include "framework/dispatch/state/generator.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/nn/nn.h"
#include "models/train/checkpoint.h"
#include "models/train/generate.h"
#include "models/train/load.h"
#include "models/train/prompt.h"

namespace weft::train {

constexpr const char* kPrompt = "\n";

namespace {

// Prompt, new ids and text of a run, and its times.
std::string json_of(const std::vector<int32_t>& prompt, const std::vector<int32_t>& made, const TextStream* stream,
                    bool ended, double prompt_ms, double total_ms) {
  io::OrderedJson j;
  j["prompt_ids"] = prompt;
  j["ids"] = made;
  if (stream) j["text"] = stream->text();
  j["finish"] = stream ? stream->finish() : ended ? "end" : "length";
  const auto later = static_cast<double>(made.size()) - 1;
  j["timings"] = {
      {"prompt_ms", prompt_ms}, {"token_ms", later > 0 ? (total_ms - prompt_ms) / later : 0}, {"total_ms", total_ms}};
  return io::write_json(j);
}

}  // namespace

int generate_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary = str_cat("Writes text with a ", family.name, " model.");
  ModelOptions model;
  PromptOptions asked;
  SampleOptions o{.max_new_tokens = 400, .temperature = 0.8};
  std::string prompt = kPrompt;
  std::vector<std::string> stops;
  File tokens;
  bool json = false;
  Flags own{
      {"prompt", &prompt, "text to continue"},
      {"tokens", &tokens, "file of token ids separated by white space, instead of --prompt; prints ids"},
      {"stop", &stops, "texts that end the new text, separated by commas"},
      {"max_new_tokens", &o.max_new_tokens, "tokens to write", {0}},
      {"temperature", &o.temperature, "above 1 is bolder, below 1 safer; 0 always takes the likeliest token", {0}},
      {"top_k", &o.top_k, "choose among the k likeliest tokens; 0: among all", {0}},
      {"top_p", &o.top_p, "choose among the likeliest tokens whose probabilities sum to this", {0, 1, true}},
      {"min_p", &o.min_p, "drop tokens less likely than this times the likeliest", {0, 1}},
      {"repetition_penalty",
       &o.repetition_penalty,
       "above 1: tokens that the text contains become less likely",
       {0.01, 100}},
      {"seed", &o.seed, "seed of the choices of tokens"},
      {"json", &json, "print one JSON object {prompt_ids, ids, text, finish, timings} instead of the text"},
  };
  const Flags more = prompt_flags(asked);
  own.insert(own.begin() + 2, more.begin(), more.end());
  const Flags flags = model_flags(model, own);
  return run_program(argc, argv, summary.c_str(), flags, [&] {
    if (prompt.empty()) usage_error("--prompt: got an empty text; need at least one character");
    if (tokens && (prompt != kPrompt || asked.chat)) usage_error("need one of --prompt TEXT and --tokens FILE");
    check_prompt(asked);
    for (const std::string& s : stops) check_flag("stop", !s.empty(), "an empty text", "at least one character");
    if (tokens && !stops.empty()) usage_error("--stop: got --tokens; need --prompt, because --tokens prints ids");
    const LoadedModel m = load_model(family, model, /*text=*/!tokens);
    const std::vector<int32_t> ids = tokens ? read_ids(tokens.path, *m.model) : prompt_ids(m, asked, prompt);
    WEFT_CHECK(!ids.empty(), tokens.path, ": has no token; need at least 1");
    if (!tokens) o.vocab = m.tokenizer->vocab_size();
    watch_interrupts();
    std::optional<TextStream> stream;
    if (!tokens) stream.emplace(m, stops, ids);
    if (!json && !tokens && !asked.chat) std::cout << prompt << std::flush;
    const double begin = internal::now_us();
    double first = 0;
    const std::vector<int32_t> made = generate(*m.model, ids, o, [&](int32_t id) {
      if (first == 0) first = internal::now_us();
      const std::string text = stream ? stream->add(id) : str_cat(id, " ");
      if (!json) std::cout << text << std::flush;
      return !interrupted() && !(stream ? stream->ended() : m.ends(id));
    });
    const double end = internal::now_us();
    if (json)
      std::cout << json_of(ids, made, stream ? &*stream : nullptr, !made.empty() && m.ends(made.back()),
                           first == 0 ? 0 : (first - begin) / 1e3, (end - begin) / 1e3);
    else if (stream)
      std::cout << stream->rest();
    std::cout << "\n";
    return interrupted_code();
  });
}

}  // namespace weft::train
