#include "tools/precision/training.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "distributed/launch/compile.h"
#include "distributed/plan/report.h"
#include "framework/base/units.h"
#include "framework/cli/cli.h"
#include "models/data/corpus.h"
#include "models/train/generate.h"
#include "tools/doctor/machine.h"
#include "tools/step/model_step.h"

namespace weft::precision {
namespace {

std::unique_ptr<nn::LanguageModel> make_model(const RunOptions& o) {
  const nn::ModelFamily& family = tools::family_of(o.model);
  nn::ConfigMap config = tools::config_of(family, o.config, o.fields);
  if (std::stoll(config.at("vocab")) < 256) config["vocab"] = "256";  // the text's tokens are bytes
  auto model = family.make(config);
  if (o.seq_len > model->context())
    usage_error(str_cat("--seq_len is ", o.seq_len, "; need at most the context of ",
                        o.config.empty() ? family.default_preset : o.config, ", ", model->context()));
  return model;
}

/// Log-probabilities f32 [B, T - 1] of the tokens after the first.
Tensor token_log_probs(const nn::LanguageModel& model, const Tensor& tokens_BT) {
  const int64_t length = tokens_BT.size(1);
  return train::target_log_probs(model, tokens_BT.slice(1, 0, length - 1), tokens_BT.slice(1, 1, length));
}

std::vector<double> doubles(const Tensor& t) { return t.to(kFloat64).to_vector<double>(); }

double mean_of(std::span<const double> v) {
  double s = 0;
  for (double x : v) s += x;
  return v.empty() ? 0 : s / static_cast<double>(v.size());
}

/// A step's update in the trainer's order: gradients of the scaled loss, clipped; whether they are finite. The
/// trainer's own update cannot round gradients and has the model's loss; REINFORCE needs another loss.
class TrainerUpdate {
 public:
  TrainerUpdate(const nn::LanguageModel& model, const PrecisionMode& mode, double lr)
      : mode_(mode), opt_(model.parameters(), optim::AdamWOptions{.lr = lr}) {
    if (mode.dtype == kFloat16) scaler_.emplace();
  }
  Tensor operator()(const Tensor& loss) {
    Gradients grads = grad(scaler_ ? scaler_->scale(loss) : loss, opt_.parameters());
    const NoGrad guard;
    if (scaler_) grads = scaler_->unscale(grads);
    if (mode_.exponent > 0)
      for (Tensor& g : grads) g = round_to(g, mode_.exponent, mode_.mantissa);
    const auto [clipped, norm] = optim::clip_grad_norm(grads, 1.0);
    const Tensor ok = logical_and(isfinite(loss), isfinite(norm));
    if (scaler_) scaler_->update(ok);
    commit_if(ok);
    opt_.step(clipped);
    return ok;
  }

 private:
  PrecisionMode mode_;
  optim::AdamW opt_;
  std::optional<optim::GradScaler> scaler_;
};

}  // namespace

int64_t context_of(const RunOptions& o) { return make_model(o)->context(); }

void check_memory(const RunOptions& o) {
  tools::ModelStep step(
      {.model = o.model, .config = o.config, .fields = o.fields, .batch_size = o.batch_size, .seq_len = o.seq_len},
      Device::meta());
  step.prepare();
  const auto peak = static_cast<double>(step.compiled().plan("cpu").peak_bytes());
  WEFT_CHECK_AS(kResourceExhausted, peak <= tools::usable_memory(), step.title(), ": a step needs ", bytes_text(peak),
                " at its peak, and this process may use ", bytes_text(tools::usable_memory()),
                "; choose a smaller --config, --batch_size or --seq_len");
}

const std::vector<PrecisionMode>& training_modes() {
  static const std::vector<PrecisionMode> modes{{"f32"},
                                                {"bf16", kBFloat16},
                                                {"f16", kFloat16},
                                                {"f32, gradients in E5M2", kFloat32, 5, 2},
                                                {"f32, gradients in E4M3", kFloat32, 4, 3}};
  return modes;
}
std::vector<PrecisionMode> dtype_modes() { return {training_modes().begin(), training_modes().begin() + 3}; }

struct Training::TrainingState {
  using StepFunction = std::function<std::vector<Tensor>(const Tensor&, const Tensor&)>;
  std::unique_ptr<nn::LanguageModel> model;
  TrainerUpdate update;
  data::ShuffledLoader loader;
  Compiled<StepFunction> step;

  TrainingState(std::unique_ptr<nn::LanguageModel> made, const RunOptions& o, const PrecisionMode& mode)
      : model(std::move(made)),
        update(*model, mode, o.lr),
        loader(data::tokenize(data::embedded_corpus(), data::ByteTokenizer(), "the embedded text"),
               {o.batch_size, o.seq_len, o.seed}),
        step(dist::compile(StepFunction([this](const Tensor& tokens, const Tensor& targets) {
                             const nn::LossOut out = model->loss(tokens, targets);
                             const Tensor ok = update(out.loss);
                             model->update_balance(out.expert_counts);
                             return std::vector{out.ce, ok, out.expert_counts, out.dropped};
                           }),
                           CompileOptions{.mesh = dist::Mesh::parse(o.mesh, {})})) {}
};

Training::Training(const RunOptions& o, const PrecisionMode& mode) {
  manual_seed(o.seed);
  std::unique_ptr<nn::LanguageModel> model = make_model(o);
  if (mode.dtype != kFloat32) model->set_compute_dtype(mode.dtype);
  state_ = std::make_unique<TrainingState>(std::move(model), o, mode);
}
Training::~Training() = default;

nn::LanguageModel& Training::model() const { return *state_->model; }
const Graph& Training::graph() const { return state_->step.graph("joint"); }

std::pair<Tensor, Tensor> Training::next_batch() {
  const data::Batch b = state_->loader.next();
  const auto tensor = [&](const std::vector<int32_t>& ids) {
    return Tensor::from_vector<int32_t>(ids, {b.rows, b.seq_len});
  };
  return {tensor(b.tokens), tensor(b.targets)};
}

double Training::step() {
  const auto [tokens, targets] = next_batch();
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Tensor> out = state_->step(tokens, targets);
  const double loss = out[0].item<double>();
  seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  skipped_ += !out[1].item<bool>();
  counts_ = out[2].to_vector<int64_t>();
  dropped_ = out[3].to_vector<double>();
  return loss;
}

DecodingMismatch mismatch_of(std::span<const double> forward, std::span<const double> decoded) {
  DecodingMismatch m;
  std::vector<double> ratios;
  for (size_t i = 0; i < forward.size(); ++i) {
    const double d = decoded[i] - forward[i];
    m.mean += std::fabs(d);
    m.max = std::max(m.max, std::fabs(d));
    m.bias += d;
    ratios.push_back(std::fabs(std::expm1(d)));
  }
  if (ratios.empty()) return m;
  const auto n = static_cast<double>(ratios.size());
  m.mean /= n, m.bias /= n;
  std::sort(ratios.begin(), ratios.end());
  m.ratio_99 = ratios[static_cast<size_t>(0.99 * (n - 1))];
  return m;
}

ForwardScorer::ForwardScorer(const nn::LanguageModel& model)
    : run_(compile(std::function([&model](const Tensor& tokens) {
        const NoGrad guard;
        return token_log_probs(model, tokens);
      }))) {}
std::vector<double> ForwardScorer::operator()(const Tensor& tokens) const { return doubles(run_(tokens)); }

Decoder::Decoder(const nn::LanguageModel& model, int64_t batch, int64_t length)
    : vocab_(model.vocab()),
      batch_(batch),
      cache_(model.make_cache(batch, length)),
      run_(compile(std::function([&model, cache = cache_](const Tensor& tokens) {
        const NoGrad guard;
        return log_softmax(model.next_logits(tokens, cache).to(kFloat32), -1);
      }))) {}

Decoder::ScoredText Decoder::decode(std::span<const int64_t> first, int64_t length, const TokenChoice& choose) const {
  cache_.reset();
  const auto batch = static_cast<size_t>(batch_), steps = static_cast<size_t>(length - 1),
             vocab = static_cast<size_t>(vocab_);
  std::vector<int64_t> now(first.begin(), first.end()), all(batch * (steps + 1));
  ScoredText text;
  text.log_probs.resize(batch * steps);
  for (size_t b = 0; b < batch; ++b) all[b * (steps + 1)] = now[b];
  for (size_t t = 0; t < steps; ++t) {
    const std::vector<float> log_probs = run_(Tensor::from_vector<int64_t>(now, {batch_, 1})).to_vector<float>();
    for (size_t b = 0; b < batch; ++b) {
      const std::span<const float> row = std::span(log_probs).subspan(b * vocab, vocab);
      now[b] = choose(static_cast<int64_t>(b), static_cast<int64_t>(t), row);
      all[b * (steps + 1) + t + 1] = now[b];
      text.log_probs[b * steps + t] = static_cast<double>(row[now[b]]);
    }
  }
  text.tokens = Tensor::from_vector<int64_t>(all, {batch_, length});
  return text;
}

Decoder::ScoredText Decoder::sample(std::span<const int64_t> first, int64_t length, uint64_t seed) const {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  return decode(first, length, [&](int64_t, int64_t, std::span<const float> log_probs) {
    return int64_t{train::sample_token(log_probs, {}, uniform(random))};
  });
}

std::vector<double> Decoder::score(const Tensor& tokens) const {
  const std::vector<int64_t> ids = tokens.to(kInt64).to_vector<int64_t>();
  const int64_t length = tokens.size(1);
  std::vector<int64_t> first;
  for (int64_t b = 0; b < batch_; ++b) first.push_back(ids[b * length]);
  return decode(first, length,
                [&](int64_t row, int64_t at, std::span<const float>) { return ids[row * length + at + 1]; })
      .log_probs;
}

std::vector<ReinforceStep> reinforce(const RunOptions& run, const nn::LanguageModel& start, const PrecisionMode& mode,
                                     const ReinforceOptions& o,
                                     const std::function<bool(int64_t, const ReinforceStep&)>& progress) {
  const std::unique_ptr<nn::LanguageModel> model = make_model(run), before = make_model(run);
  for (nn::LanguageModel* m : {model.get(), before.get()}) {
    m->load_state_dict(start.state_dict());
    m->eval();
  }
  if (mode.dtype != kFloat32) model->set_compute_dtype(mode.dtype);
  TrainerUpdate update(*model, mode, o.lr);
  const Decoder decoder(*model, o.texts, o.length);
  const ForwardScorer forward(*model), at_start(*before);
  // The gradient of the mean over tokens of log p times the text's advantage.
  const auto step = compile(std::function([&](const Tensor& tokens_BT, const Tensor& advantage_B) {
    return update(neg(mean(token_log_probs(*model, tokens_BT) * advantage_B.unsqueeze(-1))));
  }));
  std::vector<ReinforceStep> steps;
  const std::vector<int64_t> first(static_cast<size_t>(o.texts), '\n');
  for (int64_t k = 0; k < o.steps; ++k) {
    const Decoder::ScoredText text = decoder.sample(first, o.length, o.seed * 1000003 + static_cast<uint64_t>(k));
    const std::vector<int64_t> ids = text.tokens.to_vector<int64_t>();
    std::vector<double> rewards;
    for (int64_t b = 0; b < o.texts; ++b) {
      double vowels = 0;
      for (int64_t t = 1; t < o.length; ++t)
        vowels += std::string_view("aeiou").find(static_cast<char>(ids[b * o.length + t])) != std::string_view::npos;
      rewards.push_back(vowels / static_cast<double>(o.length - 1));
    }
    ReinforceStep s;
    s.reward = mean_of(rewards);
    const std::vector<double> now = forward(text.tokens), then = at_start(text.tokens);
    s.mismatch = mismatch_of(now, text.log_probs);
    s.drift = mean_of(now) - mean_of(then);
    double square = 0;
    for (double r : rewards) square += (r - s.reward) * (r - s.reward);
    const double deviation = std::sqrt(square / static_cast<double>(o.texts)) + 1e-6;
    std::vector<float> advantage;
    for (double r : rewards) advantage.push_back(static_cast<float>((r - s.reward) / deviation));
    step(text.tokens, Tensor::from_vector<float>(advantage, {o.texts}));
    steps.push_back(s);
    if (progress && !progress(k, s)) break;
  }
  return steps;
}

}  // namespace weft::precision
