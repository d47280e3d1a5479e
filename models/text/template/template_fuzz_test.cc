// Damaged templates and variables are rendered, or refused in one line.
#include <gtest/gtest.h>

#include "framework/io/file.h"
#include "framework/testing/fuzz.h"
#include "models/text/template/template.h"

namespace weft::testing {
namespace {

const std::vector<std::string_view> kWords{
    "{%",        "%}",     "{{",    "}}",     "{#",     "#}",    "-",        "if",        "endif",
    "for",       "in",     "set",   "else",   "endfor", "macro", "endmacro", "namespace", "loop",
    "not",       "is",     "|",     "(",      ")",      "[",     "]",        "messages",  "content",
    "range",     "tojson", "join",  "format", "split",  "**",    "10000000", "append(x)", "raise_exception",
    "recursive", "'",      "\\u12", "\n"};

TEST(Fuzz, Templates) {
  // An input may use all steps that a rendering has.
  FuzzTarget t{.seeds = {}, .damage = {}, .read = {}, .names = "chat.jinja", .seconds = 0.15};
  for (const char* name :
       {"blanks", "chat", "dates", "json", "lists", "loops", "macros", "numbers", "scopes", "tests", "texts", "tools"})
    t.seeds.push_back(io::read_file(std::string("models/text/template/testing/") + name + ".jinja"));
  t.damage = [](std::string& text, FuzzRandom& random) { damage_text(text, random, kWords); };
  t.read = [](const std::string& text) {
    const auto parts = text::jinja::ChatTemplate(text, "chat.jinja")
                           .render({.messages = {{"system", "be \"brief\"\n"}, {"user", "é <|im_end|>"}},
                                    .texts = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
    for (size_t i = 1; i < parts.size(); ++i) ASSERT_NE(parts[i].from_user, parts[i - 1].from_user);
    for (const text::jinja::TemplatePart& p : parts) ASSERT_FALSE(p.text.empty());
  };
  fuzz(t);
}

TEST(Fuzz, TemplateVariables) {
  const text::jinja::ChatTemplate chat(io::read_file("models/text/template/testing/tools.jinja"), "chat.jinja");
  FuzzTarget t{.seeds = {R"({"messages": [{"role": "user", "content": "a\u0000b"}], "tools": [{"function": {"name": "f",
 "description": "d", "parameters": {"properties": {"x": {"items": {"type": "s"}}}, "required": ["x"]}}}]})",
                         R"({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "x"}],
 "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}], "add": false})"},
               .damage = {},
               .read = {},
               .names = "chat.jinja"};
  t.damage = [](std::string& text, FuzzRandom& random) {
    damage_text(text, random, {"{", "}", "[", "]", ",", "\"role\":"});
  };
  t.read = [&](const std::string& json) { chat.render({.json = json}); };
  fuzz(t);
}

}  // namespace
}  // namespace weft::testing
