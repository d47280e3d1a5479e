#include "compiler/cuda/words/words.h"

#include <string_view>

#include "compiler/codegen/target.h"

#define WEFT_TEXT(name) extern "C" const char weft_text_##name[], weft_text_##name##_end[];
WEFT_TEXT(cuda_env)
WEFT_TEXT(cuda_types)
WEFT_TEXT(cuda_base)
WEFT_TEXT(cuda_derived)
WEFT_TEXT(cuda_sm80)
WEFT_TEXT(philox)
#undef WEFT_TEXT

namespace weft::cuda {
namespace {

// Without comments and blank lines.
std::string lines(const char* begin, const char* end) {
  std::string_view text(begin, end - begin);
  std::string out;
  while (!text.empty()) {
    const size_t length = text.find('\n');
    std::string_view line = text.substr(0, length);
    text.remove_prefix(length == text.npos ? text.size() : length + 1);
    const size_t comment = line.find("//");
    if (comment != line.npos) line = line.substr(0, comment);
    while (!line.empty() && line.back() == ' ') line.remove_suffix(1);
    if (!line.empty()) out.append(line).push_back('\n');
  }
  return out;
}
#define WEFT_TEXT(name) lines(weft_text_##name, weft_text_##name##_end)

std::string make(Level level) {
  std::string out = WEFT_TEXT(cuda_env) + scalar_words() + WEFT_TEXT(cuda_base) + shared_words();
  if (level >= Level::kSm80) out += WEFT_TEXT(cuda_sm80);
  return out + "#line 1\n";
}

}  // namespace

const std::string& words(Level level) {
  static const std::string texts[] = {make(Level::kBase), make(Level::kSm80), make(Level::kSm90), make(Level::kSm90a)};
  return texts[static_cast<int>(level)];
}

const std::string& scalar_words() {
  static const std::string text = codegen::prelude(codegen::cpu_scalar()) + WEFT_TEXT(philox) + WEFT_TEXT(cuda_types);
  return text;
}

const std::string& shared_words() {
  static const std::string text = WEFT_TEXT(cuda_derived);
  return text;
}

Level level_of(const Kernel& kernel) {
  if (kernel.only_sm90a) return Level::kSm90a;
  return kernel.least_sm >= 90 ? Level::kSm90 : Level::kSm80;
}

std::string program(const Kernel& kernel) { return words(level_of(kernel)) + kernel.text; }

const std::vector<std::string>& nvrtc_options() {
  static const std::vector<std::string> options = {"--std=c++20", "--fmad=false", "--device-as-default-execution-space",
                                                   "--disable-warnings"};
  return options;
}

}  // namespace weft::cuda
