// Tokens of a template.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text::jinja {

struct TemplateToken {
  enum Kind : uint8_t {
    data,         // text between tags
    begin_block,  // {%
    end_block,
    begin_output,  // {{
    end_output,
    name,
    string,
    integer,
    real,
    op,
    end,
  };
  Kind kind;
  int32_t line;
  std::string text;
};

/// The tokens of `source`, in which \r\n and \r are \n, a last \n is dropped, and trim_blocks and lstrip_blocks are on.
/// Throws InvalidArgument "NAME: line N: ...".
std::vector<TemplateToken> template_tokens(std::string_view source, const std::string& name);

}  // namespace weft::text::jinja
