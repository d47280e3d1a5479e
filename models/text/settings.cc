#include "models/text/settings.h"

#include "framework/base/error.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "framework/io/json.h"

namespace weft::text {
namespace {

/// The text of a field: a text, or a token with the field "content"; "" for anything else.
std::string token_text(const io::Json& config, const char* field) {
  const auto at = config.find(field);
  if (at == config.end()) return {};
  const auto content = at->find("content");
  const io::Json& text = content == at->end() ? *at : *content;
  return text.is_string() ? text.get<std::string>() : "";
}

/// The template of tokenizer_config.json: a text, or a list of texts with names, of which "default" counts.
std::string template_of(const io::Json& config) {
  const auto at = config.find("chat_template");
  if (at == config.end()) return {};
  if (at->is_string()) return at->get<std::string>();
  if (at->is_array())
    for (const io::Json& t : *at)
      if (t.is_object() && t.value("name", io::Json()) == "default") return token_text(t, "template");
  return {};
}

Settings settings_of_gguf(const std::string& path) {
  const io::GgufFile file(path);
  Settings s{{}, std::string(file.text("tokenizer.chat_template").value_or("")), path + ": tokenizer.chat_template"};
  const std::vector<std::string_view> tokens = file.texts("tokenizer.ggml.tokens");
  for (const auto& [key, name] : {std::pair("bos", "bos_token"), std::pair("eos", "eos_token"),
                                  std::pair("unknown", "unk_token"), std::pair("padding", "pad_token")})
    if (const auto id = file.integer(str_cat("tokenizer.ggml.", key, "_token_id"));
        id && *id >= 0 && *id < static_cast<int64_t>(tokens.size()))
      s.tokens[name] = std::string(tokens[static_cast<size_t>(*id)]);
  return s;
}

}  // namespace

Settings read_settings(const std::string& path) {
  if (path.empty()) return {};
  if (io::is_gguf(path)) return settings_of_gguf(path);
  const std::string folder = io::is_folder(path) ? path : io::folder_of(path);
  const std::string config_path = folder + "/tokenizer_config.json", jinja = folder + "/chat_template.jinja";
  Settings s{{}, {}, config_path};
  if (io::exists(config_path) && !io::is_folder(config_path)) {
    const io::Json config = io::parse_json(io::read_file(config_path, int64_t{64} << 20), config_path);
    WEFT_CHECK(config.is_object(), config_path, ": need a JSON object");
    for (const char* token : {"bos_token", "eos_token", "unk_token", "pad_token"})
      if (config.contains(token)) s.tokens[token] = token_text(config, token);
    s.chat_template = template_of(config);
  }
  if (io::exists(jinja) && !io::is_folder(jinja)) {
    s.where = jinja;
    s.chat_template = io::read_file(jinja, int64_t{64} << 20);
  }
  return s;
}

}  // namespace weft::text
