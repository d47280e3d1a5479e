// The parts of a tokenizer, prepared for speed, and the encoder that runs them.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/text/added.h"
#include "models/text/bpe.h"
#include "models/text/formats/description.h"
#include "models/text/patterns/patterns.h"
#include "models/text/patterns/regex.h"

namespace weft::text {

/// A step of the pre-tokenizer with its compiled pattern.
struct CompiledStep {
  SplitStep step;
  const Pattern* known = nullptr;
  std::optional<Regex> regex;
};

/// The buffers and caches of one encoding thread.
struct Memory {
  BpeMemory bpe;
  RegexMemory regex;
  std::string normal[2];
  std::vector<std::string> steps;  // text that a step of the pre-tokenizer changed
};

/// Where a text can be cut so that tokens stay.
enum class CutRule : uint8_t { kNever, kAtLines, kBeforeSpaces, kUnmergeable };

struct Parts {
  explicit Parts(Description description);

  std::unique_ptr<Memory> borrow() const;
  void give_back(std::unique_ptr<Memory> memory) const;

  Description d;  // its tokens and merges are moved into the other members
  Bpe bpe;
  AddedTokens raw, normal;  // found before and after normalisation
  std::vector<CompiledStep> steps;
  CutRule cut = CutRule::kNever;
  int64_t vocab = 0;
  std::vector<std::string> names;  // id -> name, as the file writes it
  std::vector<std::string> bytes;  // id -> decoded bytes
  std::vector<bool> special;
  std::unordered_map<std::string, int32_t> ids;  // key: name
  std::vector<DecodeStep> joined;                // steps of the decoder for the whole text
  bool drop_first = false;                       // the spaces of the first token are not decoded

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Memory>> pool_;
};

/// A normaliser's result: `text` itself or one of `buffers`. Valid UTF-8. `continued`: without a prefix.
std::string_view normalized(const std::vector<NormalStep>& steps, std::string_view text, bool continued,
                            std::string (&buffers)[2]);

using Ranges = std::vector<std::pair<size_t, size_t>>;

/// Appends the ids of a text. Special tokens are found within `specials`. `continued`: the text begins in the middle.
void encode(const Parts& parts, std::string_view text, const Ranges& specials, bool continued,
            std::vector<int32_t>& out);

/// Appends `text` with `to` instead of each `from`, which is not empty.
void replace_all(std::string& out, std::string_view text, std::string_view from, std::string_view to);

/// Applies one step of a decoder to a text.
void decode_step(const DecodeStep& step, std::string& text);

/// See FileTokenizer::cut.
size_t cut(const Parts& parts, std::string_view text, size_t most);
CutRule cut_rule(const Parts& parts);

}  // namespace weft::text
