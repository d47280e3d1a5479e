// The report of a failed program to the launcher of its job.
#pragma once
#include <optional>
#include <string>

#include "framework/base/error.h"

namespace weft {

/// The environment variable with the path of the report.
inline constexpr const char* kFailureReport = "JOB_FAILURE_REPORT";

/// Whether an error with this code only follows the failure of another process.
inline bool follows(Code code) { return code == Code::kAborted || code == Code::kUnavailable; }

struct FailureReport {
  bool follows = false;  // from the failure of another process: a collective was aborted, or a rank died
  std::string text;
};

/// Writes the report if the launcher asked for one. Never throws.
void report_failure(Code code, const std::string& text);
/// Calls the function of set_tell_others, if there is one. A program whose error ends it calls this after it has
/// printed the error: processes of its job that were started by hand, and wait for it, learn the cause. Never throws.
void tell_others(Code code, const std::string& text);
void set_tell_others(void (*tell)(Code code, const std::string& text));
/// The report in a file, or nothing.
std::optional<FailureReport> read_failure(const std::string& path);

}  // namespace weft
