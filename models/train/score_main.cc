// main() of the score programs.
#include <cmath>
#include <functional>
#include <iostream>
#include <optional>

#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/utf8.h"
#include "models/nn/nn.h"
#include "models/text/template/unicode.h"
#include "models/train/generate.h"
#include "models/train/load.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::train {

TextPair read_pair(const LoadedModel& m, std::string_view line, const std::string& where) {
  const io::Json j = io::parse_json(line, where);
  std::string context = io::json_get<std::string>(j, "context", where),
              continuation = io::json_get<std::string>(j, "continuation", where);
  const size_t end = context.size() - io::trailing(context, text::jinja::is_space);
  continuation.insert(0, context, end);
  context.resize(end);
  WEFT_CHECK(!continuation.empty(), where, ": the continuation is empty; need text");
  TextPair p{m.tokenizer->encode(context), m.tokenizer->encode(context + continuation)};
  const size_t cut = std::min(p.context.size(), p.continuation.size());
  p.continuation.erase(p.continuation.begin(), p.continuation.begin() + static_cast<ptrdiff_t>(cut));
  WEFT_CHECK(!p.continuation.empty(), where, ": the continuation adds no token to the context");
  if (!p.context.empty()) return p;
  // Without a context: the token that begins a text, else the token that ends one.
  if (const std::span<const int32_t> before = m.tokenizer->before(); !before.empty())
    p.context.push_back(before[0]);
  else if (!m.end_ids.empty())
    p.context.push_back(m.end_ids[0]);
  else if (m.tokenizer->end_of_text() >= 0)
    p.context.push_back(m.tokenizer->end_of_text());
  WEFT_CHECK(!p.context.empty(), where, ": the context is empty, and the model has no token that begins a text");
  return p;
}

namespace {

// One JSON object {logprob, greedy, tokens} for each line {context, continuation}.
void score_pairs(const LoadedModel& m, const std::string& path, const std::function<void(const std::string&)>& write) {
  const ContinuationScorer scorer(*m.model);
  const std::string text = io::read_file(path, int64_t{1} << 32);
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = str_cat(path, ":", number);
    const TextPair p = read_pair(m, line, where);
    const ContinuationScore s = scorer(p.context, p.continuation);
    io::OrderedJson out;
    out["logprob"] = s.logprob;
    out["greedy"] = s.greedy;
    out["tokens"] = s.tokens;
    write(io::write_json(out) + "\n");
  }
}

}  // namespace

int score_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary =
      str_cat("Loss, perplexity and the log-probability of each token of a text under a ", family.name, " model.");
  ModelOptions model;
  File text, tokens, pairs, out{File::Use::kWrite};
  const Flags flags = model_flags(
      model,
      {
          {"text", &text, "text file to score"},
          {"tokens", &tokens, "file of token ids separated by white space, instead of --text"},
          {"pairs", &pairs,
           "instead of --text: file with one JSON object {context, continuation} a line; prints {logprob, greedy, "
           "tokens} of each continuation, with the rules of lm-evaluation-harness"},
          {"out", &out, "file for one JSON object {token, logprob} a line and {loss, perplexity, tokens} at the end"},
      });
  return run_program(argc, argv, summary.c_str(), flags, [&] {
    if (!!text + !!tokens + !!pairs != 1) usage_error("need one of --text FILE, --tokens FILE and --pairs FILE");
    const std::string& path = (text ? text : tokens).path;
    const LoadedModel m = load_model(family, model, /*text=*/!tokens);
    if (pairs) {
      std::optional<io::AtomicFile> file;
      if (out) file.emplace(out.path);
      score_pairs(m, pairs.path, [&](const std::string& line) { file ? file->write(line) : write_output(line); });
      if (file) file->commit();
      return 0;
    }
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
