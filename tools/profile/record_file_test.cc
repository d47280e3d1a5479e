// Record files: a record is read, and other files are refused with one line that names them.
#include "tools/profile/record_file.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "tools/profile/testing/made_record.h"

namespace weft::profiler {
namespace {

using testing::error_of;

TEST(RecordFile, KeepsTheRecord) {
  const std::string path = ::testing::TempDir() + "/step.record";
  StepRecord r = made_record();
  r.buffers = {{.home = "cell", .index = 3, .owner = "w", .bytes = 64, .first = 0, .last = 4}};
  r.peak_bytes = r.measured_peak_bytes = 64;
  io::write_file_atomic(path, r.to_proto());
  EXPECT_EQ(read_record("record", path).to_json(), r.to_json());
  EXPECT_EQ(read_measured_record("record", path).to_json(), r.to_json());
}

TEST(RecordFile, RefusesOtherFiles) {
  const std::string path = ::testing::TempDir() + "/damaged.record";
  EXPECT_EQ(error_of([&] { read_record("record", path + ".none"); }),
            "--record needs a file of profile --save_record, WEFT_DUMP or StepRecord::to_proto(): cannot read '" +
                path + ".none': No such file or directory");
  io::write_file_atomic(path, made_record().to_proto());
  const std::string good = io::read_file(path);
  for (const std::string& bad :
       {std::string(), good.substr(0, good.size() / 2), std::string("\xff\xff\xff", 3),
        std::string("{\"launches\": []}"), std::string("\x89PNG\r\n"), StepRecord().to_proto()}) {
    io::write_file_atomic(path, bad);
    const std::string error = error_of([&] { read_record("diff", path); });
    EXPECT_EQ(error.rfind("--diff needs a file of profile", 0), 0u) << error;
    EXPECT_NE(error.find(": " + path + ": "), std::string::npos) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(RecordFile, RefusesRecordsWithoutTimesWhereTheyAreNeeded) {
  const std::string path = ::testing::TempDir() + "/planned.record";
  StepRecord r = made_record();
  for (LaunchRecord& l : r.launches) l.measured_us = 0;
  io::write_file_atomic(path, r.to_proto());
  EXPECT_EQ(read_record("diff", path).launches.size(), r.launches.size());
  EXPECT_EQ(error_of([&] { read_measured_record("diff", path); }).rfind("--diff: '" + path + "' has no measured", 0),
            0u);
}

}  // namespace
}  // namespace weft::profiler
