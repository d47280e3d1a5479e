// A tokenizer as its file describes it: plain data, made by read_json.cc and read_gguf.cc.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft::text {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false, normalized = false, lstrip = false, rstrip = false, single_word = false;
};

enum class Prepend : uint8_t { kAlways, kFirst, kNever };
enum class Behavior : uint8_t { kIsolated, kRemoved, kWithPrevious, kWithNext, kContiguous };

struct NormalStep {
  enum class Kind : uint8_t { kNfc, kNfd, kNfkc, kNfkd, kPrepend, kReplace, kStrip } kind;
  std::string from, to;              // kReplace; kPrepend: `to`
  bool left = false, right = false;  // kStrip
};

struct SplitStep {
  enum class Kind : uint8_t { kPattern, kLiteral, kDigits, kByteLevel, kMetaspace } kind;
  std::string pattern;                          // kPattern: a regular expression; kLiteral, kMetaspace: a text
  Behavior behavior = Behavior::kIsolated;      // kPattern, kLiteral, kDigits
  bool invert = false;                          // kPattern, kLiteral
  bool prefix_space = false, use_regex = true;  // kByteLevel
  Prepend prepend = Prepend::kAlways;           // kMetaspace
  bool split = true;                            // kMetaspace
};

struct DecodeStep {
  enum class Kind : uint8_t { kByteLevel, kByteFallback, kFuse, kStrip, kReplace, kMetaspace } kind;
  std::string from, to;         // kReplace; kStrip and kMetaspace: `from`
  int64_t start = 0, stop = 0;  // kStrip
  bool drop_first = false;      // kMetaspace: without the spaces of the first token
};

/// Two adjacent tokens become one; a smaller rank goes first, and of equal ranks the left one.
struct Merge {
  int32_t left = 0, right = 0, made = 0;
  uint32_t rank = 0;
};

struct Description {
  std::string where;                // the file, for errors
  std::string style;                // the name of the pattern: "gpt2", "llama3", ...
  uint64_t hash = 0;                // of all that decides ids
  std::vector<std::string> tokens;  // by id, as the file writes them; empty: unused
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

/// Reads a tokenizer.json. `text` is its content, `where` its path.
Description read_tokenizer_json(std::string_view text, const std::string& where);
/// Reads the tokenizer of a GGUF file. `pre` replaces the name of the pattern in the file.
Description read_gguf_tokenizer(const std::string& path, const std::string& pre);

}  // namespace weft::text
