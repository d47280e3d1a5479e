#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/text/patterns/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "framework/base/error.h"

namespace weft::text {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapKiB = 64 << 10;
constexpr size_t kLongestPattern = 1 << 16;

// PCRE2's own \s contains U+180E, and its \w no marks.
constexpr const char* kSpaces =
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr const char* kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}";

/// The expression with classes spelled out.
std::string translated(const std::string& p, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == '\\' && i + 1 < p.size()) {
      const char c = p[++i];
      const char* set = c == 's' || c == 'S' ? kSpaces : c == 'w' || c == 'W' ? kWord : nullptr;
      WEFT_CHECK(c != 'h' && c != 'H' && !(set && in_class && (c == 'S' || c == 'W')), where, ": the pattern has \\", c,
                 in_class ? " in a class" : "", ", whose meaning differs between libraries; need an explicit class");
      if (!set) {
        out += '\\', out += c;
      } else if (in_class) {
        out += set;
      } else {
        out += str_cat(c == 'S' || c == 'W' ? "[^" : "[", set, "]");
      }
      continue;
    }
    const std::string two = p.substr(i, 2);
    WEFT_CHECK(!in_class || (two != "&&" && (p[i] != '[' || two == "[:")), where,
               ": the pattern has a class within a class; need single classes");
    if (p[i] == '[' && !in_class) {
      in_class = true;
    } else if (p[i] == '[') {  // [:alpha:]
      const size_t end = std::min(p.find(":]", i), p.size());
      out += p.substr(i, end - i);
      i = end;
      if (i < p.size()) out += ':', out += p[++i];
      continue;
    } else if (p[i] == ']') {
      in_class = false;
    }
    out += p[i];
  }
  return out;
}

std::string message_of(int code) {
  char text[256] = "unknown error";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

}  // namespace

struct RegexMemory::Impl {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr);
  Impl() {
    WEFT_CHECK_AS(kResourceExhausted, context && data, "regular expression: out of memory");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapKiB);
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Impl() {
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

RegexMemory::RegexMemory() : impl_(std::make_unique<Impl>()) {}
RegexMemory::~RegexMemory() = default;

Regex::Regex(const std::string& pattern, const std::string& where) : pattern_(pattern) {
  WEFT_CHECK(pattern.size() <= kLongestPattern, where, ": the pattern has ", pattern.size(), " bytes; need at most ",
             kLongestPattern);
  const std::string text = translated(pattern, where);
  int error = 0;
  PCRE2_SIZE at = 0;
  // In Oniguruma $ is the end of a line.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  WEFT_CHECK(code, where, ": the pattern is no regular expression: ", message_of(error), " at byte ", at);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it PCRE2 interprets
  code_ = code;
}

Regex::~Regex() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

bool Regex::find(std::string_view text, size_t from, RegexMemory& memory, Match* match) const {
  pcre2_match_data* data = memory.impl_->data;
  const int rc = pcre2_match(static_cast<pcre2_code*>(code_), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             from, PCRE2_NO_UTF_CHECK, data, memory.impl_->context);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  WEFT_CHECK_AS(kResourceExhausted, rc >= 0, "tokenizer: the pattern '", pattern_.substr(0, 60),
                "' needs too much work at byte ", from, " of ", text.size(), ": ", message_of(rc));
  const PCRE2_SIZE* v = pcre2_get_ovector_pointer(data);
  *match = {v[0], v[1]};
  WEFT_CHECK(match->end >= match->begin, "tokenizer: the pattern matches backwards (\\K); need a pattern without \\K");
  return true;
}

}  // namespace weft::text
