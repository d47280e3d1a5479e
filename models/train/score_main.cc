// main() of the score programs.
#include <cmath>
#include <iostream>
#include <optional>

#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/nn/nn.h"
#include "models/train/generate.h"
#include "models/train/load.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::train {

int score_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary =
      str_cat("Loss, perplexity and the log-probability of each token of a text under a ", family.name, " model.");
  ModelOptions model;
  File text, tokens, out{File::Use::kWrite};
  const Flags flags = model_flags(
      model,
      {
          {"text", &text, "text file to score"},
          {"tokens", &tokens, "file of token ids separated by white space, instead of --text"},
          {"out", &out, "file for one JSON object {token, logprob} a line and {loss, perplexity, tokens} at the end"},
      });
  return run_program(argc, argv, summary.c_str(), flags, [&] {
    if (!text == !tokens) usage_error("need one of --text FILE and --tokens FILE");
    const std::string& path = (text ? text : tokens).path;
    if (text) need_tokenizer(model, "--text");
    const LoadedModel m = load_model(family, model);
    const std::vector<int32_t> ids =
        tokens ? read_ids(path, *m.model) : m.tokenizer->encode(io::read_file(path, int64_t{1} << 32));
    WEFT_CHECK(ids.size() >= 2, path, ": has ", ids.size(), " tokens; need at least 2");
    std::optional<io::AtomicFile> file;
    if (out) file.emplace(out.path);
    const std::vector<double> lp = score(*m.model, ids);
    double total = 0;
    for (double v : lp) total -= v;
    const double loss = total / static_cast<double>(lp.size());
    io::OrderedJson last;
    last["loss"] = loss;
    last["perplexity"] = std::exp(loss);
    last["tokens"] = lp.size();
    if (file) {
      for (size_t i = 0; i < lp.size(); ++i) {
        io::OrderedJson j;
        j["token"] = ids[i + 1];
        j["logprob"] = lp[i];
        file->write(io::write_json(j) + "\n");
      }
      file->write(io::write_json(last) + "\n");
      file->commit();
    }
    std::cout << io::write_json(last) << "\n";
    return 0;
  });
}

}  // namespace weft::train
