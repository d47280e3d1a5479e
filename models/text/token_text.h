// Texts of tokenizer_config.json. Include this only in .cc files, as framework/io/json.h.
#pragma once
#include <string>

#include "framework/io/json.h"

namespace weft::text {

/// The text of a field: a text, or a token with the field "content"; "" for anything else.
inline std::string token_text(const io::Json& config, const char* field) {
  const auto at = config.find(field);
  if (at == config.end()) return {};
  const auto content = at->find("content");
  const io::Json& text = content == at->end() ? *at : *content;
  return text.is_string() ? text.get<std::string>() : "";
}

}  // namespace weft::text
