#include "compiler/targets/cuda/testing/emulate/parameters.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

struct Field {
  std::string name;
  int offset;
};
struct StructLayout {
  int bytes = 0, align = 1;
  std::vector<Field> fields;  // numbers and pointers; nested structures contribute their fields
};

std::string trimmed(std::string s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.pop_back();
  size_t i = 0;
  while (i < s.size() && std::isspace(static_cast<unsigned char>(s[i]))) ++i;
  return s.substr(i);
}

bool part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::optional<StructLayout> layout(const std::string& text, const std::string& type) {
  static const std::map<std::string, int> kSizes = {
      {"bool", 1}, {"char", 1}, {"i8", 1},     {"u8", 1},      {"int8_t", 1},   {"uint8_t", 1},  {"bf16", 2},
      {"f16", 2},  {"i16", 2},  {"u16", 2},    {"int16_t", 2}, {"short", 2},    {"int", 4},      {"i32", 4},
      {"u32", 4},  {"f32", 4},  {"float", 4},  {"int32_t", 4}, {"unsigned", 4}, {"uint32_t", 4}, {"i64", 8},
      {"u64", 8},  {"f64", 8},  {"double", 8}, {"int64", 8},   {"int64_t", 8},  {"uint64_t", 8}, {"uint16_t", 2}};
  if (auto it = kSizes.find(type); it != kSizes.end()) return StructLayout{it->second, it->second, {{"", 0}}};
  if (type == "TensorMap") return StructLayout{128, 64, {{"", 0}}};
  if (type == "Div") return StructLayout{12, 4, {{"", 0}}};
  const size_t begin = text.find(str_cat("struct ", type, " {"));
  const size_t end = begin == std::string::npos ? begin : text.find("\n};", begin);
  if (end == std::string::npos) return std::nullopt;
  std::string body;
  for (size_t i = text.find('{', begin) + 1; i < end; ++i) {
    if (text.compare(i, 2, "//") == 0) i = std::min(end, text.find('\n', i));
    body += text[i];
  }
  StructLayout out;
  for (size_t at = 0; at < body.size();) {
    const size_t stop = std::min(body.find(';', at), body.size());
    std::string line = trimmed(body.substr(at, stop - at));
    at = stop + 1;
    if (line.empty()) continue;
    if (line.rfind("const ", 0) == 0) line = trimmed(line.substr(6));
    size_t n = 0;
    while (n < line.size() && part_of_name(line[n])) ++n;
    const std::string of = line.substr(0, n);
    for (size_t from = n; from < line.size();) {
      const size_t comma = std::min(line.find(',', from), line.size());
      std::string name = trimmed(line.substr(from, comma - from));
      from = comma + 1;
      std::optional<StructLayout> one;
      if (name.find('*') != std::string::npos) {
        one = StructLayout{8, 8, {{"", 0}}};
        name = trimmed(name.substr(name.rfind('*') + 1));
      } else {
        one = layout(text, of);
      }
      int count = 1;
      if (const size_t open = name.find('['); open != std::string::npos) {
        count = std::atoi(name.c_str() + open + 1);
        name = trimmed(name.substr(0, open));
      }
      if (!one || count < 1) return std::nullopt;
      out.align = std::max(out.align, one->align);
      out.bytes = (out.bytes + one->align - 1) / one->align * one->align;
      for (int i = 0; i < count; ++i, out.bytes += one->bytes)
        for (const Field& f : one->fields)
          out.fields.push_back(
              {str_cat(name, count > 1 ? str_cat("[", i, "]") : "", f.name.empty() ? "" : str_cat(".", f.name)),
               out.bytes + f.offset});
    }
  }
  out.bytes = (out.bytes + out.align - 1) / out.align * out.align;
  return out;
}

}  // namespace

std::string parameter_name(const std::string& text, int byte) {
  constexpr char kBefore[] = "const __grid_constant__ ";
  if (const size_t at = text.rfind(kBefore); at != std::string::npos) {
    size_t end = at + sizeof kBefore - 1;
    const size_t begin = end;
    while (end < text.size() && part_of_name(text[end])) ++end;
    if (const std::optional<StructLayout> all = layout(text, text.substr(begin, end - begin)))
      for (const Field& f : all->fields)
        if (f.offset == byte) return str_cat("parameter ", f.name);
  }
  return str_cat("the address at byte ", byte, " of the parameters");
}

}  // namespace weft::cuda
