// The settings beside the tables of a tokenizer: the roles of tokens, and the chat template.
#pragma once
#include <map>
#include <string>

namespace weft::text {

/// The roles of tokens that end a text in GGUF files: tokenizer.ggml.ROLE_token_id.
inline constexpr const char* kEndRoles[] = {"eos", "eot", "eom"};

struct Settings {
  std::map<std::string, std::string> tokens;  // the texts of bos_token, eos_token, unk_token and pad_token
  std::string chat_template;                  // "" for none
  std::string where;                          // the file of the template, for errors
};

/// The settings of a GGUF file, or those beside a tokenizer.json (its path, or its folder): tokenizer_config.json and
/// chat_template.jinja. Nothing for an empty path.
Settings read_settings(const std::string& path);

}  // namespace weft::text
