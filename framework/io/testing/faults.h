// Faults of a disk, for tests: replaces the functions of libc that change files. Calls for paths below one folder are
// counted; the n-th fails, or ends the process as kill -9 does. fsync() of such a path does nothing else, because no
// test here cuts the power.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::io::testing {

enum class Fault {
  kKill,         // the process ends before the call
  kKillHalfway,  // a write writes half of its bytes, then the process ends; other calls: after the call
  kNoSpace,      // ENOSPC from this call on, except when something is removed
  kShortWrite,   // a write writes half of its bytes; after that kNoSpace
  kBroken,       // EIO, this call only
  kNoOffsets,    // EOPNOTSUPP from this call on for writes at an offset, as a store of objects
  kNoReserve,    // EOPNOTSUPP from this call on for fallocate()
  kHold,         // this call waits for release()
};
/// The faults of a disk.
inline constexpr Fault kFaults[] = {Fault::kKill, Fault::kKillHalfway, Fault::kNoSpace, Fault::kShortWrite,
                                    Fault::kBroken};

/// From now on counts calls for paths below `folder` (absolute); call `at`, the first being 0, has the fault. -1: none.
void set_fault(const std::string& folder, int64_t at = -1, Fault fault = Fault::kKill);

/// Returns when the call with kHold waits.
void wait_for_hold();
/// Lets the call with kHold go on, now or when it comes.
void release();

/// Whether the file system can exchange two names (RENAME_EXCHANGE), as far as it can. At first true.
void set_exchange(bool works);

/// The calls since set_fault().
int64_t total_calls();
/// The largest position in a file that was written since set_fault(), as the number of bytes before its end.
int64_t written_end();
/// The ranges of bytes, as begin and end, for which space was asked since set_fault().
std::vector<std::pair<int64_t, int64_t>> reserved();

/// A new folder for thousands of small files: in memory, if the system has a file system for it. The test removes it.
std::string fast_folder();

}  // namespace weft::io::testing
