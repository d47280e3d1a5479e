// Fixture: one training step of a model, computed by PyTorch (make_fixtures.py), and the measure of closeness.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/nn/transformer/language_model.h"

namespace weft::testing {

struct Fixture {
  std::unique_ptr<nn::LanguageModel> model;  // model with the fixture's parameters
  Tensor tokens, targets, logits, loss;
  std::map<std::string, Tensor> grads, stepped;  // key: parameter; stepped: after one AdamW step
  double lr = 0, eps = 0, beta1 = 0, beta2 = 0, weight_decay = 0;
};

/// The names of all fixtures.
std::vector<std::string> fixture_names();
Fixture load_fixture(const std::string& name);

/// max over all tensors of max|a - b| / scale, where a tensor's scale is max(max|b|, floor), and the name of the worst
/// tensor. For gradients, floor is a thousandth of the largest element of all gradients; for weights, the learning
/// rate.
struct Closeness {
  double worst = 0;
  std::string name;
};
Closeness gradient_closeness(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b);
Closeness weight_closeness(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b, double lr);

}  // namespace weft::testing
