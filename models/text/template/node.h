// The syntax tree of a template.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text::jinja {

/// In comments, kids are the children in order.
enum class NodeKind : uint8_t {
  // Statements.
  block,         // kids: statements
  data,          // text
  output,        // kid: the printed expression
  if_else,       // kids: condition, block, condition, block, ..., perhaps the block of else
  for_loop,      // kids: target, items, block, block of else; perhaps a condition
  set,           // kids: target, value
  set_block,     // kids: target, block, filters of `value`
  filter_block,  // kids: filters of `value`, block
  macro,         // name; names: parameters; kids: block, default values of the last parameters
  break_loop,
  continue_loop,
  // Expressions.
  text,  // text
  integer,
  real,
  boolean,
  none,
  name,
  value,  // the text that filter_block and set_block pass to their filters
  list,
  tuple,
  dict,  // kids: key, value, key, value, ...
  negative,
  positive,
  not_,
  and_,
  or_,
  arithmetic,  // kids: operands; ops: one of + - * / % ~, f (//) and p (**) between them, all of one precedence
  compare,     // kids: operands; ops: one of < > and l (<=) g (>=) e (==) n (!=) i (in) o (not in)
  choose,      // kids: value, condition, perhaps the value otherwise
  attribute,   // name; kid: the object
  item,        // kids: object, key
  slice,       // kids: object, begin, end, step; an omitted one is null
  call,        // kids: callee, arguments; names: keywords of the last arguments
  filter,      // name; kids: value, arguments; names as in call
  test,        // as filter
};

struct TemplateNode {
  NodeKind kind;
  uint8_t height = 1;  // levels of nodes
  int32_t line = 0;
  union {
    int64_t integer = 0;
    double real;
  };
  std::string text;  // a name or a text
  std::string ops;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<const TemplateNode>> kids;
};
using NodePtr = std::unique_ptr<const TemplateNode>;

/// Nodes have at most this height.
inline constexpr int kMostNesting = 64;

/// Throws InvalidArgument "NAME: line N: ...".
NodePtr parse_template(std::string_view source, const std::string& name);

}  // namespace weft::text::jinja
