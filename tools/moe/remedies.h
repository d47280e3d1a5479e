// What dropping, the auxiliary loss and the bias recover of the time that uneven load costs, in training from a skewed
// start.
#pragma once
#include "tools/precision/training.h"
#include "tools/study/report.h"

namespace weft::moe_study {

struct RemedyOptions {
  double skew = 0.9;  // share of the choices that expert 0 has at the start
  double capacity_factor = 1.25, aux_loss = 0.05, bias_rate = 0.005;
  int64_t steps = 300, rounds = 5;  // of training; of measuring the experts' phase
};

/// Changes embeddings and routers so that expert 0 gets `share` of these tokens' choices, as the mean over the layers,
/// within 0.01: all embeddings get a direction in common, which the router's row of expert 0 reads. Throws
/// FailedPrecondition if no strength of it does that.
void skew_start(const nn::LanguageModel& model, const Tensor& tokens, double share);

/// Trains the model once with nothing against uneven load and once with each remedy, in turn step by step: with equal
/// batches, and from equal weights but for the bias. Each token has one choice, so that the start is V29's.
study::Report remedy_study(precision::RunOptions run, const RemedyOptions& o);

}  // namespace weft::moe_study
