#include "distributed/control/service/token.h"

#include <sys/random.h>
#include <sys/stat.h>

#include <cstdlib>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/file.h"

namespace weft::control {
namespace {

constexpr size_t kLongest = 1024;

std::string trimmed(const std::string& text) {
  const char* space = " \t\r\n";
  const size_t begin = text.find_first_not_of(space);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

}  // namespace

std::string token_of_file(const std::string& path) {
  struct stat s;
  if (::stat(path.c_str(), &s) == 0)
    WEFT_CHECK_AS(kPermissionDenied, (s.st_mode & 077) == 0, "the token file ", one_line(path),
                  " can be read or written by other users; need mode 0600: chmod 600 ", one_line(path));
  const std::string token = trimmed(io::read_file(path, kLongest));
  WEFT_CHECK(!token.empty(), "the token file ", one_line(path), " is empty; need a secret text");
  return token;
}

std::string take_token(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string token = value ? trimmed(value) : "";
  ::unsetenv(variable);
  WEFT_CHECK(token.size() <= kLongest, variable, " has ", token.size(), " bytes; need at most ", kLongest);
  return token;
}

std::string make_token() {
  unsigned char bytes[32];
  WEFT_CHECK_AS(kUnavailable, ::getrandom(bytes, sizeof bytes, 0) == sizeof bytes, "the kernel gave no random bytes");
  std::string out;
  for (const unsigned char b : bytes) {
    out += "0123456789abcdef"[b >> 4];
    out += "0123456789abcdef"[b & 15];
  }
  return out;
}

bool same_token(std::string_view given, std::string_view token) {
  size_t differ = given.size() ^ token.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const char t = token.empty() ? '\0' : token[i % token.size()];
    differ |= static_cast<unsigned char>(given[i] ^ t);
  }
  return differ == 0;
}

}  // namespace weft::control
