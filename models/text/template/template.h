// Chat templates: an interpreter of the part of Jinja that the templates of models use. Loops, conditions, macros,
// namespaces, filters, tests and methods of strings, lists and mappings give the text of jinja2 as transformers
// configures it (trim_blocks, lstrip_blocks, loop controls, tojson as Python's json writes). Unknown names of
// statements, filters, tests and methods are errors with their line.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text::jinja {

/// A stretch of rendered text: the template's, or the user's. A tokenizer reads special tokens in the template's only.
struct TemplatePart {
  std::string text;
  bool from_user = false;
  bool operator==(const TemplatePart&) const = default;
};

struct Message {
  std::string role, content;  // any bytes; the content is the user's
};

/// The variables of a template.
struct TemplateInput {
  std::vector<Message> messages;
  bool add_generation_prompt = true;
  std::map<std::string, std::string> texts;  // more variables, the template's: bos_token, eos_token
  /// A JSON object of more variables, which replace the others. Strings in messages, tools and documents are the
  /// user's, without the roles of messages; the rest is the template's.
  std::string json;
  int64_t now = 0;  // strftime_now: seconds since 1970, UTC
};

struct TemplateNode;

/// A parsed template. Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Throws InvalidArgument "NAME: line N: ..." for a text that is not a template, and for unknown statements.
  ChatTemplate(std::string_view source, std::string name);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;

  /// The rendered text; no two neighbours have equal from_user. Throws "NAME: line N: ..." for an error in an
  /// expression, raise_exception(), and more than 1,000,000 steps, 16 MiB of text, or 64 nested calls.
  std::vector<TemplatePart> render(const TemplateInput& input) const;

 private:
  std::string name_;
  std::unique_ptr<const TemplateNode> root_;
};

/// The text of a template by name: chatml, llama2, llama3, mistral, zephyr; nullptr for other names.
const char* known_template(std::string_view name);

}  // namespace weft::text::jinja
