#include "compiler/passes/patterns/pattern.h"

#include <cctype>

#include "framework/base/parse_number.h"

namespace weft {
namespace {

class PatternParser {
 public:
  PatternParser(std::string_view text, const OpTable& ops) : text_(text), ops_(ops) {}

  Pattern run() {
    Pattern p = expression();
    if (at_ != text_.size()) fail("the end");
    return p;
  }

 private:
  [[noreturn]] void fail(const char* need) const {
    internal::bug(__FILE__, __LINE__, "row",
                  str_cat("pattern \"", text_, "\": got '", text_.substr(at_), "'; need ", need));
  }
  bool take(char c) {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  Pattern expression() {
    take(' ');
    Pattern p;
    size_t end = at_;
    while (end < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_' || text_[end] == '-'))
      ++end;
    std::string_view word = text_.substr(at_, end - at_);
    if (word.empty()) fail("an op, a letter or a number");
    at_ = end;
    if (word[0] == '-' || std::isdigit(static_cast<unsigned char>(word[0]))) {
      const auto number = parse_number<decltype(p.number)>(word);
      if (!number) fail("a number");
      p.number = *number;
    } else if (word.size() == 1) {
      p.letter = word[0];
      p.constant = word == "c" || word == "d";
    } else {
      p.op = ops_.find(word);
      if (!p.op) fail("a known op before it");
      if (!take('(')) fail("'('");
      do p.args.push_back(expression());
      while (take(','));
      if (!take(')')) fail("')'");
    }
    return p;
  }

  std::string_view text_;
  const OpTable& ops_;
  size_t at_ = 0;
};

}  // namespace

Pattern parse_pattern(std::string_view text, const OpTable& ops) { return PatternParser(text, ops).run(); }

}  // namespace weft
