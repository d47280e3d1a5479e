#include "models/train/load.h"

#include <charconv>

#include "framework/io/file.h"
#include "framework/tensor/storage.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"
#include "models/weights/load.h"

namespace weft::train {

Flags model_flags(ModelOptions& o, Flags more) {
  Flags flags{
      {"checkpoint", &o.checkpoint, "checkpoint folder step_N, or a folder of them (the newest)"},
      {"hf", &o.hf, "instead of --checkpoint: folder with config.json and safetensors, or org/name in the local cache"},
      {"context", &o.context, "with --hf, a shorter context than the model's; 0: the model's", {0}},
      {"dtype", &o.dtype, "f32, bf16 or f16: dtype of activations"},
      {"device", &o.device, "cpu, cuda or cuda:N: where the model runs"},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

namespace {

// Makes the model. Weights that layers would convert to options.dtype are stored in it, before loading: memory never
// holds all weights in f32.
template <class Load>
std::unique_ptr<nn::LanguageModel> loaded(const nn::ModelFamily& family, const nn::ConfigMap& config,
                                          const ModelOptions& o, const Load& load) {
  const Device device = parse_device(o.device);
  std::unique_ptr<nn::LanguageModel> model = family.make(config);
  if (o.dtype != "f32") {
    model->set_compute_dtype(parse_dtype(o.dtype));
    model->cast_weights(parse_dtype(o.dtype));
  }
  load(model->named_cells());
  Allocator::of(Device::cpu()).empty_cache();  // frees the values before conversion
  model->to(device);
  model->eval();
  return model;
}

LoadedModel of_hf(const nn::ModelFamily& family, const ModelOptions& o) {
  const weights::HfModel hf = weights::open_hf(o.hf, o.context);
  const std::string file = hf.folder + "/config.json";
  WEFT_CHECK(hf.config.family->program == family.name, file, ": field 'model_type' is '", hf.config.kind->model_type,
             "'; use the programs of //models/", hf.config.family->program);
  const nn::ConfigMap config = weights::with_names(
      hf.config, file, [&] { return family.with_fields(family.preset(family.default_preset), hf.config.config); });
  std::vector<std::string> notes = hf.config.notes(file);
  LoadedModel m;
  m.model = loaded(family, config, o, [&](const auto& cells) { weights::load_weights(hf, cells, &notes); });
  for (const std::string& note : notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  return m;
}

}  // namespace

std::vector<int32_t> read_ids(const std::string& path, const nn::LanguageModel& model) {
  const std::string text = io::read_file(path, int64_t{1} << 32);
  std::vector<int32_t> ids;
  const char *p = text.data(), *end = p + text.size();
  while (true) {
    while (p < end && isspace(static_cast<unsigned char>(*p))) ++p;
    if (p == end) break;
    int32_t id = 0;
    auto r = std::from_chars(p, end, id);
    WEFT_CHECK(r.ec == std::errc() && (r.ptr == end || isspace(static_cast<unsigned char>(*r.ptr))), path, ": '",
               std::string(p, std::min<size_t>(end - p, 12)), "' at byte ", p - text.data(), " is not a token id");
    WEFT_CHECK(id >= 0 && id < model.vocab(), path, ": has token ", id, "; the model has tokens 0 to ",
               model.vocab() - 1);
    ids.push_back(id);
    p = r.ptr;
  }
  return ids;
}

void need_tokenizer(const ModelOptions& o, const char* flag) {
  if (!o.hf.empty())
    usage_error(str_cat(flag, ": got a text; need --tokens with --hf: tokenizers of transformers are not read yet"));
}

LoadedModel load_model(const nn::ModelFamily& family, const ModelOptions& o) {
  if (o.checkpoint.empty() == o.hf.empty())
    usage_error("need --checkpoint, a folder that a train program wrote, or --hf, a model of transformers");
  if (o.dtype != "f32" && o.dtype != "bf16" && o.dtype != "f16")
    usage_error(str_cat("--dtype: got '", o.dtype, "'; need f32, bf16 or f16"));
  if (!o.hf.empty()) return of_hf(family, o);
  if (o.context > 0) usage_error("--context: got a context; need none without --hf");
  const std::string folder = find_checkpoint(io::resolve_path(o.checkpoint));
  TrainState state = read_state(folder);
  WEFT_CHECK(state.family == family.name, state_path(folder), ": \"family\" is '", state.family, "'; need '",
             family.name, "': use the program of that family");
  const io::SafetensorsModel tensors = open_tensors(folder, "model", state);
  LoadedModel m;
  try {
    m.model = loaded(family, state.model, o, [&](const auto& cells) { load_cells(tensors, cells, /*convert=*/true); });
  } catch (const Error& e) {
    // Errors of the configuration name no file.
    if (std::string_view(e.what()).starts_with("config: "))
      throw Error(e.code(), str_cat(state_path(folder), ": \"model\": ", e.what()));
    throw;
  }
  m.tokenizer = data::make_tokenizer("bytes");
  return m;
}

}  // namespace weft::train
