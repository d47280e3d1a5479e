// The tokenizer of models whose tokens are bytes, as transformers and llama.cpp read it.
#pragma once
#include <string>

#include "framework/io/gguf.h"

namespace weft::tools {

/// The text of tokenizer.json: byte-level BPE without merges, whose ids are the bytes.
std::string byte_tokenizer_json();
/// The text of tokenizer_config.json, so that AutoTokenizer opens the other.
std::string byte_tokenizer_config();
/// The same tokenizer as metadata of a GGUF file. `vocab`: the rows of the embedding, 256 or more.
io::GgufMetadata byte_tokenizer_gguf(int64_t vocab);

}  // namespace weft::tools
