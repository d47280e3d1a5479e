// Writes models of Weft as transformers and llama.cpp read them: the tables of the families, backwards.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/io/gguf.h"
#include "framework/io/safetensors.h"
#include "models/nn/config_map.h"
#include "models/weights/families/family.h"

namespace weft::weights {

/// The cells of a model of Weft: contiguous floating-point values in the memory of the host, under their names.
struct Written {
  const Family* family = nullptr;
  nn::ConfigMap config;
  std::vector<io::NamedView> cells;
  std::optional<int32_t> begin_id;  // the token that begins a text
  std::vector<int32_t> end_ids;     // tokens that end a text
};

/// Writes config.json, generation_config.json and model.safetensors (several files above 5 GB, with an index) into a
/// folder, which exists. config.json has rotary settings in the forms of transformers 4 and 5, and both files have
/// bos_token_id and eos_token_id. Throws InvalidArgument, naming the field, if no model_type describes the
/// configuration. Memory: a copy of the tensors whose order or dtype differs from their cell's.
void write_hf(const std::string& folder, const Written& model, DType dtype = kFloat32);

/// Writes a GGUF file. `format`: "f32", "bf16" or "q8_0", of the matrices; vectors, the router and positions stay f32,
/// as llama.cpp needs, and also matrices whose rows are no multiple of 32 in q8_0. `tokenizer`: its metadata. Throws as
/// write_hf(), and for a configuration that GGUF cannot describe.
void write_gguf(const std::string& path, const Written& model, const std::string& format,
                const io::GgufMetadata& tokenizer = {}, io::Existing existing = io::Existing::kReplace);

/// The text of config.json for a configuration, and its kind. Throws as write_hf().
std::pair<std::string, const Kind*> config_json(const Family& family, const nn::ConfigMap& config,
                                                DType dtype = kFloat32);

}  // namespace weft::weights
