// The changes that fuzz.h makes to inputs.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>

#include "framework/base/str_cat.h"
#include "framework/testing/fuzz.h"

namespace weft::testing {
namespace {

constexpr size_t kMost = 200'000;  // bytes that repetition may make of an input
constexpr std::string_view kNumbers[] = {"0",
                                         "-1",
                                         "1",
                                         "00",
                                         "-0",
                                         "2147483647",
                                         "2147483648",
                                         "-2147483649",
                                         "4294967296",
                                         "9223372036854775807",
                                         "9223372036854775808",
                                         "-9223372036854775808",
                                         "18446744073709551615",
                                         "99999999999999999999999",
                                         "1e400",
                                         "1e-400",
                                         "0x10",
                                         "1.5",
                                         "nan",
                                         "-inf",
                                         "1e",
                                         "1048576",
                                         "65536"};
constexpr std::string_view kOdd[] = {
    std::string_view("\0", 1), "\n", "\r\n", "\t", "\x1b[2J", "\x7f", "\xff",        "\xc3\x28",
    "\xf0\x9f\x98\x80",        "\\", "\"",   "'",  "#",       "%s%n", "\xef\xbb\xbf"};

size_t below(FuzzRandom& random, size_t n) { return n ? random() % n : 0; }
bool one_in(FuzzRandom& random, size_t n) { return random() % n == 0; }

struct Piece {
  size_t begin = 0, size = 0;
};

bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

/// The word, number or single other character near a random place.
Piece token(const std::string& s, FuzzRandom& random) {
  size_t begin = below(random, s.size()), end = begin + 1;
  if (word_char(s[begin])) {
    while (begin > 0 && word_char(s[begin - 1])) --begin;
    while (end < s.size() && word_char(s[end])) ++end;
  }
  return {begin, end - begin};
}

/// The first number at or after a random place; empty if there is none.
Piece number(const std::string& s, FuzzRandom& random) {
  auto digit = [&](size_t i) { return std::isdigit(static_cast<unsigned char>(s[i])) != 0; };
  size_t begin = below(random, s.size());
  while (begin < s.size() && !digit(begin)) ++begin;
  if (begin == s.size()) return {};
  while (begin > 0 && digit(begin - 1)) --begin;
  size_t end = begin;
  while (end < s.size() && digit(end)) ++end;
  return {begin, end - begin};
}

/// A line, or the text between two commas, with its separator.
Piece line(const std::string& s, FuzzRandom& random) {
  const char separator = one_in(random, 3) ? ',' : '\n';
  const size_t at = below(random, s.size());
  const size_t before = at == 0 ? s.npos : s.rfind(separator, at - 1);
  const size_t begin = before == s.npos ? 0 : before + 1;
  const size_t end = std::min(s.find(separator, at), s.size() - 1) + 1;
  return {begin, end - begin};
}

Piece piece(const std::string& s, FuzzRandom& random) {
  switch (below(random, 3)) {
    case 0:
      return token(s, random);
    case 1:
      return line(s, random);
    default: {
      const size_t begin = below(random, s.size());
      return {begin, std::min(1 + below(random, 40), s.size() - begin)};
    }
  }
}

/// `text` with each number of at most 9 digits raised by `by`, so that names and references stay distinct.
std::string raised(std::string_view text, size_t by) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
    if (end == i) {
      out += text[i++];
    } else {
      out += end - i > 9 ? std::string(text.substr(i, end - i))
                         : std::to_string(std::stoul(std::string(text.substr(i, end - i))) + by);
      i = end;
    }
  }
  return out;
}

/// Repeats a piece in place: rarely until the text is long, which shows time that is not linear, and deep nesting.
void repeat(std::string& s, FuzzRandom& random) {
  const Piece p = piece(s, random);
  const bool numbered = one_in(random, 2);
  const size_t times = one_in(random, 50) ? kMost / p.size : 1 + below(random, 40);
  const std::string text = s.substr(p.begin, p.size);
  std::string all;
  for (size_t k = 1; k <= times && s.size() + all.size() < kMost; ++k) all += numbered ? raised(text, k) : text;
  s.insert(p.begin + (numbered ? p.size : 0), all);
}

void damage_once(std::string& s, FuzzRandom& random, const std::vector<std::string_view>& words) {
  if (s.empty()) s = "0";
  switch (below(random, 12)) {
    case 0:
      s[below(random, s.size())] = static_cast<char>(random());
      return;
    case 1:
      s.erase(below(random, s.size()), 1 + below(random, 8));
      return;
    case 2: {
      const Piece p = piece(s, random);
      s.erase(p.begin, p.size);
      return;
    }
    case 3: {  // moves or copies a piece
      const Piece p = piece(s, random);
      const std::string text = s.substr(p.begin, p.size);
      if (one_in(random, 2)) s.erase(p.begin, p.size);
      s.insert(below(random, s.size() + 1), text);
      return;
    }
    case 4:
    case 5: {
      const Piece p = number(s, random);
      if (p.size) s.replace(p.begin, p.size, kNumbers[below(random, std::size(kNumbers))]);
      return;
    }
    case 6: {  // another digit
      const Piece p = number(s, random);
      if (p.size) s[p.begin + below(random, p.size)] = static_cast<char>('0' + below(random, 10));
      return;
    }
    case 7:
    case 8: {
      if (words.empty()) return;
      const Piece p = token(s, random);
      s.replace(p.begin, one_in(random, 2) ? p.size : 0, words[below(random, words.size())]);
      return;
    }
    case 9:
      repeat(s, random);
      return;
    case 10:
      if (one_in(random, 4)) {
        s.insert(below(random, s.size() + 1), std::string(1 + below(random, 3000), 'a'));
      } else {
        s.insert(below(random, s.size() + 1), kOdd[below(random, std::size(kOdd))]);
      }
      return;
    default:
      if (one_in(random, 4)) s.resize(below(random, s.size() + 1));
  }
}

}  // namespace

void damage_text(std::string& text, FuzzRandom& random, const std::vector<std::string_view>& words) {
  do damage_once(text, random, words);
  while (!one_in(random, 2));
}

void damage_bytes(std::string& s, FuzzRandom& random) {
  do {
    if (s.empty()) s.resize(1);
    // Headers are at the beginning.
    const size_t at = below(random, one_in(random, 2) ? s.size() : std::min<size_t>(s.size(), 64));
    switch (below(random, 8)) {
      case 0:
        s[at] = static_cast<char>(random());
        break;
      case 1:
        s[at] = static_cast<char>(s[at] ^ (1 << below(random, 8)));
        break;
      case 2:
        s.erase(at, 1 + below(random, 16));
        break;
      case 3:
        s.insert(at, s.substr(below(random, s.size()), 1 + below(random, 64)));
        break;
      case 4:
        s.resize(one_in(random, 2) ? below(random, s.size()) : s.size() + 1 + below(random, 300));
        break;
      default: {  // a number
        const size_t width = size_t{1} << below(random, 4);
        if (at / width * width + width > s.size()) break;
        char* p = s.data() + at / width * width;
        uint64_t v = 0;
        std::memcpy(&v, p, width);
        constexpr uint64_t kEdges[] = {0,
                                       1,
                                       2,
                                       4,
                                       255,
                                       256,
                                       65535,
                                       65536,
                                       65537,
                                       uint64_t{1} << 31,
                                       uint64_t{1} << 32,
                                       uint64_t{1} << 63,
                                       UINT64_MAX,
                                       UINT64_MAX - 255,
                                       (uint64_t{1} << 31) - 1};
        v = one_in(random, 2) ? kEdges[below(random, std::size(kEdges))] : v + below(random, 9) - 4;
        std::memcpy(p, &v, width);
      }
    }
  } while (!one_in(random, 2));
}

}  // namespace weft::testing
