#include "tools/profile/record_file.h"

#include "framework/base/error.h"
#include "framework/io/file.h"

namespace weft::profiler {

StepRecord read_record(const std::string& flag, const std::string& path) {
  StepRecord record;
  try {
    const std::string bytes = io::read_file(path);
    try {
      record = StepRecord::from_proto(bytes);
      WEFT_CHECK(!record.launches.empty(), "it has no launches");
    } catch (const Error& e) {
      throw Error(e.code(), str_cat(path, ": ", e.what()));
    }
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("--", flag,
                                  " needs a file of profile --save_record, WEFT_DUMP or "
                                  "StepRecord::to_proto(): ",
                                  e.what()));
  }
  if (record.title.empty()) record.title = io::base_name(path);
  return record;
}

StepRecord read_measured_record(const std::string& flag, const std::string& path) {
  StepRecord record = read_record(flag, path);
  WEFT_CHECK_AS(kFailedPrecondition, record.sum().measured_us > 0, "--", flag, ": '", path, "' has no measured times; ",
                kGetTimes, ", or let profile --save_record write it");
  return record;
}

}  // namespace weft::profiler
