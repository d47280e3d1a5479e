#include "models/train/prompt.h"

#include <ctime>

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "models/text/settings.h"

namespace weft::train {

using text::jinja::ChatTemplate;

Flags prompt_flags(PromptOptions& o) {
  return {
      {"chat", &o.chat, "--prompt is a user's message; the chat template makes a conversation of it"},
      {"system", &o.system, "with --chat: the system's message"},
      {"chat_template", &o.chat_template,
       "with --chat: a file with a template, or chatml, llama2, llama3, mistral or zephyr; empty: the model's own"},
      {"raw", &o.raw, "add no tokens around the prompt, such as a begin-of-text token"},
  };
}

void check_prompt(const PromptOptions& o) {
  if (o.chat && o.raw) usage_error("need one of --chat and --raw: a chat template writes its own tokens");
  if (!o.chat && !o.system.empty()) usage_error("--system: need --chat");
  if (!o.chat && !o.chat_template.empty()) usage_error("--chat_template: need --chat");
}

namespace {

text::Settings find_template(const LoadedModel& m, const std::string& asked) {
  text::Settings s = text::read_settings(m.folder);
  if (const char* known = text::jinja::known_template(asked)) {
    s.chat_template = known;
    s.where = asked;
    for (const char* token : {"bos_token", "eos_token"}) s.tokens.try_emplace(token, "");
  } else if (!asked.empty()) {
    s.where = io::resolve_path(asked);
    s.chat_template = io::read_file(s.where, int64_t{64} << 20);
  }
  WEFT_CHECK_AS(
      kNotFound, !s.chat_template.empty(), m.folder.empty() ? "--chat" : m.folder,
      ": the model has no chat template; need --chat_template FILE, chatml, llama2, llama3, mistral or zephyr");
  return s;
}

std::vector<int32_t> encoded(const LoadedModel& m, std::span<const data::Segment> parts, bool add_special) {
  WEFT_CHECK(m.tokenizer, "prompt: the model has no tokenizer; need a model that was loaded with its text");
  std::vector<int32_t> ids = m.tokenizer->encode(parts, add_special);
  const std::span<const int32_t> before = m.tokenizer->before();
  if (!before.empty() && ids.size() >= 2 && ids[0] == before[0] && ids[1] == before[0])
    internal::warn("the prompt begins with two tokens that begin a text; need one: use --raw, or another template");
  return ids;
}

}  // namespace

std::vector<int32_t> prompt_ids(const LoadedModel& m, const PromptOptions& o, const std::string& prompt) {
  const data::Segment whole[] = {{prompt, false}};
  if (!o.chat) return encoded(m, whole, /*add_special=*/!o.raw);
  std::vector<text::jinja::Message> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  messages.push_back({"user", prompt});
  return chat_ids(m, std::move(messages), o.chat_template);
}

std::vector<int32_t> chat_ids(const LoadedModel& m, std::vector<text::jinja::Message> messages,
                              const std::string& chat_template) {
  const text::Settings settings = find_template(m, chat_template);
  const text::jinja::TemplateInput input{
      .messages = std::move(messages), .texts = settings.tokens, .json = {}, .now = time(nullptr)};
  std::vector<data::Segment> parts;
  for (text::jinja::TemplatePart& p : ChatTemplate(settings.chat_template, settings.where).render(input))
    parts.push_back({std::move(p.text), !p.from_user});
  return encoded(m, parts, /*add_special=*/false);
}

TextStream::TextStream(const LoadedModel& model, std::vector<std::string> stops, std::span<const int32_t> prompt)
    : model_(model), stops_(std::move(stops)) {
  WEFT_CHECK(model.tokenizer, "TextStream: the model has no tokenizer; need a model that was loaded with its text");
  constexpr size_t kWindow = 8;
  window_.assign(prompt.end() - static_cast<ptrdiff_t>(std::min(prompt.size(), kWindow)), prompt.end());
}

std::string TextStream::add(int32_t id) {
  if (model_.ends(id)) {
    finish_ = "end";
    return {};
  }
  const auto decode = [&](std::span<const int32_t> ids) { return model_.tokenizer->decode_plain(ids); };
  // A tokenizer may drop a blank at the beginning of a text, so the token is decoded behind the ids before it.
  const size_t before = decode(window_).size(), old = text_.size();
  window_.push_back(id);
  const std::string now = decode(window_);
  text_ += now.substr(std::min(before, now.size()));
  constexpr size_t kMostWindow = 32;
  if (window_.size() > kMostWindow) window_.erase(window_.begin(), window_.begin() + kMostWindow / 2);
  size_t stop = text_.npos;
  for (const std::string& s : stops_) stop = std::min(stop, text_.find(s, old >= s.size() ? old - s.size() + 1 : 0));
  if (stop != text_.npos) {
    text_.resize(stop);
    finish_ = "stop";
  }
  const size_t end = ended() ? text_.size() : text_.size() - uncertain_end(text_, stops_);
  const std::string certain = end > printed_ ? text_.substr(printed_, end - printed_) : "";
  printed_ = std::max(printed_, end);
  return certain;
}

std::string TextStream::rest() {
  const size_t begin = std::exchange(printed_, text_.size());
  return text_.substr(std::min(begin, text_.size()));
}

size_t uncertain_end(std::string_view text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const auto c = static_cast<unsigned char>(text[text.size() - n]);
    if (c < 0x80) break;
    const size_t length = c >= 0xF5 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 0;  // 0: not its first byte
    if (length > n) most = n;
    if (length) break;
  }
  for (const std::string& s : stops)
    for (size_t n = std::min(s.size() - 1, text.size()); n > most; --n)
      if (s.starts_with(text.substr(text.size() - n))) most = n;
  return most;
}

}  // namespace weft::train
