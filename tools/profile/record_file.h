// Record files: the protobuf message of a StepRecord.
#pragma once
#include <string>

#include "compiler/exec/record/record.h"

namespace weft::profiler {

/// The way to a record with measured times. The CPU times launches in the second to fourth run of a step, and every
/// target times them inside profile().
inline constexpr const char* kGetTimes =
    "call the step four times before step.record(), or on a GPU once inside profile()";

/// The record of a file that a flag names. Throws NotFound for a missing file and InvalidArgument for any other kind of
/// file; both errors name flag and file.
StepRecord read_record(const std::string& flag, const std::string& path);
/// Reads a record; also throws FailedPrecondition if the launches have no measured times.
StepRecord read_measured_record(const std::string& flag, const std::string& path);

}  // namespace weft::profiler
