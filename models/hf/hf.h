// Published models for programs of users: load_hf() reads a folder of transformers or a GGUF file of any family. The
// includes declare the functions that make text with it: train::prompt_ids(), train::chat_ids(), train::generate(),
// train::TextStream and text::Tokenizer.
#pragma once
#include <string>

#include "framework/tensor/device.h"
#include "framework/tensor/dtype.h"
#include "models/text/tokenizer.h"
#include "models/train/generate.h"
#include "models/train/load.h"
#include "models/train/prompt.h"

namespace weft {

struct HfOptions {
  DType dtype = kFloat32;  // f32, bf16 or f16: of activations, and of the weights that layers would convert to it
  Device device = Device::cpu();
  int64_t context = 0;  // fewer tokens than the context of the model; 0: its context
  bool text = true;     // loads the tokenizer; false: for programs that have ids
  std::string pre;      // the pattern of the tokenizer of a GGUF file that names none: gpt-2, llama-bpe, qwen2, ...
  bool copy_weights = false;  // own memory for the weights: their file may change after the load
};

/// The model of a folder that transformers wrote, of a .gguf file, or of org/name in the local cache of Hugging Face;
/// in eval mode. Its configuration decides the family. Throws one sentence, naming the file, for a missing or damaged
/// model, for a model_type or a tokenizer that Weft does not have, and for options that do not fit.
train::LoadedModel load_hf(const std::string& path, const HfOptions& options = {});

}  // namespace weft
