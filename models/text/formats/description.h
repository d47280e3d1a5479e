// A tokenizer as its file describes it: plain data, which read_json.cc and read_gguf.cc make, and write_json.cc and
// write_gguf.cc write.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "framework/io/gguf.h"
#include "models/text/settings.h"

namespace weft::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false, normalized = false, lstrip = false, rstrip = false, single_word = false;
  bool operator==(const AddedToken&) const = default;
};

enum class Prepend : uint8_t { kAlways, kFirst, kNever };
enum class Behavior : uint8_t { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };

struct NormalStep {
  enum class Kind : uint8_t { kNfc, kNfd, kNfkc, kNfkd, kPrepend, kReplace, kStrip } kind;
  std::string from, to;              // kReplace; kPrepend: `to`
  bool left = false, right = false;  // kStrip
  bool operator==(const NormalStep&) const = default;
};

struct SplitStep {
  enum class Kind : uint8_t { kPattern, kLiteral, kDigits, kByteLevel, kMetaspace } kind;
  std::string pattern;                          // kPattern: a regular expression; kLiteral, kMetaspace: a text
  Behavior behavior = Behavior::kIsolated;      // kPattern, kLiteral, kDigits
  bool invert = false;                          // kPattern, kLiteral
  bool prefix_space = false, use_regex = true;  // kByteLevel
  Prepend prepend = Prepend::kAlways;           // kMetaspace
  bool split = true;                            // kMetaspace
  bool operator==(const SplitStep&) const = default;
};

struct DecodeStep {
  enum class Kind : uint8_t { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace } kind;
  std::string from, to;         // kReplace; kStrip and kMetaspace: `from`
  int64_t start = 0, stop = 0;  // kStrip
  bool drop_first = false;      // kMetaspace: without the spaces of the first token
  bool operator==(const DecodeStep&) const = default;
};

/// Two adjacent tokens become one; a smaller rank goes first, and of equal ranks the left one.
struct Merge {
  int32_t left = 0, right = 0, made = 0;
  uint32_t rank = 0;
  bool operator==(const Merge&) const = default;
};

struct Description {
  std::string where;                // the file, for errors
  std::string style;                // the name of the pattern: "gpt2", "llama3", ...
  uint64_t hash = 0;                // hash of all that decides ids
  std::vector<std::string> tokens;  // index: id; as the file writes them; empty: unused
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  std::vector<NormalStep> normal;
  std::vector<SplitStep> split;
  std::vector<DecodeStep> decode;
  std::vector<int32_t> before, after;  // ids around a text
  bool byte_level = false;             // tokens are bytes, written as characters
  bool byte_fallback = false, fuse_unk = false, ignore_merges = false;
  int32_t unk = -1, end_of_text = -1;
};

/// The most bytes of a tokenizer.json, and the most added tokens. Published files have 33 MB and some thousands.
inline constexpr int64_t kMostJson = int64_t{128} << 20;
inline constexpr size_t kMostAdded = 1 << 16;

/// The texts of all ids: `tokens` by id, and `added` at their ids. An unused id has none.
std::vector<std::string> named_ids(std::vector<std::string> tokens, const std::vector<AddedToken>& added);

/// Reads a tokenizer.json. `text` is its content, `where` its path.
Description read_tokenizer_json(std::string_view text, const std::string& where);
/// Reads the tokenizer of a GGUF file. `pre` replaces the name of the pattern in the file.
Description read_gguf_tokenizer(const std::string& path, const std::string& pre);
/// Reads the tokenizer of a file of either format, or of a folder with a tokenizer.json.
Description read_tokenizer(const std::string& path, const std::string& pre = "");

/// The text of a tokenizer.json. Added tokens are in its vocabulary too: `tokenizers` gives other ids to added tokens
/// outside it. Throws Unimplemented for two tokens with one text.
std::string write_tokenizer_json(const Description& d);
/// The metadata of a GGUF file. `vocab`: the rows of the embedding; ids without a token get unused ones. `ends`: ids
/// that end a text. `notes` receives a sentence on each kind of text that gets other ids. Throws Unimplemented, naming
/// the part, for a tokenizer that GGUF files cannot describe.
io::GgufMetadata write_gguf_tokenizer(const Description& d, const Settings& settings, int64_t vocab,
                                      std::span<const int32_t> ends, std::vector<std::string>* notes);

}  // namespace weft::text
