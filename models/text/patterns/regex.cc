#define PCRE2_CODE_UNIT_WIDTH 8
#include "models/text/patterns/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "framework/base/error.h"
#include "framework/base/one_line.h"

namespace weft::text {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapKiB = 64 << 10;
constexpr size_t kLongestPattern = 1 << 16;

// PCRE2's own \s contains U+180E, and its \w no marks.
constexpr const char* kSpaces =
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";
constexpr const char* kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}"
    "\\x{1f170}-\\x{1f189}";
constexpr const char* kAlone = "\\xb2\\xb3\\xb9\\xbc-\\xbe";  // \w of Oniguruma contains them outside of classes
constexpr std::string_view kCategories =
    " Any C Cc Cf Cn Co Cs L L& Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs ";

/// An expression of Oniguruma as one of PCRE2: classes are spelled out, and parts of another meaning are refused.
class Translator {
 public:
  Translator(const std::string& pattern, const std::string& where) : p_(pattern), where_(where) {}

  std::string run() {
    while (i_ < p_.size()) {
      if (p_[i_] == '\\' && i_ + 1 < p_.size()) {
        escape();
      } else if (in_class_) {
        member();
      } else if (p_[i_] == '(' && p_.compare(i_, 2, "(?") == 0) {
        options();
      } else if (p_[i_] == '{') {
        interval();
      } else {
        in_class_ = p_[i_] == '[';
        take(in_class_ && p_.compare(i_, 2, "[^") == 0 ? 2 : 1);
        if (in_class_ && p_.compare(i_, 1, "]") == 0) take(1);  // the first ] is a member
      }
    }
    return std::move(out_);
  }

 private:
  void take(size_t n) {
    out_.append(p_, i_, n);
    i_ += n;
  }
  /// `n` characters have another meaning in Oniguruma.
  [[noreturn]] void refuse(size_t n, const char* need) const {
    internal::fail(Code::kInvalidArgument,
                   str_cat(where_, ": the pattern has ", one_line(p_.substr(i_, n), 40), in_class_ ? " in a class" : "",
                           ", whose meaning differs between libraries; need ", need));
  }

  void escape() {
    const char c = p_[i_ + 1];
    const bool negated = c == 'S' || c == 'W';
    if (negated || c == 's' || c == 'w') {
      if (negated && in_class_) refuse(2, "an explicit class");
      std::string set = c == 's' || c == 'S' ? kSpaces : kWord;
      if (!in_class_ && (c == 'w' || c == 'W')) set += kAlone;
      out_ += in_class_ ? set : str_cat(negated ? "[^" : "[", set, "]");
      i_ += 2;
    } else if (!in_class_ && (c == 'b' || c == 'B')) {
      const std::string word = str_cat("[", kWord, kAlone, "]");
      out_ += c == 'b' ? str_cat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))")
                       : str_cat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))");
      i_ += 2;
    } else if (c == 'v') {
      out_ += "\\x0b", i_ += 2;
    } else if (c == 'u') {
      const std::string digits = p_.substr(i_ + 2, 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) refuse(6, "\\x{...}");
      out_ += str_cat("\\x{", digits, "}"), i_ += 6;
    } else if (c == 'x' && p_.compare(i_ + 2, 1, "{") == 0) {
      take(std::min(p_.find('}', i_), p_.size() - 1) + 1 - i_);  // interval() must not read its digits
    } else if ((c == 'p' || c == 'P') && p_.compare(i_ + 2, 1, "{") == 0) {
      property();
    } else if (isalpha(static_cast<unsigned char>(c)) && !std::strchr("dDnrtfaexbAzZGKkRX", c)) {
      refuse(2, "an explicit class");
    } else {
      take(2);
    }
  }

  /// \p{NAME}: a category, or a script. PCRE2's \p{Han} contains characters that several scripts use.
  void property() {
    const size_t end = p_.find('}', i_);
    if (end == p_.npos) return take(p_.size() - i_);  // which PCRE2 refuses
    std::string name = p_.substr(i_ + 3, end - i_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.erase(0, 1);
    const bool category = kCategories.find(str_cat(" ", name, " ")) != kCategories.npos;
    out_ += str_cat("\\", std::string(1, p_[i_ + 1]), "{", negated ? "^" : "", category ? "" : "sc:", name, "}");
    i_ = end + 1;
  }

  void member() {
    const size_t end = p_.find(":]", i_);
    if (p_.compare(i_, 2, "[:") == 0 && end != p_.npos) {
      const std::string name = p_.substr(i_ + 2, end - i_ - 2);
      if (name != "digit" && name != "xdigit" && name != "cntrl") refuse(end + 2 - i_, "an explicit class");
      return take(end + 2 - i_);
    }
    WEFT_CHECK(p_[i_] != '[' && p_.compare(i_, 2, "&&") != 0, where_,
               ": the pattern has a class within a class; need single classes");
    in_class_ = p_[i_] != ']';
    take(1);
  }

  /// (?i: and the like. In Oniguruma m is PCRE2's s, and a(?i)b|c is a(?i:b|c).
  void options() {
    size_t end = i_ + 2;
    while (end < p_.size() && (isalpha(static_cast<unsigned char>(p_[end])) || p_[end] == '-')) ++end;
    const std::string letters = p_.substr(i_ + 2, end - i_ - 2);
    if (end < p_.size() && (p_[end] == ':' || p_[end] == ')') && letters.find_first_not_of("ix-") != letters.npos)
      refuse(end + 1 - i_, "(?i");
    if (!letters.empty() && p_.compare(end, 1, ")") == 0 && i_ > 0 && p_.find('|', end) != p_.npos)
      refuse(end + 1 - i_, "(?i: and its end");
    take(2);
  }

  /// {1,3}: a following + or ? makes it possessive or lazy in PCRE2, and repeated or optional in Oniguruma.
  void interval() {
    const size_t end = p_.find('}', i_);
    const std::string inside = end == p_.npos ? "" : p_.substr(i_ + 1, end - i_ - 1);
    if (inside.empty() || inside.find_first_not_of("0123456789,") != inside.npos) return take(1);
    const char next = end + 1 < p_.size() ? p_[end + 1] : ' ';
    if (inside[0] == ',' || next == '+' || (next == '?' && inside.find(',') == inside.npos))
      refuse(end + 2 - i_, "a group around it");
    take(end + 1 - i_);
  }

  const std::string &p_, &where_;
  size_t i_ = 0;
  bool in_class_ = false;
  std::string out_;
};

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
  const std::string text = Translator(pattern, where).run();
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
