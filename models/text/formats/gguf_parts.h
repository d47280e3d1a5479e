// The parts of tokenizers in GGUF files, for reading and writing.
#pragma once
#include <string>
#include <vector>

#include "models/text/formats/description.h"

namespace weft::text {

/// Values of tokenizer.ggml.token_type.
enum TokenType : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

/// Sets the steps of the pre-tokenizer and the decoder for a name of tokenizer.ggml.pre; false for an unknown one. Sets
/// whether llama.cpp treats it as Llama 3: whole pieces are found in the vocabulary.
bool set_pre(const std::string& pre, Description* d, bool* llama3);
/// A name for each different tokenizer that set_pre() knows.
std::vector<std::string> pre_names();
/// The same names for an error.
std::string known_pres();
/// Sets the normaliser and the decoder of SentencePiece. `prefix`: a text begins with a space.
void set_spm(bool prefix, Description* d);

}  // namespace weft::text
