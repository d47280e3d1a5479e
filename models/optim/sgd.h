// SGD with momentum (Sutskever et al. 2013) and Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon).
#pragma once
#include "models/optim/optimizer.h"

namespace weft::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;  // needs momentum above 0
};

/// g <- g + wd p;  m <- momentum m + g;  p <- p - lr (nesterov ? g + momentum m : m).
class SGD : public Optimizer {
 public:
  SGD(const std::vector<Parameter>& params, const SGDOptions& options = {})
      : SGD(std::vector{ParamGroup{params}}, options) {}
  SGD(std::vector<ParamGroup> groups, const SGDOptions& options = {});

 protected:
  Tensor updated(Update& u) const override;

 private:
  SGDOptions options_;
};

struct MuonOptions {
  double lr = 0.02;
  double momentum = 0.95;
  double weight_decay = 0;
  bool nesterov = true;
  int iterations = 5;  // of Newton-Schulz
};

/// SGD that makes the update of each matrix nearly orthogonal and scales it by sqrt(max(1, rows / columns)). Parameters
/// must have at least two dims; the dims before the last two are a batch (experts). Use AdamW for embeddings and
/// vectors.
class Muon : public Optimizer {
 public:
  Muon(const std::vector<Parameter>& params, const MuonOptions& options = {})
      : Muon(std::vector{ParamGroup{params}}, options) {}
  Muon(std::vector<ParamGroup> groups, const MuonOptions& options = {});

 protected:
  Tensor updated(Update& u) const override;

 private:
  MuonOptions options_;
};

}  // namespace weft::optim
