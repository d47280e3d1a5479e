// The bytes of tokens: characters of byte-level vocabularies, and tokens of single bytes.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// The bytes of a token of a byte-level vocabulary; nothing if a character stands for no byte.
std::optional<std::string> bytes_of_text(std::string_view token);
/// The character of a byte in a byte-level vocabulary.
std::string text_of_byte(unsigned char byte);
/// The byte of a token "<0xE2>"; -1 for any other token.
int fallback_byte(std::string_view token);

}  // namespace weft::text
