#include "models/train/load.h"

#include <cctype>
#include <charconv>

#include "framework/base/one_line.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "framework/io/json.h"
#include "framework/tensor/storage.h"
#include "models/text/settings.h"
#include "models/text/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"
#include "models/weights/load.h"

namespace weft::train {

constexpr int64_t kMostConfig = int64_t{16} << 20;  // bytes

Flags model_flags(ModelOptions& o, Flags more) {
  Flags flags{
      {"checkpoint", &o.checkpoint, "checkpoint: a folder step_N, or a folder of such folders (the newest)"},
      {"hf", &o.hf,
       "instead of --checkpoint: folder with config.json and safetensors, .gguf file, or org/name in the local cache"},
      {"context", &o.context, "with --hf, a shorter context than the model's; 0: the model's", {0}},
      {"pre", &o.pre,
       "with --hf, the pattern of a GGUF file's tokenizer that names none: gpt-2, llama-bpe, qwen2, ..."},
      {"copy_weights", &o.copy_weights,
       "with --hf, copy weights that could stay in the file's memory: for files that change while the program runs"},
      {"dtype", &o.dtype, "f32, bf16 or f16: dtype of activations"},
      {"device", &o.device, "cpu, cuda or cuda:N: where the model runs"},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

namespace {

// Sets the cells of a new model by load(cells). Weights that layers would convert to `dtype` are stored in it before
// loading: memory never holds all weights in f32.
template <class Load>
void set_weights(nn::LanguageModel& model, DType dtype, Device device, const Load& load) {
  if (dtype != kFloat32) {
    model.set_compute_dtype(dtype);
    model.cast_weights(dtype);
  }
  load(model.named_cells());
  Allocator::of(Device::cpu()).empty_cache();  // frees the values before conversion
  model.to(device);
  model.eval();
}

// Reads the tokenizer of m.folder, if `text`, and the tokens that end a text. A program of ids alone needs no folder.
void set_text(LoadedModel& m, bool text, const std::string& pre = "") {
  if (text) m.tokenizer = text::open_or_bytes(m.folder, pre);
  if (!m.folder.empty() && io::exists(m.folder)) m.end_ids = read_end_ids(m.folder);
  if (m.end_ids.empty() && text && m.tokenizer->end_of_text() >= 0) m.end_ids = {m.tokenizer->end_of_text()};
}

// Removes the end tokens that the model does not have.
void check_end_ids(LoadedModel& m) {
  std::string unknown;
  std::erase_if(m.end_ids, [&](int32_t id) {
    if (id >= m.model->vocab()) unknown += str_cat(unknown.empty() ? "" : ", ", id);
    return id >= m.model->vocab();
  });
  if (!unknown.empty())
    internal::warn(str_cat(m.folder, ": the end tokens ", unknown, " are ignored: the model has tokens 0 to ",
                           m.model->vocab() - 1));
}

}  // namespace

LoadedModel load_hf(const weights::HfModel& hf, const nn::ModelFamily& family, DType dtype, Device device, bool text,
                    const std::string& pre, bool copy_weights) {
  const std::string file = hf.config_path();
  std::vector<std::string> notes = hf.config.notes(file);
  LoadedModel m{.folder = hf.folder};
  set_text(m, text, pre);
  m.model = weights::with_names(hf.config, file, [&] {
    return family.make(family.with_fields(family.preset(family.default_preset), hf.config.config));
  });
  check_end_ids(m);
  const auto values = copy_weights ? weights::Values::kCopied : weights::Values::kInPlace;
  set_weights(*m.model, dtype, device, [&](const auto& cells) { weights::load_weights(hf, cells, &notes, values); });
  for (const std::string& note : notes) internal::warn(note);
  return m;
}

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
               one_line({p, std::min<size_t>(end - p, 12)}), "' at byte ", p - text.data(),
               " is not a token id; need whole numbers separated by white space");
    WEFT_CHECK(id >= 0 && id < model.vocab(), path, ": has token ", id, "; the model has tokens 0 to ",
               model.vocab() - 1);
    ids.push_back(id);
    p = r.ptr;
  }
  return ids;
}

std::vector<int32_t> read_end_ids(const std::string& folder) {
  std::vector<int32_t> ids;
  const auto add = [&](const std::string& file, int64_t id) {
    WEFT_CHECK(id >= 0 && id <= INT32_MAX, file, ": field 'eos_token_id' has ", id, "; need a token");
    ids.push_back(static_cast<int32_t>(id));
  };
  if (io::is_gguf(folder)) {
    const io::GgufFile file(folder);
    for (const char* role : text::kEndRoles)
      if (const auto id = file.integer(str_cat("tokenizer.ggml.", role, "_token_id"))) add(folder, *id);
    return ids;
  }
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    const std::string file = folder + name;
    if (!io::exists(file)) continue;
    const io::Json config = io::parse_json(io::read_file(file, kMostConfig), file);
    const auto eos = config.is_object() ? config.find("eos_token_id") : config.end();
    if (eos == config.end() || eos->is_null()) continue;
    for (const io::Json& id : eos->is_array() ? *eos : io::Json::array({*eos})) {
      WEFT_CHECK(id.is_number_integer(), file, ": field 'eos_token_id' is '", one_line(id.dump(), 40),
                 "'; need a whole number or a list of them");
      add(file, id.get<int64_t>());
    }
    return ids;
  }
  return ids;
}

LoadedModel load_model(const nn::ModelFamily& family, const ModelOptions& o, bool text) {
  if (o.checkpoint.empty() == o.hf.empty())
    usage_error("need one of --checkpoint, a folder that a train program wrote, and --hf, a model of transformers");
  if (o.dtype != "f32" && o.dtype != "bf16" && o.dtype != "f16")
    usage_error(str_cat("--dtype: got '", o.dtype, "'; need f32, bf16 or f16"));
  const Device device = parse_device(o.device);
  const DType dtype = parse_dtype(o.dtype);
  if (!o.pre.empty() && (o.hf.empty() || !text))
    usage_error(str_cat("--pre: got ", o.pre, "; need --hf and text, or drop the flag"));
  if (!o.hf.empty())
    return load_hf(weights::open_hf(o.hf, o.context, family.name), family, dtype, device, text, o.pre, o.copy_weights);
  if (o.context > 0) usage_error(str_cat("--context: got ", o.context, "; need --hf, or drop the flag"));
  if (o.copy_weights) usage_error("--copy_weights: need --hf, or drop the flag: a checkpoint is always copied");
  const std::string folder = find_checkpoint(io::resolve_path(o.checkpoint));
  TrainState state = read_state(folder);
  WEFT_CHECK(state.family == family.name, state_path(folder), ": \"family\" is '", state.family, "'; need '",
             family.name, "': use the program of that family");
  const io::SafetensorsModel tensors = open_tensors(folder, "model", state);
  LoadedModel m;
  try {
    m.model = family.make(state.model);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(state_path(folder), ": \"model\": ", e.what()));
  }
  set_weights(*m.model, dtype, device, [&](const auto& cells) { load_cells(tensors, cells, /*convert=*/true); });
  m.folder = tokenizer_path(folder);
  if (m.folder.empty()) m.folder = state.run["tokenizer"];
  set_text(m, text);
  check_end_ids(m);
  if (text && !m.folder.empty()) check_tokenizer(m.tokenizer->name(), state, folder);
  return m;
}

}  // namespace weft::train
