#include "models/train/load.h"

#include "framework/io/file.h"
#include "framework/tensor/storage.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"

namespace weft::train {

Flags model_flags(ModelOptions& o, Flags more) {
  Flags flags{
      {"checkpoint", &o.checkpoint, "checkpoint folder step_N, or a folder of them (the newest); needed"},
      {"dtype", &o.dtype, "f32, bf16 or f16: dtype of activations"},
      {"device", &o.device, "cpu, cuda or cuda:N: where the model runs"},
  };
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

LoadedModel load_model(const nn::ModelFamily& family, const ModelOptions& o) {
  if (o.checkpoint.empty()) usage_error("--checkpoint is needed: a folder that a train program wrote");
  if (o.dtype != "f32" && o.dtype != "bf16" && o.dtype != "f16")
    usage_error(str_cat("--dtype: got '", o.dtype, "'; need f32, bf16 or f16"));
  const Device device = parse_device(o.device);
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
  if (o.dtype != "f32") {
    m.model->set_compute_dtype(parse_dtype(o.dtype));
    m.model->cast_weights(parse_dtype(o.dtype));  // before loading: memory never holds all weights in f32
  }
  load_cells(tensors, m.model->named_cells(), /*convert=*/true);
  Allocator::of(Device::cpu()).empty_cache();  // frees the values before conversion
  m.model->to(device);
  m.model->eval();
  m.tokenizer = data::make_tokenizer("bytes");
  return m;
}

}  // namespace weft::train
