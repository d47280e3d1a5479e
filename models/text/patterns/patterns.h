// The table of well-known patterns: their expression, their scanner, their names in GGUF files.
#pragma once
#include <span>
#include <string_view>

namespace weft::text {

/// The end of the piece that begins at `p`; null: the expression decides (scan.h).
using Scanner = const char* (*)(const char* p, const char* end);

struct Pattern {
  const char* name;
  const char* expression;
  Scanner scan;  // null: none
  /// A line end between a visible ASCII character and an ASCII letter ends a piece in any surrounding text. The
  /// expression matches every character.
  bool cut_at_lines;
};

std::span<const Pattern> patterns();
/// The pattern with this expression; null for an unknown one.
const Pattern* find_pattern(std::string_view expression);
const Pattern& gpt2_pattern();

}  // namespace weft::text
