// Unicode by utf8proc: normal forms of valid UTF-8, and properties of characters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "models/text/bytes_as_text.h"

namespace weft::text {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// Whether the text surely is in the normal form; quick, may be false for some that are.
bool surely_normal(std::string_view text, NormalForm form);
/// Appends the normal form of a text.
void append_normal(std::string& out, std::string_view text, NormalForm form);

bool is_numeric(uint32_t code);
/// White_Space.
bool is_white(uint32_t code);
/// Letters, marks, digits and connecting punctuation: \w.
bool is_word(uint32_t code);

/// Bytes of whitespace at the beginning and at the end of a text.
size_t white_prefix(std::string_view text);
size_t white_suffix(std::string_view text);
/// The first and the last character of a text that is not empty; U+FFFD and one byte if it is no valid UTF-8.
CodePoint first_character(std::string_view text);
CodePoint last_character(std::string_view text);

}  // namespace weft::text
