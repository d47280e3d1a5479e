#include "framework/base/error.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "framework/base/called.h"
#include "framework/base/one_line.h"
#include "framework/base/origin.h"

namespace weft {

std::string formatted(const char* format, ...) {
  va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, values)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(values);
  return text;
}

Error::Error(Code code, const std::string& message) : std::runtime_error(one_line(message)), code_(code) {}

}  // namespace weft

namespace weft::internal {

void append(std::string& s, double v) {
  if (std::isnan(v)) return void(s.append("nan"));
  if (std::isinf(v)) return void(s.append(v < 0 ? "-inf" : "inf"));
  char buf[32];
  auto end = std::to_chars(buf, buf + sizeof buf, v).ptr;
  s.append(buf, end);
}
void append(std::string& s, int64_t v) { s.append(std::to_string(v)); }
void append(std::string& s, uint64_t v) { s.append(std::to_string(v)); }

thread_local constinit Origin origin;

// A part of the paths of the standard library's headers. emplace_back() makes such a header the caller of a
// constructor, but the place must be a line of the user.
constexpr std::string_view kStandardLibrary = "/include/c++/";

std::string origin_text(SourceLine line, std::string_view scope) {
  std::string s;
  if (line.line && std::string_view(line.file).find(kStandardLibrary) == std::string_view::npos)
    s += str_cat("; at ", line);
  if (scope.empty()) return s;
  s += str_cat(s.empty() ? "; in " : ", in ", scope);
  std::replace(s.end() - static_cast<std::ptrdiff_t>(scope.size()), s.end(), '/', '.');
  return s;
}

std::string origin_path() {
  std::string path;
  for (const OriginName* n = origin.names; n; n = n->path ? nullptr : n->outer)
    if (!n->text.empty()) path = path.empty() ? std::string(n->text) : str_cat(n->text, "/", path);
  return path;
}

// Whether the message contains this line as a whole: "model.cc:3" is not in "model.cc:31".
static bool names_line(const std::string& message, const std::string& line) {
  for (size_t at = message.find(line); at != message.npos; at = message.find(line, at + 1)) {
    const size_t end = at + line.size();
    if (end == message.size() || message[end] < '0' || message[end] > '9') return true;
  }
  return false;
}

// " (Linear)": the note about the name that ends the path, if there is one.
static std::string note_about(const std::string& path) {
  for (const OriginName* n = path.empty() ? nullptr : origin.names; n; n = n->outer)
    if (n->note && n->text == path) return str_cat(" (", n->note->text(), ")");
  return {};
}

// The message with the current place, unless it names the line already.
static std::string placed(std::string message) {
  SourceLine line = origin.line ? *origin.line : SourceLine();
  if (line.line && names_line(message, line.to_string())) line = {};
  const std::string path = origin_path();
  return message + origin_text(line, path) + note_about(path);
}

thread_local constinit const char* Called::current = nullptr;

// The message in the name of the function that the user called.
static std::string in_its_name(const std::string& message) {
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_");
  if (!Called::current || end == 0 || end == message.npos || message.compare(end, 2, ": ") != 0) return message;
  return Called::current + message.substr(end);
}

void fail(Code code, const std::string& message) { throw Error(code, placed(in_its_name(message))); }

void warn(const std::string& message) { std::fprintf(stderr, "weft: %s\n", one_line(message).c_str()); }

void bug(const char* file, int line, const char* condition, const std::string& message) {
  fail(Code::kInternal, str_cat("bug in Weft at ", file, ":", line, " (", condition, ") ", message));
}

}  // namespace weft::internal
