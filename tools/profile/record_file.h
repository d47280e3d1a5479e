// Record files: the protobuf message of a StepRecord.
#pragma once
#include <string>

#include "compiler/exec/record.h"

namespace weft::profiler {

/// Throws NotFound for a missing file and InvalidArgument for one that is not a record; both name the file.
StepRecord read_record(const std::string& path);
void write_record(const std::string& path, const StepRecord& record);

}  // namespace weft::profiler
