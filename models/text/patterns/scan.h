// Scanners: the patterns of well-known tokenizers, by hand, for text that is ASCII. A scanner returns the end of the
// piece that begins at `p`, or null where a character beyond ASCII could decide: then the regular expression decides.
// scan_test compares scanners with their expressions.
#pragma once
#include <array>
#include <cstdint>

namespace weft::text {

enum CharClass : uint8_t { kLetter = 1, kDigit = 2, kSpace = 4, kLineEnd = 8, kOther = 16, kBeyond = 32 };

inline constexpr std::array<uint8_t, 256> kClasses = [] {
  std::array<uint8_t, 256> out{};
  for (unsigned c = 0; c < 256; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    out[c] = c >= 128                          ? kBeyond
             : letter                          ? kLetter
             : c >= '0' && c <= '9'            ? kDigit
             : c == '\n' || c == '\r'          ? kSpace | kLineEnd
             : c == ' ' || (c >= 9 && c <= 13) ? kSpace
                                               : kOther;
  }
  return out;
}();

inline uint8_t class_of(char c) { return kClasses[static_cast<unsigned char>(c)]; }

/// The end of the run of characters of these classes; null if a character beyond ASCII ends it.
inline const char* run_of(uint8_t classes, const char* p, const char* end) {
  while (p < end && (class_of(*p) & classes)) ++p;
  return p < end && class_of(*p) == kBeyond ? nullptr : p;
}

/// Whitespace that no earlier alternative takes: \s+(?!\S)|\s+ for the run [p, r).
inline const char* rest_of_spaces(const char* p, const char* r, const char* end) {
  return r < end && r - p > 1 ? r - 1 : r;
}

/// The length of 's, 't, 'm, 'd, 're, 've or 'll at an apostrophe; 0 for none.
inline int contraction(const char* p, const char* end, char fold) {
  if (end - p < 2) return 0;
  const char a = static_cast<char>(p[1] | fold);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if (end - p < 3) return 0;
  const char b = static_cast<char>(p[2] | fold);
  return ((a == 'r' || a == 'v') && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/// GPT-2.
inline const char* scan_gpt2(const char* p, const char* end) {
  if (*p == '\'')
    if (const int n = contraction(p, end, 0)) return p + n;
  const char* q = p + (*p == ' ' && p + 1 < end ? 1 : 0);
  const uint8_t c = class_of(*q);
  if (c == kBeyond) return nullptr;
  if (!(c & kSpace)) return run_of(c, q, end);
  const char* r = run_of(kSpace, p, end);
  return r ? rest_of_spaces(p, r, end) : nullptr;
}

/// Llama 3 (digits by 3) and Qwen (digits by 1).
template <int kDigits>
inline const char* scan_llama3(const char* p, const char* end) {
  const uint8_t c = class_of(*p);
  if (c == kLetter) return run_of(kLetter, p, end);
  if (c == kDigit) {
    const char* q = p + 1;
    for (; q < end && q - p < kDigits; ++q)
      if (class_of(*q) != kDigit) return class_of(*q) == kBeyond ? nullptr : q;
    return q;
  }
  if (c == kBeyond) return nullptr;
  const uint8_t next = p + 1 < end ? class_of(p[1]) : 0;
  if (*p == '\'' && next == kBeyond) return nullptr;  // U+017F is an s in any case
  if (*p == '\'')
    if (const int n = contraction(p, end, 0x20)) return p + n;
  if (!(c & kLineEnd)) {
    if (next == kLetter) return run_of(kLetter, p + 1, end);
    if (next == kBeyond) return nullptr;
  }
  if (c == kOther || (*p == ' ' && next == kOther)) {
    const char* q = run_of(kOther, p + (c == kOther ? 0 : 1), end);
    while (q && q < end && (class_of(*q) & kLineEnd)) ++q;
    return q;
  }
  const char* r = run_of(kSpace, p, end);
  if (!r) return nullptr;
  for (const char* q = r; q > p; --q)
    if (class_of(q[-1]) & kLineEnd) return q;
  return rest_of_spaces(p, r, end);
}

}  // namespace weft::text
