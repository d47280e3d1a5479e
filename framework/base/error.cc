#include "framework/base/error.h"

#include <charconv>
#include <cmath>

#include "framework/base/one_line.h"

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

void fail(Code code, const std::string& message) { throw Error(code, one_line(message)); }

void bug(const char* file, int line, const char* condition, const std::string& message) {
  throw Error(Code::kInternal, str_cat("bug in Weft at ", file, ":", line, " (", condition, ") ", message));
}

}  // namespace weft::internal
