#include "models/train/load.h"

#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/tensor/storage.h"
#include "models/train/checkpoint.h"
#include "models/train/device.h"

namespace weft::train {

LoadedModel load_model(const nn::ModelFamily& family, const std::string& checkpoint, const std::string& dtype,
                       const std::string& device) {
  if (dtype != "f32" && dtype != "bf16" && dtype != "f16")
    usage_error(str_cat("--dtype: got '", dtype, "'; need f32, bf16 or f16"));
  const Device where = parse_device(device);
  const std::string folder = find_checkpoint(io::resolve_path(checkpoint));
  TrainState state = read_state(folder);
  WEFT_CHECK(state.family == family.name, folder, ": holds a ", state.family, " model; use //models/", state.family,
             " for it");
  LoadedModel m;
  m.model = family.make(state.model);
  if (dtype != "f32") {
    m.model->set_compute_dtype(parse_dtype(dtype));
    m.model->cast_weights(parse_dtype(dtype));  // before loading: memory never holds all weights in f32
  }
  load_cells(folder, "model", m.model->named_cells(), /*convert=*/true);
  Allocator::of(Device::cpu()).empty_cache();  // of values before their conversion
  m.model->to(where);
  m.model->eval();
  m.tokenizer = data::make_tokenizer("bytes");
  return m;
}

}  // namespace weft::train
