#include "tools/profile/record_file.h"

#include <filesystem>

#include "framework/base/error.h"
#include "framework/io/file.h"

namespace weft::profiler {

StepRecord read_record(const std::string& path) {
  const std::string file = io::resolve_path(path), bytes = io::read_file(file);
  StepRecord record;
  try {
    record = StepRecord::from_proto(bytes);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(file, ": ", e.what()));
  }
  if (record.title.empty()) record.title = std::filesystem::path(path).filename().string();
  WEFT_CHECK(!record.launches.empty(), file,
             ": no launches in it; need a file that StepRecord::to_proto() or "
             "profile --save_record wrote");
  return record;
}

void write_record(const std::string& path, const StepRecord& record) {
  io::write_file_atomic(io::resolve_path(path), record.to_proto());
}

}  // namespace weft::profiler
