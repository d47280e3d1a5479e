// Unicode by utf8proc: normal forms of valid UTF-8, and properties of characters.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace weft::text
