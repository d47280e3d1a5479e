// Shared by file.cc and atomic.cc: turns errno into weft::Error, and opens files.
#pragma once
#include <string>
#include <string_view>

namespace weft::io::internal {

/// Throws "cannot WHAT 'PATH': REASON" with the code that fits `error`.
[[noreturn]] void fail(int error, std::string_view what, const std::string& path);

/// open(2) with O_CLOEXEC; throws through fail().
int open_or_fail(const std::string& path, int flags, std::string_view what, int mode);

/// Throws "cannot WHAT 'PATH': it is a folder; need a file", and likewise for pipes and devices, unless `mode` (of
/// stat) says that it is a regular file.
void need_regular(unsigned mode, std::string_view what, const std::string& path);

}  // namespace weft::io::internal
