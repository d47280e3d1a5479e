// Parses the notation of rewrite rows into a small tree.
#pragma once
#include <string_view>
#include <vector>

#include "compiler/passes/patterns/rewrite_rule.h"

namespace weft {

/// An op with operands, a letter, or a number.
struct Pattern {
  const OpDef* op = nullptr;
  std::vector<Pattern> args;
  char letter = 0;
  bool constant = false;  // letters c and d
  double number = 0;
};

/// Reports a bug if the text is not in the notation of RewriteRule::pattern or names an unknown op.
Pattern parse_pattern(std::string_view text, const OpTable& ops);

}  // namespace weft
