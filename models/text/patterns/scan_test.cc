// Scanners agree with the expressions of their patterns.
#include "models/text/patterns/scan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "models/text/patterns/patterns.h"
#include "models/text/patterns/regex.h"

namespace weft::text {
namespace {

/// Where pieces of a text end; the expressions match every character.
std::vector<size_t> by_expression(const Regex& regex, std::string_view text, RegexMemory& memory) {
  std::vector<size_t> ends;
  Regex::Match m{0, 0};
  for (size_t at = 0; at < text.size(); at = m.end) {
    if (!regex.find(text, at, memory, &m) || m.begin != at || m.end == at) return {};
    ends.push_back(m.end);
  }
  return ends;
}

TEST(Scan, EqualsTheExpression) {
  // Characters that decide, and characters that share bytes or case with them.
  constexpr const char* kParts[] = {
      " ",      " ",      "  ",     "\n",     "\r",     "\t",     "\v",     "\x1c",      "a", "Z",  "s",
      "t",      "re",     "LL",     "v",      "e",      "l",      "d",      "m",         "1", "12", "9",
      "'",      "'",      ".",      "!",      "_",      "/",      "@",      "[",         "`", "{",  "\x7f",
      "\u00e9", "\u017f", "\u00a0", "\u0663", "\u3000", "\u0301", "\u2019", "\U0001f600"};
  RegexMemory memory;
  std::mt19937 random(11);
  for (const Pattern& p : patterns()) {
    if (!p.scan) continue;
    const Regex regex(p.expression, p.name);
    int64_t scanned = 0, left = 0;
    for (int i = 0; i < 60'000; ++i) {
      std::string text;
      for (size_t n = 1 + random() % 14; n > 0; --n) text += kParts[random() % (i % 2 ? 33 : std::size(kParts))];
      const std::vector<size_t> ends = by_expression(regex, text, memory);
      ASSERT_FALSE(ends.empty()) << p.name << " leaves a gap in '" << text << "'";
      size_t at = 0;
      for (size_t end : ends) {
        const char* q = p.scan(text.data() + at, text.data() + text.size());
        ++(q ? scanned : left);
        ASSERT_TRUE(!q || q == text.data() + end) << p.name << " at byte " << at << " of '" << text << "' ends at "
                                                  << q - text.data() << "; the expression ends at " << end;
        at = end;
      }
    }
    EXPECT_GT(scanned, left) << p.name;
  }
}

TEST(Scan, AsciiNeedsNoExpression) {
  std::string text;
  for (char c = 1; c > 0 && c < 127; ++c) text += std::string(1, c) + "a" + c + " " + c + c + "1";
  for (const Pattern& p : patterns()) {
    if (!p.scan) continue;
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end; ++at) EXPECT_GT(p.scan(at, end), at) << p.name;
  }
}

TEST(Regex, HasTheSpacesAndWordsOfOniguruma) {
  RegexMemory memory;
  Regex::Match m;
  const Regex space("^\\s$", "test"), no_space("[^\\s]", "test"), word("^\\w$", "test");
  for (const char* s : {" ", "\v", "\u0085", "\u00a0", "\u1680", "\u2028", "\u3000"}) {
    EXPECT_TRUE(space.find(s, 0, memory, &m)) << s;
    EXPECT_FALSE(no_space.find(s, 0, memory, &m)) << s;
  }
  for (const char* s : {"a", "\x1c", "\u180e", "\u200b", "\ufeff"}) EXPECT_FALSE(space.find(s, 0, memory, &m)) << s;
  for (const char* s : {"a", "7", "_", "\u0301", "\u00e9", "\u203f"}) EXPECT_TRUE(word.find(s, 0, memory, &m)) << s;
  EXPECT_FALSE(word.find("-", 0, memory, &m));
}

}  // namespace
}  // namespace weft::text
