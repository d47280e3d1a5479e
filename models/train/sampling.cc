#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/data/mix.h"
#include "models/train/generate.h"
#include "weft.h"

namespace weft::train {

int32_t sample_token(std::span<const float> logits, const SampleOptions& o, double draw) {
  WEFT_CHECK(!logits.empty(), "sample: no logits");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  WEFT_CHECK_AS(kInternal, std::isfinite(logits[order[0]]), "sample: the model's logits are not finite");
  if (o.temperature == 0) return order[0];
  size_t n = o.top_k > 0 ? std::min<size_t>(o.top_k, order.size()) : order.size();
  std::vector<double> p(n);
  double total = 0;
  for (size_t i = 0; i < n; ++i)
    total += p[i] = std::exp((static_cast<double>(logits[order[i]]) - logits[order[0]]) / o.temperature);
  if (o.top_p < 1) {
    double kept = 0;
    size_t i = 0;
    while (i < n && kept < o.top_p * total) kept += p[i++];
    n = std::max<size_t>(i, 1);
    total = kept;
  }
  double at = draw * total;
  for (size_t i = 0; i + 1 < n; ++i) {
    at -= p[i];
    if (at < 0) return order[i];
  }
  return order[n - 1];
}

std::vector<int32_t> generate(const nn::LanguageModel& model, std::vector<int32_t> prompt, const SampleOptions& options,
                              const std::function<bool(int32_t)>& emit) {
  WEFT_CHECK(!prompt.empty(), "generate: the prompt is empty; need at least one token");
  for (int32_t id : prompt)
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < model.vocab(), "generate: token ", id,
                  " in the prompt; the model knows 0 to ", model.vocab() - 1);
  NoGrad guard;
  const int64_t context = model.context();
  nn::KvCache cache = model.make_cache(1, context);
  auto step = compile([&](Tensor tokens) {
    NoGrad inside;
    Tensor logits = model.logits(tokens, cache);
    return logits.slice(1, tokens.size(1) - 1, tokens.size(1)).reshape({model.vocab()}).to(kFloat32);
  });
  std::vector<int32_t> all = prompt, made;
  auto feed = [&](std::span<const int32_t> ids) {
    const Tensor tokens = Tensor::from_vector<int32_t>({ids.begin(), ids.end()}, {1, static_cast<int64_t>(ids.size())});
    return step(tokens.to(model.device())).to_vector<float>();
  };
  // Keeps the last half of the context once it is full (or all of a short prompt).
  auto restart = [&] {
    cache.reset();
    const size_t n = std::min<size_t>(all.size(), std::max<int64_t>(1, context / 2));
    return feed(std::span(all).last(n));
  };
  std::vector<float> logits;
  int64_t held = 0;
  if (static_cast<int64_t>(all.size()) < context) {
    logits = feed(all);
    held = static_cast<int64_t>(all.size());
  } else {
    logits = restart();
    held = std::max<int64_t>(1, context / 2);
  }
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const double draw = static_cast<double>(data::mix64(options.seed * 0x9e3779b97f4a7c15u + i) >> 11) * 0x1p-53;
    const int32_t id = sample_token(logits, options, draw);
    all.push_back(id);
    made.push_back(id);
    if ((emit && !emit(id)) || i + 1 == options.max_new_tokens) break;
    if (held + 1 > context) {
      logits = restart();
      held = std::min<int64_t>(static_cast<int64_t>(all.size()), std::max<int64_t>(1, context / 2));
    } else {
      logits = feed({&id, 1});
      ++held;
    }
  }
  return made;
}

std::vector<double> score(const nn::LanguageModel& model, std::span<const int32_t> tokens) {
  for (int32_t id : tokens)
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < model.vocab(), "score: token ", id, "; the model knows 0 to ",
                  model.vocab() - 1);
  NoGrad guard;
  auto log_probs = compile([&](Tensor x, Tensor y) {
    NoGrad inside;
    Tensor lp = log_softmax(model.logits(x).to(kFloat32), -1);
    return gather(lp, -1, y.unsqueeze(-1)).squeeze(-1);
  });
  // Windows of the context's length; each but the first scores only its later half.
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

}  // namespace weft::train
