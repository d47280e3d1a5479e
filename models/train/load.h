// Loads a trained model from a checkpoint for inference, and defines the flags that select it.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "framework/cli/cli.h"
#include "models/data/tokenizer.h"
#include "models/nn/transformer/language_model.h"

namespace weft::weights {
struct HfModel;
}

namespace weft::train {

/// The model that a program runs, and its device.
struct ModelOptions {
  std::string checkpoint;
  std::string hf;             // instead of a checkpoint: a folder of transformers, or org/name in its local cache
  int64_t context = 0;        // fewer tokens than the context of the model, with hf; 0: its context
  std::string pre;            // the pattern of the tokenizer of a GGUF file, with hf; empty: the file names it
  bool copy_weights = false;  // own memory for the weights of hf: their file may change after the load
  std::string dtype = "f32";
  std::string device = "cpu";
};

/// The flags of ModelOptions and `more`.
Flags model_flags(ModelOptions& options, Flags more);

struct LoadedModel {
  std::unique_ptr<nn::LanguageModel> model;          // in eval mode
  std::shared_ptr<const data::Tokenizer> tokenizer;  // null if it was not asked for
  std::vector<int32_t> end_ids;                      // tokens that end a text
  std::string folder;  // folder of its tokenizer and chat template, or their GGUF file; empty: bytes

  bool ends(int32_t id) const { return std::find(end_ids.begin(), end_ids.end(), id) != end_ids.end(); }
};

/// The ids in a file, separated by white space. Throws InvalidArgument, naming the file, for other texts and for ids
/// that the model does not have.
std::vector<int32_t> read_ids(const std::string& path, const nn::LanguageModel& model);

/// The model of options.hf, or of a checkpoint folder, or of the newest folder in it. Computes activations in
/// options.dtype and stores in this dtype all weights that layers would convert to it. Throws one sentence for a bad
/// option, and for a missing or damaged model or another family's model. `text`: with its tokenizer.
LoadedModel load_model(const nn::ModelFamily& family, const ModelOptions& options, bool text = false);

/// A model with open weights as a model of its family. `dtype`, `text`, `pre`, `copy_weights` and errors are as for
/// load_model().
LoadedModel load_hf(const weights::HfModel& hf, const nn::ModelFamily& family, DType dtype, Device device, bool text,
                    const std::string& pre = "", bool copy_weights = false);

/// The end tokens of a folder of transformers, by eos_token_id of generation_config.json, else of config.json, or of a
/// GGUF file.
std::vector<int32_t> read_end_ids(const std::string& folder);

}  // namespace weft::train
