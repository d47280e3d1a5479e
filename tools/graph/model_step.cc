#include "tools/graph/model_step.h"

#include <algorithm>
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

ModelStep::ModelStep(const StepChoice& c) {
  const nn::ModelFamily& family = family_of(c.model);
  const std::string config = c.config.empty() ? family.default_preset : c.config;
  WEFT_CHECK(c.batch_size >= 1, "--batch_size is ", c.batch_size, "; need 1 or more");
  WEFT_CHECK(c.dtype == "f32" || c.dtype == "bf16", "--dtype is '", c.dtype, "'; need f32 or bf16");
  model_ = family.make(family.preset(config));
  model_->to(Device::meta());  // a step of any size is planned without its memory
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
  const Tensor ids = Tensor::empty({kInt32, Device::meta(), {c.batch_size, length}});
  step_->prepare(ids, ids);
  title_ = str_cat(c.model, " ", config, ", batch ", c.batch_size, " of ", length, " tokens, ", c.dtype,
                   c.mesh.empty() ? std::string() : str_cat(", mesh ", c.mesh), c.forward ? ", forward" : "");
}

}  // namespace weft::tools
