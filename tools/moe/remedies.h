// The part of uneven load's cost that dropping, the auxiliary loss and the bias recover, in training from a skewed
// start.
#pragma once
#include "tools/precision/training.h"
#include "tools/study/report.h"

namespace weft::moe_study {

struct RemedyOptions {
  double skew = 0.9;  // expert 0's share of the choices at the start
  double capacity_factor = 1.25, aux_loss = 0.05, bias_rate = 0.005;
  int64_t steps = 300, rounds = 5;  // training steps; rounds of measuring the experts' phase
};

/// Changes embeddings and routers so that expert 0 gets `share` of these tokens' choices, as the mean over the layers,
/// within 0.01: all embeddings get a common direction, which the router's row of expert 0 reads. Throws
/// FailedPrecondition if no strength of this direction gives `share`.
void skew_start(const nn::LanguageModel& model, const Tensor& tokens, double share);

/// Trains the model once without a remedy and once with each remedy, in turn step by step, with equal batches and from
/// equal weights except the bias. Each token has one choice, so that training starts as in vector V29.
study::StudyReport remedy_study(precision::RunOptions run, const RemedyOptions& o);

}  // namespace weft::moe_study
