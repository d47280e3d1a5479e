#include "tools/step/model_step.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "distributed/launch/compile.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"

namespace weft::tools {
namespace {

const nn::ModelFamily& family_of(const std::string& name) {
  std::vector<std::string> names;
  for (const nn::ModelFamily* f : {&gpt::family(), &llama::family(), &moe::family()}) {
    if (f->name == name) return *f;
    names.push_back(f->name);
  }
  internal::fail(Code::kInvalidArgument, str_cat("--model is '", name, "'; need one of ", names));
}

}  // namespace

Flags step_flags(StepChoice& c) {
  return {{"model", &c.model, "gpt, llama or moe"},
          {"config", &c.config, "a configuration of the model; empty: its default"},
          {"batch_size", &c.batch_size, "sequences of a step"},
          {"seq_len", &c.seq_len, "tokens of a sequence; 0: the model's context, at most 128"},
          {"dtype", &c.dtype, "f32 or bf16: the dtype of activations"},
          {"mesh", &c.mesh, "mesh of ranks such as dp2,tp2; empty: one device"},
          {"forward", &c.forward, "the loss alone, without gradients and optimiser"}};
}

ModelStep::ModelStep(const StepChoice& c, Device device) {
  const nn::ModelFamily& family = family_of(c.model);
  const std::string config = c.config.empty() ? family.default_preset : c.config;
  WEFT_CHECK(c.batch_size >= 1, "--batch_size is ", c.batch_size, "; need 1 or more");
  WEFT_CHECK(c.seq_len >= 0, "--seq_len is ", c.seq_len, "; need 0 or more");
  WEFT_CHECK(c.dtype == "f32" || c.dtype == "bf16", "--dtype is '", c.dtype, "'; need f32 or bf16");
  model_ = family.make(family.preset(config));
  model_->to(device);
  if (c.dtype == "bf16") model_->set_compute_dtype(kBFloat16);
  const int64_t length = c.seq_len > 0 ? c.seq_len : std::min<int64_t>(model_->context(), 128);
  WEFT_CHECK(length <= model_->context(), "--seq_len is ", length, "; need at most the model's context, ",
             model_->context());
  if (!c.forward) opt_ = std::make_unique<optim::AdamW>(model_->parameters(), optim::AdamWOptions{.lr = 1e-3});
  CompileOptions options;
  if (!c.mesh.empty()) options.mesh = dist::Mesh::parse(c.mesh);
  step_ = std::make_unique<Compiled<Fn>>(
      dist::compile(Fn([this, forward = c.forward](const Tensor& tokens, const Tensor& targets) {
                      const Tensor loss = model_->loss(tokens, targets).loss;
                      if (!forward) opt_->step(optim::clip_grad_norm(grad(loss, opt_->parameters()), 1.0).grads);
                      return loss;
                    }),
                    options));
  shape_ = {c.batch_size, length};
  title_ = str_cat(c.model, " ", config, ", batch ", c.batch_size, " of ", length, " tokens, ", c.dtype,
                   c.mesh.empty() ? std::string() : str_cat(", mesh ", c.mesh), c.forward ? ", forward" : "");
}

void ModelStep::prepare() {
  const Tensor ids = Tensor::empty({kInt32, model_->device(), shape_});
  step_->prepare(ids, ids);
}

double ModelStep::run() {
  const Tensor tokens = randint(0, model_->vocab(), shape_, {.dtype = kInt32});
  const Tensor targets = randint(0, model_->vocab(), shape_, {.dtype = kInt32});
  const auto begin = std::chrono::steady_clock::now();
  (*step_)(tokens, targets).item<float>();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace weft::tools
