// The files of a tokenizer: copies for a checkpoint, and conversions for other programs.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/io/gguf.h"

namespace weft::text {

/// A file by its name, and its content.
using NamedFile = std::pair<std::string, std::string>;

/// The files that a folder needs to be the tokenizer of `path`: the files of text in the folder of a tokenizer.json
/// (itself, its settings, end tokens, and the chat template), or a tokenizer.gguf with the keys "tokenizer." of a GGUF
/// file. None for an empty path. `pre`: the name of the pattern that tokenizer.gguf gets instead of the file's.
std::vector<NamedFile> tokenizer_files(const std::string& path, const std::string& pre = "");

/// The tokenizer of `path` as transformers reads it: tokenizer_files() with a tokenizer_config.json, or for a GGUF file
/// and the bytes of an empty path a tokenizer.json with its settings. Its generation_config.json gets `ends`, the ids
/// that end a text, if there are any. Throws Unimplemented, naming the part, if tokenizer.json cannot describe it.
std::vector<NamedFile> files_for_transformers(const std::string& path, std::span<const int32_t> ends);

/// The tokenizer of `path`, or of bytes for an empty path, as metadata of a GGUF file. `vocab`: the rows of the
/// embedding. `notes` receives a sentence on each kind of text that gets other ids. Throws Unimplemented, naming the
/// part, if GGUF files cannot describe it.
io::GgufMetadata metadata_for_gguf(const std::string& path, int64_t vocab, std::span<const int32_t> ends,
                                   std::vector<std::string>* notes);

}  // namespace weft::text
