#include "models/train/evaluation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "framework/dispatch/device/host_read.h"
#include "framework/dispatch/rank/flight.h"
#include "models/nn/nn.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft::train {
namespace {

constexpr int64_t kBatches = 8;

CompileOptions step_options(const TrainOptions& o, const dist::Mesh& mesh) {
  CompileOptions step = o.step;
  step.mesh = mesh;
  step.forbid.clear();  // --forbid is for the training step only
  return step;
}

}  // namespace

Evaluation::Evaluation(nn::LanguageModel& model, const data::TokenDataset& text, const TrainOptions& o,
                       const dist::Mesh& mesh, Device device)
    : model_(model),
      device_(device),
      loader_(text, data::LoaderOptions{o.batch_size, o.seq_len, o.seed, "validation"}),
      step_(dist::compile(Fn([this, parts = o.microbatches](const Tensor& tokens, const Tensor& targets) {
                            NoGrad guard;
                            const nn::BatchShare share = nn::BatchShare::of(parts, targets);
                            return accumulate(parts, std::pair{tokens, targets},
                                              [&](Tensor x, Tensor y) { return model_.loss(x, y, share).ce; });
                          }),
                          step_options(o, mesh))) {}

double Evaluation::loss() {
  const flight::HostPhase phase(flight::Phase::kEvaluation);
  model_.eval();
  const int64_t batches = std::min(loader_.batches(), kBatches);
  std::vector<HostRead> losses;
  for (int64_t i = 0; i < batches; ++i) {
    const data::Batch b = loader_.batch(i);
    const auto tensor = [&](const std::vector<int32_t>& ids) {
      return Tensor::from_vector<int32_t>(ids, {b.rows, b.seq_len}).to(device_);
    };
    losses.emplace_back(std::vector{step_(tensor(b.tokens), tensor(b.targets))});
  }
  double total = 0;
  for (HostRead& loss : losses) total += loss.wait()[0].item<double>();
  model_.train();
  return total / static_cast<double>(batches);
}

}  // namespace weft::train
