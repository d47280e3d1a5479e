#include "models/text/template/lexer.h"

#include <cctype>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/utf8.h"
#include "models/text/template/unicode.h"

namespace weft::text::jinja {
namespace {

constexpr size_t kMostSource = 256 << 10;

std::string plain_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool begins_name(char c) { return isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool in_name(char c) { return begins_name(c) || isdigit(static_cast<unsigned char>(c)); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name) : file_(name), s_(plain_newlines(source)) {}

  std::vector<TemplateToken> run() {
    while (at_ < s_.size()) {
      data(next_tag());
      if (at_ >= s_.size()) break;
      switch (s_[at_ + 1]) {
        case '#':
          comment();
          break;
        case '{':
          tag(TemplateToken::begin_output, TemplateToken::end_output, "}}");
          break;
        default:
          if (!raw()) tag(TemplateToken::begin_block, TemplateToken::end_block, "%}");
      }
    }
    push(TemplateToken::end, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) {
    internal::fail(Code::kInvalidArgument, str_cat(file_, ": line ", line_, ": ", what));
  }
  void push(TemplateToken::Kind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  bool has(std::string_view word, size_t at) const { return s_.compare(at, word.size(), word) == 0; }
  void skip_to(size_t end) {
    for (; at_ < end; ++at_) line_ += s_[at_] == '\n';
  }

  // The place of the next tag, or the end.
  size_t next_tag() const {
    for (size_t i = at_; (i = s_.find('{', i)) != s_.npos; ++i)
      if (i + 1 < s_.size() && (s_[i + 1] == '%' || s_[i + 1] == '{' || s_[i + 1] == '#')) return i;
    return s_.size();
  }

  // `text` before the tag at `tag`, without the blanks that the tag removes.
  std::string_view before(std::string_view text, size_t tag) const {
    const char sign = tag + 2 < s_.size() ? s_[tag + 2] : ' ';
    if (tag >= s_.size()) return text;
    if (sign == '-') return text.substr(0, text.size() - io::trailing(text, is_space));
    if (sign == '+' || s_[tag + 1] == '{') return text;
    const size_t newline = text.rfind('\n'), line = newline == text.npos ? 0 : newline + 1;
    if (line == 0 && !line_starts_) return text;
    return line + io::leading(text.substr(line), is_space) == text.size() ? text.substr(0, line) : text;
  }

  // The text before the tag at `end`.
  void data(size_t end) {
    const std::string_view kept = before(std::string_view(s_).substr(at_, end - at_), end);
    if (!kept.empty()) push(TemplateToken::data, std::string(kept));
    skip_to(end);
  }

  // After the sign and the closing bracket of a tag: skips the blanks that they remove.
  void close(char sign, bool trims_newline) {
    if (sign == '-') {
      skip_to(at_ + io::leading(std::string_view(s_).substr(at_), is_space));
    } else if (sign != '+' && trims_newline && at_ < s_.size() && s_[at_] == '\n') {
      skip_to(at_ + 1);
    }
    line_starts_ = at_ > 0 && s_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t end = s_.find("#}", at_ + 2);
    if (end == s_.npos) fail("a comment has no end; need '#}'");
    const char sign = s_[end - 1];
    skip_to(end + 2);
    close(sign == '-' || sign == '+' ? sign : ' ', true);
  }

  // {% raw %} ... {% endraw %}
  bool raw() {
    const auto word = [&](size_t at, std::string_view name, char& left, char& right) -> size_t {
      at += 2;
      left = right = ' ';
      if (at < s_.size() && (s_[at] == '-' || s_[at] == '+')) left = s_[at++];
      while (at < s_.size() && isspace(static_cast<unsigned char>(s_[at]))) ++at;
      if (!has(name, at)) return 0;
      at += name.size();
      while (at < s_.size() && isspace(static_cast<unsigned char>(s_[at]))) ++at;
      if (at < s_.size() && (s_[at] == '-' || s_[at] == '+')) right = s_[at++];
      return has("%}", at) ? at + 2 : 0;
    };
    char left, right;
    const size_t body = word(at_, "raw", left, right);
    if (!body) return false;
    for (size_t i = body; (i = s_.find("{%", i)) != s_.npos; ++i) {
      char end_left, end_right;
      const size_t end = word(i, "endraw", end_left, end_right);
      if (!end) continue;
      skip_to(body);
      close(right, true);
      data(i);
      skip_to(end);
      close(end_right, true);
      return true;
    }
    fail("'raw' has no end; need '{% endraw %}'");
  }

  void tag(TemplateToken::Kind begin, TemplateToken::Kind end, std::string_view bracket) {
    push(begin, {});
    at_ += 2;
    if (at_ < s_.size() && (s_[at_] == '-' || s_[at_] == '+')) ++at_;
    std::string open;  // brackets that are not closed yet
    while (true) {
      while (at_ < s_.size() && isspace(static_cast<unsigned char>(s_[at_]))) skip_to(at_ + 1);
      if (at_ >= s_.size()) fail(str_cat("a tag has no end; need '", bracket, "'"));
      const char c = s_[at_];
      const bool signed_end = (c == '-' || (c == '+' && bracket[0] == '%')) && has(bracket, at_ + 1);
      if (open.empty() && (signed_end || has(bracket, at_))) {
        push(end, {});
        at_ += signed_end ? 3 : 2;
        return close(signed_end ? c : ' ', bracket[0] == '%');
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const char c = s_[at_];
    if (begins_name(c)) {
      size_t end = at_;
      while (end < s_.size() && in_name(s_[end])) ++end;
      push(TemplateToken::name, s_.substr(at_, end - at_));
      at_ = end;
    } else if (is_digit(c)) {
      number();
    } else if (c == '\'' || c == '"') {
      string(c);
    } else {
      static constexpr std::string_view kOps[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~", "<",
                                                  ">",  "=",  "|",  ".",  ",",  ":",  "(", ")", "[", "]", "{", "}"};
      for (std::string_view op : kOps) {
        if (!has(op, at_)) continue;
        if (op == "(" || op == "[" || op == "{") open += op == "(" ? ')' : op == "[" ? ']' : '}';
        if (op == ")" || op == "]" || op == "}") {
          if (open.empty() || open.back() != op[0]) fail(str_cat("'", op, "' closes no bracket"));
          open.pop_back();
        }
        push(TemplateToken::op, std::string(op));
        at_ += op.size();
        return;
      }
      fail(str_cat("'", one_line(s_.substr(at_, io::first_character(std::string_view(s_).substr(at_)).size)),
                   "' is not part of an expression"));
    }
  }

  void number() {
    std::string digits;
    const auto take = [&] {
      while (at_ < s_.size() && (is_digit(s_[at_]) || (s_[at_] == '_' && at_ + 1 < s_.size() && is_digit(s_[at_ + 1]))))
        if (s_[at_++] != '_') digits += s_[at_ - 1];
    };
    take();
    bool real = false;
    if (at_ + 1 < s_.size() && s_[at_] == '.' && is_digit(s_[at_ + 1])) {
      real = true;
      digits += s_[at_++];
      take();
    }
    if (at_ < s_.size() && (s_[at_] == 'e' || s_[at_] == 'E')) {
      const size_t sign = at_ + 1 < s_.size() && (s_[at_ + 1] == '+' || s_[at_ + 1] == '-');
      if (at_ + 1 + sign < s_.size() && is_digit(s_[at_ + 1 + sign])) {
        real = true;
        digits += s_.substr(at_, 1 + sign);
        at_ += 1 + sign;
        take();
      }
    }
    push(real ? TemplateToken::real : TemplateToken::integer, digits);
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) fail("a string has no end");
    std::string value;
    for (size_t i = at_ + 1; i < end;) i = unescape(i, end, value);
    push(TemplateToken::string, std::move(value));
    skip_to(end + 1);
  }

  // Appends the character at i of a string literal and returns the place of the next one.
  size_t unescape(size_t i, size_t end, std::string& value) {
    if (s_[i] != '\\') {
      value += s_[i];
      return i + 1;
    }
    const char c = s_[i + 1];
    static constexpr std::string_view kFrom = "nrtbfva\\'\"", kTo = "\n\r\t\b\f\v\a\\'\"";
    if (const size_t k = kFrom.find(c); k != kFrom.npos) {
      value += kTo[k];
      return i + 2;
    }
    if (c == '\n') return i + 2;
    const size_t most = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : c >= '0' && c <= '7' ? 3 : 0;
    if (!most) {  // as in Python, other characters keep their backslash
      value += '\\';
      return i + 1;
    }
    const bool octal = most == 3;
    size_t at = i + (octal ? 1 : 2), count = 0;
    uint32_t code = 0;
    for (; count < most && at < end; ++at, ++count) {
      const auto d = static_cast<unsigned char>(s_[at]);
      if (octal ? d < '0' || d > '7' : !isxdigit(d)) break;
      code = code * (octal ? 8 : 16) + (d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
    }
    if ((!octal && count < most) || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fail(str_cat("'", one_line(s_.substr(i, at - i)), "' is not a character"));
    io::append_character(value, code);
    return at;
  }

  const std::string& file_;
  std::string s_;
  size_t at_ = 0;
  int32_t line_ = 1;
  bool line_starts_ = true;  // the text at at_ begins a line
  std::vector<TemplateToken> tokens_;
};

}  // namespace

std::vector<TemplateToken> template_tokens(std::string_view source, const std::string& name) {
  WEFT_CHECK(source.size() <= kMostSource, name, ": line 1: the template has ", source.size(), " bytes; need at most ",
             kMostSource);
  return Lexer(source, name).run();
}

}  // namespace weft::text::jinja
