// Record files: the protobuf message of a StepRecord.
#pragma once
#include <string>

#include "compiler/exec/record.h"

namespace weft::profiler {

/// The record of a file that a flag names. Throws NotFound for a missing file and InvalidArgument for one that is not a
/// record; both name flag and file.
StepRecord read_record(const std::string& flag, const std::string& path);
/// The same; throws FailedPrecondition if the launches have no measured times.
StepRecord read_measured_record(const std::string& flag, const std::string& path);

}  // namespace weft::profiler
