#include "models/text/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>

#include "framework/base/error.h"
#include "framework/io/utf8.h"

namespace weft::text {
namespace {

/// ASCII characters are starters that compose with no character before them. So a run of other characters, with the
/// ASCII character before it, is normalised alone.
size_t plain_prefix(std::string_view text, NormalForm form) {
  size_t i = 0;
  while (true) {
    i += io::ascii_length(text.substr(i));
    // Below U+0300 all characters are NFC.
    while (form == NormalForm::kNfc && i < text.size() && static_cast<unsigned char>(text[i]) >= 0x80 &&
           static_cast<unsigned char>(text[i]) < 0xCC)
      i += 2;
    if (i == text.size() || static_cast<signed char>(text[i]) < 0) return i;
  }
}

size_t run_end(std::string_view text, size_t i) {
  while (i < text.size() && static_cast<signed char>(text[i]) < 0) ++i;
  return i;
}

utf8proc_category_t category(uint32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

}  // namespace

bool surely_normal(std::string_view text, NormalForm form) { return plain_prefix(text, form) == text.size(); }

void append_normal(std::string& out, std::string_view text, NormalForm form) {
  constexpr int kOptions[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE, UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                              UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  while (!text.empty()) {
    const size_t plain = plain_prefix(text, form);
    if (plain == text.size()) {
      out += text;
      return;
    }
    // The last plain character may compose with the next one.
    const size_t begin = plain > 0 ? plain - io::last_character(text.substr(0, plain)).size : 0;
    out += text.substr(0, begin);
    const size_t end = run_end(text, plain);
    utf8proc_uint8_t* made = nullptr;
    const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + begin),
                                static_cast<utf8proc_ssize_t>(end - begin), &made,
                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | kOptions[static_cast<int>(form)]));
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
    WEFT_CHECK_AS(kResourceExhausted, n >= 0, "normalise: ", utf8proc_errmsg(n));
    out.append(reinterpret_cast<const char*>(made), static_cast<size_t>(n));
    text.remove_prefix(end);
  }
}

bool is_numeric(uint32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_white(uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  const auto c = category(code);
  return code == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

bool is_word(uint32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace weft::text
