#include "tools/step/model_step.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "distributed/launch/compile.h"
#include "framework/io/file.h"
#include "models/gpt/config.h"
#include "models/llama/config.h"
#include "models/moe/config.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"
#include "models/train/load.h"

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

struct Chosen {
  std::unique_ptr<nn::LanguageModel> model;
  std::string title;
  int64_t length;
};

// The chosen model, with the checkpoint's weights if `weights`.
Chosen chosen_model(const StepChoice& c, bool weights) {
  WEFT_CHECK(c.batch_size >= 1, "--batch_size is ", c.batch_size, "; need 1 or more");
  WEFT_CHECK(c.seq_len >= 0, "--seq_len is ", c.seq_len, "; need 0 or more");
  WEFT_CHECK(c.dtype == "f32" || c.dtype == "bf16", "--dtype is '", c.dtype, "'; need f32 or bf16");
  Chosen r;
  if (c.checkpoint.empty()) {
    const nn::ModelFamily& family = family_of(c.model);
    const std::string config = c.config.empty() ? family.default_preset : c.config;
    r.model = family.make(family.preset(config));
    r.title = str_cat(c.model, " ", config);
  } else {
    const std::string folder = train::find_checkpoint(io::resolve_path(c.checkpoint));
    const train::TrainState state = train::read_state(folder);
    const nn::ModelFamily& family = family_of(state.family);
    r.model = weights ? train::load_model(family, {.checkpoint = folder}).model : family.make(state.model);
    r.title = str_cat(state.family, " of ", c.checkpoint);
  }
  if (c.dtype == "bf16") r.model->set_compute_dtype(kBFloat16);
  r.length = c.seq_len > 0 ? c.seq_len : std::min<int64_t>(r.model->context(), 128);
  WEFT_CHECK(r.length <= r.model->context(), "--seq_len is ", r.length, "; need at most the model's context, ",
             r.model->context());
  r.title += str_cat(", batch ", c.batch_size, " of ", r.length, " tokens, ", c.dtype);
  return r;
}

}  // namespace

Flags step_flags(StepChoice& c) {
  return {{"model", &c.model, "gpt, llama or moe"},
          {"config", &c.config, "a configuration of the model; empty: its default"},
          {"checkpoint", &c.checkpoint, "a folder that a train program wrote, instead of --model and --config"},
          {"batch_size", &c.batch_size, "sequences of a step"},
          {"seq_len", &c.seq_len, "tokens of a sequence; 0: the model's context, at most 128"},
          {"dtype", &c.dtype, "f32 or bf16: the dtype of activations"},
          {"device", &c.device, "cpu, cuda or cuda:N: where the step runs"},
          {"mesh", &c.mesh, "mesh of ranks such as dp2,tp2; empty: one device"},
          {"forward", &c.forward, "the loss alone, without gradients and optimiser"}};
}

ModelStep::ModelStep(const StepChoice& c, std::optional<Device> instead)
    : device_(instead ? *instead : train::parse_device(c.device)) {
  WEFT_CHECK(c.mesh.empty() || device_.type != DeviceType::kCuda,
             "--mesh goes with --device cpu: the ranks of a mesh run on the CPU");
  Chosen chosen = chosen_model(c, false);
  model_ = std::move(chosen.model);
  model_->to(device_);
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
  shape_ = {c.batch_size, chosen.length};
  title_ = str_cat(chosen.title, device_.type == DeviceType::kCuda ? ", cuda" : "",
                   c.mesh.empty() ? std::string() : str_cat(", mesh ", c.mesh), c.forward ? ", forward" : "");
}

void ModelStep::prepare() {
  const Tensor ids = Tensor::empty({kInt32, model_->device(), shape_});
  step_->prepare(ids, ids);
}

double ModelStep::run() {
  const auto ids = [&] { return randint(0, model_->vocab(), shape_, {.dtype = kInt32}).to(device_); };
  const Tensor tokens = ids(), targets = ids();
  const auto begin = std::chrono::steady_clock::now();
  (*step_)(tokens, targets).item<float>();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

ForwardPass forward_pass(const StepChoice& c) {
  Chosen chosen = chosen_model(c, true);
  chosen.model->eval();
  const NoGrad guard;
  const TensorType tokens{kInt64, Device::cpu(), {c.batch_size, chosen.length}};
  const nn::LanguageModel& model = *chosen.model;
  model.named_cells();  // gives cells their paths as names
  Ref<Graph> graph =
      capture_graph([&](std::span<const Tensor> in) { return std::vector{model.logits(in[0])}; }, {&tokens, 1});
  return {std::move(chosen.model), std::move(graph)};
}

}  // namespace weft::tools
