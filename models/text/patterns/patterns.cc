#include "models/text/patterns/patterns.h"

#include "models/text/patterns/scan.h"

namespace weft::text {
namespace {

#define WEFT_LLAMA3(letters, not_letters, digits)                                                  \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits "| ?[^\\s" not_letters \
  "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr Pattern kPatterns[] = {
    {"gpt2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", scan_gpt2, true},
    {"gpt2", "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", scan_gpt2, true},
    {"llama3", WEFT_LLAMA3("\\p{L}", "\\p{L}", "\\p{N}{1,3}"), scan_llama3<3>, true},
    {"qwen2", WEFT_LLAMA3("\\p{L}", "\\p{L}", "\\p{N}"), scan_llama3<1>, true},
    {"qwen35", WEFT_LLAMA3("[\\p{L}\\p{M}]", "\\p{L}\\p{M}", "\\p{N}"), scan_llama3<1>, true},
    {"tekken",
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|"
     "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| "
     "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     nullptr, true},
};

}  // namespace

std::span<const Pattern> patterns() { return kPatterns; }

const Pattern* find_pattern(std::string_view expression) {
  for (const Pattern& p : kPatterns)
    if (expression == p.expression) return &p;
  return nullptr;
}

const Pattern& gpt2_pattern() { return kPatterns[0]; }

}  // namespace weft::text
