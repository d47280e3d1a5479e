#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <optional>

#include "compiler/exec/compile.h"
#include "framework/cli/cli.h"
#include "framework/dispatch/state/generator.h"
#include "models/data/mix.h"
#include "models/nn/nn.h"
#include "models/train/generate.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

// Token ids by falling logit, then by id. Sorts only the part that is read.
class Ranking {
 public:
  explicit Ranking(std::span<const float> logits) : logits_(logits), ids_(logits.size()) {
    std::iota(ids_.begin(), ids_.end(), 0);
  }

  int32_t operator[](size_t i) {
    if (i >= sorted_) sort_first(std::max({i + 1, 4 * sorted_, size_t{64}}));
    return ids_[i];
  }

  void sort_first(size_t count) {
    const auto before = [&](int32_t a, int32_t b) {
      return logits_[a] > logits_[b] || (logits_[a] == logits_[b] && a < b);
    };
    const auto begin = ids_.begin() + sorted_, end = ids_.begin() + std::min(count, ids_.size());
    if (begin >= end) return;
    std::nth_element(begin, end - 1, ids_.end(), before);
    std::sort(begin, end, before);
    sorted_ = end - ids_.begin();
  }

 private:
  std::span<const float> logits_;
  std::vector<int32_t> ids_;
  size_t sorted_ = 0;  // ids_ up to here are final
};

}  // namespace

int32_t sample_token(std::span<const float> logits, const SampleOptions& o, double draw) {
  WEFT_CHECK(!logits.empty(), "sample: got no logits; need one or more");
  size_t likeliest = 0;
  bool nan = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    nan = nan || std::isnan(logits[i]);
    if (logits[i] > logits[likeliest]) likeliest = i;
  }
  const float top = logits[likeliest];
  WEFT_CHECK_AS(kInternal, !nan && std::isfinite(top), "sample: the model's logits are not finite");
  if (o.temperature == 0) return static_cast<int32_t>(likeliest);

  const auto weight = [&](int32_t id) { return std::exp((static_cast<double>(logits[id]) - top) / o.temperature); };
  Ranking order(logits);
  size_t n = logits.size();
  double total = 0;
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < n) {
    n = static_cast<size_t>(o.top_k);
    order.sort_first(n);
    for (size_t i = 0; i < n; ++i) total += weight(order[i]);
  } else {
    for (size_t i = 0; i < n; ++i) total += weight(static_cast<int32_t>(i));
  }
  // Keeps the likeliest tokens while keep(weight of the tokens before, weight of the token), but at least one.
  const auto cut = [&](const auto& keep) {
    double kept = 0;
    size_t i = 0;
    for (; i < n; ++i) {
      const double w = weight(order[i]);
      if (i > 0 && !keep(kept, w)) break;
      kept += w;
    }
    n = i;
    total = kept;
  };
  if (o.top_p < 1) cut([most = o.top_p * total](double before, double) { return before < most; });
  if (o.min_p > 0) cut([&](double, double w) { return w >= o.min_p; });  // the likeliest token has the weight 1
  double at = draw * total;
  for (size_t i = 0; i + 1 < n; ++i) {
    at -= weight(order[i]);
    if (at < 0) return order[i];
  }
  return order[n - 1];
}

namespace {

constexpr int64_t kLeastCapacity = 64, kMostAhead = 512;

// Returns a power of two, so that generating many tokens needs few captures.
int64_t capacity_class(int64_t tokens, int64_t context) {
  const auto power = std::bit_ceil(static_cast<uint64_t>(std::max(tokens, kLeastCapacity)));
  return std::min<int64_t>(static_cast<int64_t>(power), context);
}

constexpr int64_t kLeastChunk = 8, kMostChunk = 512;

// The tokens of the next capture for `count` more tokens, of which min(count, result) are read: a power of two, so that
// there are few. `room`: the free part of the context, at least `count`.
int64_t chunk_class(int64_t count, int64_t room) {
  if (count == 1) return 1;
  const auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(count, kMostChunk))));
  const int64_t padded = std::max(up, kLeastChunk);
  return padded <= room ? padded : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count)));
}

}  // namespace

struct TokenDecoder::State {
  const nn::LanguageModel& model;
  nn::KvCache cache;
  std::optional<Compiled<std::function<Tensor(Tensor, Tensor)>>> step = {};  // for this cache
  int64_t held = 0;
  int64_t captures = 0;                                                         // captures of earlier steps
  const Tensor one = Tensor::from_vector<int64_t>({1}, {}).to(model.device());  // the count of most calls

  void need_room(int64_t tokens) {
    if (tokens > cache.capacity) {
      if (step) captures += step->stats().captures;
      step.reset();
      cache = cache.grown(capacity_class(tokens, model.context()));
    }
    if (!step)
      step.emplace(compile(std::function([&model = model, cache = cache](Tensor tokens, Tensor count) {
        NoGrad inside;
        const bool padded = tokens.size(1) > 1;
        const Tensor logits = padded ? model.next_logits(tokens, count, cache) : model.next_logits(tokens, cache);
        return logits.reshape({model.vocab()}).to(kFloat32);
      })));
  }
};

TokenDecoder::TokenDecoder(const nn::LanguageModel& model, int64_t tokens)
    : state_(new State{model, model.make_cache(1, capacity_class(tokens, model.context()))}) {}
TokenDecoder::~TokenDecoder() = default;

std::vector<float> TokenDecoder::read(std::span<const int32_t> ids) {
  State& s = *state_;
  WEFT_CHECK(!ids.empty(), "TokenDecoder: no tokens; need at least one");
  Tensor logits;
  while (!ids.empty()) {
    const auto left = static_cast<int64_t>(ids.size());
    const int64_t size = chunk_class(left, s.model.context() - s.held), count = std::min(left, size);
    s.need_room(s.held + size);
    std::vector<int32_t> chunk(ids.begin(), ids.begin() + count);
    chunk.resize(static_cast<size_t>(size), ids[0]);
    const Device device = s.model.device();
    logits = (*s.step)(Tensor::from_vector<int32_t>(chunk, {1, size}).to(device),
                       size == 1 ? s.one : Tensor::from_vector<int64_t>({count}, {}).to(device));
    s.held += count;
    ids = ids.subspan(static_cast<size_t>(count));
  }
  return logits.to_vector<float>();
}

void TokenDecoder::forget() {
  state_->cache.reset();
  state_->held = 0;
}
int64_t TokenDecoder::held() const { return state_->held; }
int64_t TokenDecoder::captures() const {
  return state_->captures + (state_->step ? state_->step->stats().captures : 0);
}
const nn::LanguageModel& TokenDecoder::model() const { return state_->model; }

void penalize(std::span<float> logits, std::span<const int32_t> text, double penalty) {
  std::vector<bool> seen(logits.size());
  for (int32_t id : text) {
    if (seen[static_cast<size_t>(id)]) continue;
    seen[static_cast<size_t>(id)] = true;
    float& v = logits[static_cast<size_t>(id)];
    v = static_cast<float>(v > 0 ? v / penalty : v * penalty);
  }
}

std::vector<int32_t> generate(const nn::LanguageModel& model, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit) {
  TokenDecoder decoder(model, static_cast<int64_t>(prompt.size()) + std::min(options.max_new_tokens, kMostAhead));
  return generate(decoder, std::move(prompt), options, emit);
}

std::vector<int32_t> generate(TokenDecoder& decoder, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit) {
  const nn::LanguageModel& model = decoder.model();
  WEFT_CHECK(!prompt.empty(), "generate: the prompt is empty; need at least one token");
  for (int32_t id : prompt)
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < model.vocab(), "generate: token ", id,
                  " in the prompt; the model has tokens 0 to ", model.vocab() - 1);
  NoGrad guard;
  const auto context = static_cast<size_t>(model.context()), half = std::max<size_t>(1, context / 2);
  std::vector<int32_t> all = std::move(prompt), made;
  // When the context is full, the decoder starts again with its later half.
  const auto restart = [&] {
    decoder.forget();
    return decoder.read(std::span(all).last(std::min(all.size(), half)));
  };
  if (decoder.held() > 0) decoder.forget();
  std::vector<float> logits = all.size() < context ? decoder.read(all) : restart();
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    if (options.repetition_penalty != 1) penalize(logits, all, options.repetition_penalty);
    const double draw = static_cast<double>(data::mix64(options.seed * 0x9e3779b97f4a7c15u + i) >> 11) * 0x1p-53;
    const size_t tokens = options.vocab > 0 ? std::min<size_t>(options.vocab, logits.size()) : logits.size();
    const int32_t id = sample_token(std::span(logits).first(tokens), options, draw);
    all.push_back(id);
    made.push_back(id);
    if ((emit && !emit(id)) || i + 1 == options.max_new_tokens) break;
    logits = decoder.held() + 1 > model.context() ? restart() : decoder.read({&id, 1});
  }
  return made;
}

void print_sample(nn::LanguageModel& model, const data::Tokenizer& tokenizer, int64_t tokens, uint64_t seed) {
  std::printf("\nA sample of its writing:\n\n");
  model.eval();
  const SampleOptions options{
      .max_new_tokens = tokens, .temperature = 0.8, .top_k = 40, .seed = seed, .vocab = tokenizer.vocab_size()};
  generate(model, tokenizer.encode("\n"), options, [&](int32_t id) {
    std::fputs(tokenizer.decode_continued({&id, 1}).c_str(), stdout);
    std::fflush(stdout);
    return !interrupted();
  });
  std::printf("\n");
}

Tensor target_log_probs(const nn::LanguageModel& model, const Tensor& tokens, const Tensor& targets) {
  const Tensor log_probs = log_softmax(model.logits(tokens).to(kFloat32), -1);
  return gather(log_probs, -1, targets.unsqueeze(-1)).squeeze(-1);
}

std::vector<double> score(const nn::LanguageModel& model, std::span<const int32_t> tokens) {
  for (int32_t id : tokens)
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < model.vocab(), "score: token ", id, "; the model has tokens 0 to ",
                  model.vocab() - 1);
  NoGrad guard;
  auto log_probs = compile([&](Tensor x, Tensor y) {
    NoGrad inside;
    return target_log_probs(model, x, y);
  });
  // Windows of the context's length. Each but the first overlaps the one before and scores only its later half.
  const int64_t n = static_cast<int64_t>(tokens.size()) - 1, window = model.context(),
                stride = std::max<int64_t>(1, window / 2);
  std::vector<double> out;
  for (int64_t done = 0; done < n;) {
    const int64_t begin = done == 0 ? 0 : std::max<int64_t>(0, done - (window - stride));
    const int64_t end = std::min(n, begin + window);
    std::vector<int32_t> x(tokens.begin() + begin, tokens.begin() + end),
        y(tokens.begin() + begin + 1, tokens.begin() + end + 1);
    auto row = [&](const std::vector<int32_t>& ids) {
      return Tensor::from_vector<int32_t>(ids, {1, end - begin}).to(model.device());
    };
    std::vector<double> lp = log_probs(row(x), row(y)).to_vector<double>();
    out.insert(out.end(), lp.begin() + (done - begin), lp.end());
    done = end;
  }
  return out;
}

struct ContinuationScorer::State {
  const nn::LanguageModel& model;
  // tokens, targets [1, T] -> f32 [2, T]: log-probabilities, and 1 where the target is the likeliest token
  Compiled<std::function<Tensor(Tensor, Tensor)>> step;
};

ContinuationScorer::ContinuationScorer(const nn::LanguageModel& model)
    : state_(new State{model, compile(std::function([&model](Tensor x, Tensor y) {
                         NoGrad inside;
                         const Tensor log_probs = log_softmax(model.logits(x).to(kFloat32), -1);
                         const Tensor chosen = gather(log_probs, -1, y.unsqueeze(-1)).squeeze(-1);
                         return concat({chosen, eq(argmax(log_probs, -1), y.to(kInt64)).to(kFloat32)}, 0, {});
                       }))}) {}
ContinuationScorer::~ContinuationScorer() = default;
int64_t ContinuationScorer::captures() const { return state_->step.stats().captures; }

ContinuationScore ContinuationScorer::operator()(std::span<const int32_t> context,
                                                 std::span<const int32_t> continuation) const {
  const nn::LanguageModel& model = state_->model;
  const auto scored = static_cast<int64_t>(continuation.size());
  WEFT_CHECK(!context.empty() && scored > 0, "score: got ", context.size(), " tokens of context and ", scored,
             " of continuation; need at least one each");
  WEFT_CHECK(scored <= model.context(), "score: a continuation has ", scored, " tokens; need at most the context, ",
             model.context());
  std::vector<int32_t> ids(context.begin(), context.end());
  ids.insert(ids.end(), continuation.begin(), continuation.end());
  for (int32_t id : ids)
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < model.vocab(), "score: token ", id, "; the model has tokens 0 to ",
                  model.vocab() - 1);
  const auto most = static_cast<size_t>(model.context()) + 1;
  if (ids.size() > most) ids.erase(ids.begin(), ids.end() - static_cast<ptrdiff_t>(most));
  // Padding is behind all tokens, which do not see it.
  const auto count = static_cast<int64_t>(ids.size()) - 1;
  const auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(count, kLeastChunk))));
  const int64_t size = std::min(up, model.context());
  std::vector<int32_t> x(ids.begin(), ids.end() - 1), y(ids.begin() + 1, ids.end());
  x.resize(static_cast<size_t>(size), 0);
  y.resize(static_cast<size_t>(size), 0);
  NoGrad guard;
  const auto row = [&](const std::vector<int32_t>& v) {
    return Tensor::from_vector<int32_t>(v, {1, size}).to(model.device());
  };
  const std::vector<double> out = state_->step(row(x), row(y)).to_vector<double>();
  ContinuationScore score{.tokens = scored};
  for (int64_t i = count - scored; i < count; ++i) {
    score.logprob += out[static_cast<size_t>(i)];
    score.greedy = score.greedy && out[static_cast<size_t>(size + i)] == 1;
  }
  return score;
}

}  // namespace weft::train
