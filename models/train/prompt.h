// Prompts: text or a message as token ids, and new ids as text until they end.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/template/template.h"
#include "models/train/load.h"

namespace weft::train {

struct PromptOptions {
  bool chat = false;          // the prompt is a user's message
  std::string system;         // the system's message, with chat
  std::string chat_template;  // a file, or a name (text::jinja::known_template); empty: the model's own
  bool raw = false;           // no token before or after the prompt
};

/// The flags of PromptOptions.
Flags prompt_flags(PromptOptions& options);
/// Throws UsageError for options that exclude each other.
void check_prompt(const PromptOptions& options);

/// The ids of a prompt. Special tokens are parsed in a template's text only, so a prompt cannot contain any. The tokens
/// that a tokenizer puts around a text are added, except after a template, which writes its own. Throws Error, naming
/// the file, if the model has no chat template.
std::vector<int32_t> prompt_ids(const LoadedModel& model, const PromptOptions& options, const std::string& prompt);

/// The same for a conversation, whose next message the model writes. `chat_template`: as in PromptOptions.
std::vector<int32_t> chat_ids(const LoadedModel& model, std::vector<text::jinja::Message> messages,
                              const std::string& chat_template = "");

/// New tokens as text. The text ends before the first stop string, and at an end token.
class TextStream {
 public:
  /// `model` lives longer. `prompt`: the ids before the new ones.
  TextStream(const LoadedModel& model, std::vector<std::string> stops, std::span<const int32_t> prompt);
  /// Adds a token and returns the text that is certain now: whole characters, without a possible beginning of a stop
  /// string.
  std::string add(int32_t id);
  /// The rest of the text, after the last token.
  std::string rest();
  /// Whether a stop string or an end token has ended the text.
  bool ended() const { return !finish_.empty(); }
  /// "end", "stop", or "length" if the text has not ended.
  std::string finish() const { return ended() ? finish_ : "length"; }
  /// The text up to now, also its uncertain end.
  const std::string& text() const { return text_; }

 private:
  const LoadedModel& model_;
  std::vector<std::string> stops_;
  std::vector<int32_t> window_;  // the last ids
  std::string text_, finish_;
  size_t printed_ = 0;
};

/// The length of the longest end of `text` that begins one of `stops` or is part of a character.
size_t uncertain_end(std::string_view text, const std::vector<std::string>& stops);

}  // namespace weft::train
