#include "tools/step/model_step.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "distributed/launch/compile.h"
#include "models/hf/families.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"
#include "models/train/load.h"
#include "models/train/microbatches.h"
#include "models/train/plan_flags.h"
#include "models/train/set_fields.h"

namespace weft::tools {

const nn::ModelFamily& family_of(const std::string& name, const std::string& checkpoint) {
  if (!checkpoint.empty()) return family_named(name, str_cat(checkpoint, ": its model"));
  if (const nn::ModelFamily* f = find_family(name)) return *f;
  usage_error(str_cat("--model is '", name, "'; need one of ", family_names()));
}

nn::ConfigMap config_of(const nn::ModelFamily& family, const std::string& config, const Settings& fields) {
  const std::string& preset = config.empty() ? family.default_preset : config;
  if (std::find(family.presets.begin(), family.presets.end(), preset) == family.presets.end())
    usage_error(str_cat("--config is '", preset, "'; need one of ", family.presets));
  return train::set_fields(family, family.preset(preset), fields);
}

namespace {

// Numbers from flags are in their ranges; other callers may pass any numbers.
void check_choice(const StepChoice& c) {
  StepChoice copy = c;
  for (const Flag& flag : step_flags(copy))
    if (!in_range(flag)) usage_error(str_cat("--", flag.name, " is ", flag_text(flag), "; need ", flag.help));
  if (c.dtype != "f32" && c.dtype != "bf16") usage_error(str_cat("--dtype is '", c.dtype, "'; need f32 or bf16"));
}

struct Chosen {
  std::unique_ptr<nn::LanguageModel> model;
  std::string title;
  int64_t length;
};

// The chosen model, with the checkpoint's weights if `weights`.
Chosen chosen_model(const StepChoice& c, bool weights) {
  check_choice(c);
  Chosen r;
  if (!c.checkpoint) {
    const nn::ModelFamily& family = family_of(c.model);
    r.model = family.make(config_of(family, c.config, c.fields));
    r.title = str_cat(c.model, " ", c.config.empty() ? family.default_preset : c.config);
    for (const auto& [field, value] : c.fields) r.title += str_cat(" ", field, "=", value);
  } else {
    for (const auto& [field, value] : c.fields)
      usage_error(str_cat("--set: got ", field, "=", value, "; drop --set: a checkpoint has all fields"));
    const std::string folder = train::find_checkpoint(c.checkpoint.path);
    const train::TrainState state = train::read_state(folder);
    const nn::ModelFamily& family = family_of(state.family, folder);
    r.model = weights ? train::load_model(family, {.checkpoint = folder}).model : family.make(state.model);
    r.title = str_cat(state.family, " of ", c.checkpoint.path);
  }
  if (c.dtype == "bf16") r.model->set_compute_dtype(kBFloat16);
  r.length = c.seq_len > 0 ? c.seq_len : std::min<int64_t>(r.model->context(), 128);
  if (r.length > r.model->context())
    usage_error(str_cat("--seq_len is ", r.length, "; need at most the model's context, ", r.model->context()));
  r.title += str_cat(", batch ", c.batch_size, " of ", r.length, " tokens, ", c.dtype);
  return r;
}

}  // namespace

Flags step_flags(StepChoice& c) {
  Flags flags{{"model", &c.model, str_cat("one of ", family_names())},
              {"config", &c.config, "a configuration of the model; empty: its default"},
              train::field_flag(c.fields),
              {"checkpoint", &c.checkpoint, "a folder that a train program wrote, instead of --model and --config"},
              {"batch_size", &c.batch_size, "sequences of a step", {.least = 1, .most = 1e9}},
              {"seq_len", &c.seq_len, "tokens of a sequence; 0: the model's context, at most 128", {.least = 0}},
              {"dtype", &c.dtype, "f32 or bf16: the dtype of activations"},
              {"mesh", &c.mesh, "mesh of ranks such as dp2,tp2 or pp2; empty: one device"},
              {"microbatches",
               &c.microbatches,
               "equal parts of the batch; 0: 1, and with pp about twice its ranks",
               {.least = 0}},
              {"forward", &c.forward, "the loss alone, without gradients and optimiser"}};
  for (Flag& flag : train::plan_flags(c.plan, {"pipeline", "stages"})) flags.push_back(std::move(flag));
  return flags;
}

ModelStep::ModelStep(const StepChoice& c, std::optional<Device> instead)
    : device_(instead ? *instead : train::parse_device(c.device)) {
  if (!c.mesh.empty() && device_.type == DeviceType::kCuda)
    usage_error("--mesh does not work with --device cuda: meshes run on the CPU; drop one flag");
  Chosen chosen = chosen_model(c, false);
  model_ = std::move(chosen.model);
  shape_ = {c.batch_size, chosen.length};
  model_->to(device_);
  if (!c.forward) opt_ = std::make_unique<optim::AdamW>(model_->parameters(), optim::AdamWOptions{.lr = 1e-3});
  CompileOptions options;
  as_usage_error("--mesh: ", [&] { options.mesh = dist::Mesh::parse(c.mesh, {}); });
  options.plan = c.plan;
  const int64_t parts = train::settle_microbatches(options.mesh, options.plan, c.batch_size, c.microbatches);
  // A mesh needs a batch that its dimensions divide.
  const TensorType tokens{.dtype = kInt32, .shape = {c.batch_size / parts, chosen.length}};
  if (!c.mesh.empty()) as_usage_error("--", [&] { dist::check_arguments(options.mesh, {}, {&tokens, 1}); });
  step_ = std::make_unique<Compiled<Fn>>(dist::compile(
      Fn([this, parts, forward = c.forward](const Tensor& tokens, const Tensor& targets) {
        const nn::BatchShare share = nn::BatchShare::of(parts, targets);
        auto [loss, grads] = accumulate(parts, std::pair{tokens, targets}, [&](const Tensor& x, const Tensor& y) {
          const Tensor loss = model_->loss(x, y, share).loss;
          Gradients g = forward ? Gradients() : grad(loss, opt_->parameters());
          return std::pair{loss.detach(), std::move(g)};
        });
        if (!forward) opt_->step(optim::clip_grad_norm(grads, 1.0).grads);
        return loss;
      }),
      options));
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
