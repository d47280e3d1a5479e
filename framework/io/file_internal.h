// Shared by the files of this folder that write: turns errno into weft::Error, opens files and writes all bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
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

/// Writes all bytes at an offset; throws through fail().
void write_all(int fd, std::span<const std::byte> bytes, int64_t offset, const std::string& path);

/// The path that AtomicFile::commit() gives to a temporary.
std::string final_path(const std::string& temporary);

}  // namespace weft::io::internal
