// The one error type of Weft and the two checks that throw it.
// WEFT_CHECK reports an error of the user, WEFT_BUG_IF an error of Weft. Message: "op: what; got ...; need ...; hint".
// Both append the place in the user's program: "; at model.cc:31, in blocks.3.attn" (framework/base/origin.h).
#pragma once
#include <stdexcept>
#include <string>

#include "framework/base/str_cat.h"

namespace weft {

/// Kinds of failure, with the numbers of absl::StatusCode.
enum class Code {
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

/// Thrown by every public function of Weft on bad input: a code and one clear sentence.
class Error : public std::runtime_error {
 public:
  /// The message becomes one line of limited length (framework/base/one_line.h).
  Error(Code code, const std::string& message);
  Code code() const { return code_; }

 private:
  Code code_;
};

namespace internal {
/// Throws Error with the message and the current place.
[[noreturn]] void fail(Code code, const std::string& message);
[[noreturn]] void bug(const char* file, int line, const char* condition, const std::string& message);
/// Prints "weft: MESSAGE" as one line to standard error: for a condition that needs the user's attention but stops
/// nothing.
void warn(const std::string& message);
}  // namespace internal

}  // namespace weft

/// Throws weft::Error(kInvalidArgument) with the concatenated message unless `cond` holds. The message is built lazily.
#define WEFT_CHECK(cond, ...) WEFT_CHECK_AS(kInvalidArgument, cond, __VA_ARGS__)
/// WEFT_CHECK with another weft::Code.
#define WEFT_CHECK_AS(code, cond, ...)                                          \
  do {                                                                          \
    if (!(cond)) [[unlikely]]                                                   \
      ::weft::internal::fail(::weft::Code::code, ::weft::str_cat(__VA_ARGS__)); \
  } while (0)
/// Throws weft::Error(kInternal) with file, line and condition if `cond` holds: an invariant of Weft itself is broken.
#define WEFT_BUG_IF(cond, ...)                                                        \
  do {                                                                                \
    if (cond) [[unlikely]]                                                            \
      ::weft::internal::bug(__FILE__, __LINE__, #cond, ::weft::str_cat(__VA_ARGS__)); \
  } while (0)
