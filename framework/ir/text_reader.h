// Reads graph text: characters, words, strings, numbers. Messages have line numbers; comments count as white space.
#pragma once
#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>
#include <variant>

#include "framework/ir/text.h"

namespace weft::internal {

class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

 protected:
  // ---- characters ----
  char peek(size_t ahead = 0) const { return pos_ + ahead < text_.size() ? text_[pos_ + ahead] : '\0'; }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++pos_;
  }
  void skip() {
    while (pos_ < text_.size()) {
      if (text_[pos_] == '\n') {
        ++line_;
        ++pos_;
      } else if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
        ++pos_;
      } else if (text_[pos_] == '#') {
        while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
      } else {
        break;
      }
    }
  }

  /// The text at the cursor, for messages.
  std::string got() const {
    if (pos_ >= text_.size()) return "the end of the text";
    size_t end = pos_;
    if (word_char(text_[end]) || text_[end] == '%') {
      do ++end;
      while (end < text_.size() && word_char(text_[end]) && end - pos_ < 40);
    } else {
      ++end;
    }
    return quoted(text_.substr(pos_, end - pos_));
  }
  [[noreturn]] void fail(const std::string& need) const { fail(got(), need); }
  [[noreturn]] void fail(const std::string& got, const std::string& need) const {
    weft::internal::fail(Code::kInvalidArgument, str_cat(place(), "got ", got, "; need ", need));
  }
  std::string place() const { return str_cat("parse_graph: line ", line_, ": "); }
  static bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

  bool take(char c) {
    skip();
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  /// Same as take(), but only on this line: a node is one line, except inside its braces.
  bool take_here(char c) {
    skip_blanks();
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(str_cat("'", c, "'"));
  }
  std::string_view word() {
    skip();
    size_t begin = pos_;
    while (word_char(peek())) ++pos_;
    return text_.substr(begin, pos_ - begin);
  }
  std::string_view look() {
    skip();
    size_t was = pos_;
    std::string_view w = word();
    pos_ = was;
    return w;
  }
  bool take_word(std::string_view w) {
    if (look() != w) return false;
    word();
    return true;
  }
  void keyword(std::string_view w) {
    if (!take_word(w)) fail(str_cat("'", w, "'"));
  }

  std::string string() {
    expect('"');
    std::string s;
    while (true) {
      char c = peek();
      if (pos_ >= text_.size() || c == '\n') fail("'\"' to close the string");
      ++pos_;
      if (c == '"') return s;
      if (c != '\\') {
        s += c;
        continue;
      }
      char e = peek();
      ++pos_;
      if (e == 'n')
        s += '\n';
      else if (e == 't')
        s += '\t';
      else if (e == '"' || e == '\\')
        s += e;
      else if (e == 'x' && hex(peek()) >= 0 && hex(peek(1)) >= 0) {
        s += static_cast<char>(hex(peek()) * 16 + hex(peek(1)));
        pos_ += 2;
      } else {
        --pos_;
        fail("one of n t \" \\ xHH after a backslash");
      }
    }
  }
  static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  }

  // ---- numbers ----
  int64_t integer() {
    skip();
    int64_t v = 0;
    auto [end, error] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), v);
    if (error == std::errc::result_out_of_range) fail("an integer of 64 bits");
    if (error != std::errc()) fail("an integer");
    pos_ = end - text_.data();
    return v;
  }
  int64_t index(size_t limit, std::string_view what) {
    size_t was = pos_;
    int64_t i = integer();
    if (i >= 0 && i < static_cast<int64_t>(limit)) return i;
    pos_ = was;
    fail(str_cat("the index of one of the ", limit, " ", what));
  }

  using ParsedNumber = std::variant<int64_t, double>;
  /// 3 is an integer; 3.0, 1e-05, inf, -nan, nan(0x7ff8000000000001) are doubles.
  ParsedNumber number() {
    skip();
    size_t was = pos_;
    bool negative = peek() == '-';
    if (negative) ++pos_;
    if (std::isalpha(static_cast<unsigned char>(peek()))) {
      std::string_view w = word();
      if (w == "inf") return negative ? -INFINITY : INFINITY;
      if (w != "nan") {
        pos_ = was;
        fail("a number");
      }
      if (peek() != '(') return negative ? -std::nan("") : std::nan("");
      if (text_.substr(pos_, 3) != "(0x") fail("(0x");
      pos_ += 3;
      uint64_t u = 0;
      auto [end, error] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), u, 16);
      if (error != std::errc()) fail("the bits of a NaN");
      pos_ = end - text_.data();
      expect(')');
      double v = std::bit_cast<double>(u);
      if (v == v) fail(str_cat("0x... of a number"), "the bits of a NaN");
      return v;
    }
    pos_ = was;
    size_t end = was + negative;
    bool whole = true;
    while (end < text_.size()) {
      char c = text_[end];
      bool sign = (c == '-' || c == '+') && (text_[end - 1] == 'e');
      if (!std::isdigit(static_cast<unsigned char>(c)) && c != '.' && c != 'e' && !sign) break;
      if (!std::isdigit(static_cast<unsigned char>(c))) whole = false;
      ++end;
    }
    if (whole) return integer();
    double v = 0;
    auto [stop, error] = std::from_chars(text_.data() + was, text_.data() + end, v);
    if (error == std::errc::result_out_of_range) fail("a double within range");
    if (error != std::errc() || stop != text_.data() + end) fail("a number");
    pos_ = end;
    return v;
  }

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
};

}  // namespace weft::internal
