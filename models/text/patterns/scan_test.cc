// Scanners agree with the expressions of their patterns.
#include "models/text/patterns/scan.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "framework/base/error.h"
#include "framework/base/testing/error_of.h"
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

// Each text is cut by the expression as Split of `tokenizers` 0.23 cuts it: a match is in brackets.
TEST(Regex, HasTheMatchesOfOniguruma) {
  struct Row {
    const char *expression, *text, *matches;
  };
  const Row rows[] = {
      {"\\w+", "½²-Ⓐ-\u0301-\u3007", "[½²]-[Ⓐ]-[\u0301]-[\u3007]"},
      {"[\\w]+", "a½²-Ⓐ", "[a]½²-[Ⓐ]"},
      {"\\p{Han}+", "漢、字〇A", "[漢]、[字〇]A"},
      {"\\p{^Han}+", "漢、字A", "漢[、]字[A]"},
      {"[\\p{Han}、]+", "漢、字A", "[漢、字]A"},
      {"\\bb", "b ½b ab -b", "[b] ½b ab -[b]"},
      {"\\Bb", "b ½b ab -b", "b ½[b] a[b] -b"},
      {"\\v", "\n\v\u2028", "\n[\v]\u2028"},
      {"\\u00e9|[\\u0301]", "éa\u0301", "[é]a[\u0301]"},
      {"[]a]", "a]b", "[a][]]b"},
      {"\\x{3000}+b", "\u3000\u3000b", "[\u3000\u3000b]"},
  };
  RegexMemory memory;
  for (const Row& r : rows) {
    const Regex regex(r.expression, "test");
    const std::string_view text = r.text;
    std::string got;
    size_t done = 0;
    for (Regex::Match m; regex.find(text, done, memory, &m); done = m.end)
      got += str_cat(text.substr(done, m.begin - done), "[", text.substr(m.begin, m.end - m.begin), "]");
    EXPECT_EQ(got + std::string(text.substr(done)), r.matches) << r.expression;
  }
}

TEST(Regex, RefusesPartsOfAnotherMeaning) {
  const std::pair<const char*, const char*> rows[] = {
      {"\\h", "\\h, whose meaning differs between libraries; need an explicit class"},
      {"\\pL", "\\p, whose"},
      {"\\Qa\\E", "\\Q, whose"},
      {"[\\S]", "\\S in a class, whose"},
      {"[[:alpha:]1]", "[:alpha:] in a class, whose"},
      {"[a[b]]", "a class within a class"},
      {"(?m:.)", "(?m:, whose meaning differs between libraries; need (?i"},
      {"(?i-m)a", "(?i-m), whose"},
      {"a(?i)b|c", "(?i), whose meaning differs between libraries; need (?i: and its end"},
      {"a{1,3}+", "{1,3}+, whose meaning differs between libraries; need a group around it"},
      {"a{2}?", "{2}?, whose"},
      {"a{,2}", "{,2}"},
      {"\\p{Nothing}", "is no regular expression: unknown property"},
      {"\\p{Han", "is no regular expression: "},
  };
  for (const auto& [expression, error] : rows) {
    const std::string got = testing::error_of([&, e = expression] { Regex(e, "f"); });
    EXPECT_TRUE(got.starts_with("f: the pattern ")) << got;
    EXPECT_NE(got.find(error), got.npos) << expression << ": " << got;
  }
  for (const char* expression :
       {"(?i:a)", "(?i)a|b", "a(?i)b", "(?x: a )", "a{1,3}?", "{", "a{b}", "[[:digit:]]", "(?:a{2})+", "\\x{3000}?"})
    EXPECT_EQ(testing::error_of([&] { Regex(expression, "f"); }), "") << expression;
}

}  // namespace
}  // namespace weft::text
