// GGUF files of llama.cpp: their metadata as a configuration, and their tensors as weights.
#pragma once
#include <memory>

#include "framework/io/gguf.h"
#include "models/weights/config.h"
#include "models/weights/source.h"

namespace weft::weights {

/// The metadata as the configuration of a family, by the same tables as config.json; the rows of its family are for
/// GGUF files. Throws InvalidArgument, naming the file and the key, for other architectures and for values that Weft's
/// models do not have. `context`: as for read_config().
HfConfig read_gguf_config(const io::GgufFile& file, int64_t context = 0);

/// The tensors; quantised ones are read as f32. Throws Unimplemented, naming the tensor, for a format that Weft does
/// not read.
std::unique_ptr<WeightSource> gguf_source(const io::GgufFile& file);

/// The rotary settings "llama3" whose factors the file stores in `rope_freqs.weight`, as rope_parameters of
/// config.json: {factor, original context}. `factors`: [head_dim / 2]. Throws InvalidArgument, naming `what`, if no
/// such settings have these factors.
std::pair<double, int64_t> llama3_of(const std::vector<float>& factors, double theta, const std::string& what);

}  // namespace weft::weights
