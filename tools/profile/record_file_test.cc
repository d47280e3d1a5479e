// Record files: what is written is read, and other files are refused with one line that names them.
#include "tools/profile/record_file.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"
#include "tools/profile/made_record.h"

namespace weft::profiler {
namespace {

using testing::error_of;

TEST(RecordFile, KeepsTheRecord) {
  const std::string path = ::testing::TempDir() + "/step.record";
  StepRecord r = made_record();
  r.buffers = {{.home = "cell", .index = 3, .owner = "w", .bytes = 64, .first = 0, .last = 4}};
  r.peak_bytes = r.measured_peak_bytes = 64;
  write_record(path, r);
  EXPECT_EQ(read_record(path).to_json(), r.to_json());
}

TEST(RecordFile, RefusesOtherFiles) {
  const std::string path = ::testing::TempDir() + "/damaged.record";
  EXPECT_NE(error_of([&] { read_record(path + ".none"); }).find("damaged.record.none"), std::string::npos);
  write_record(path, made_record());
  const std::string good = io::read_file(path);
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string("\xff\xff\xff", 3),
                                 std::string("{\"launches\": []}")}) {
    io::write_file_atomic(path, bad);
    const std::string error = error_of([&] { read_record(path); });
    EXPECT_EQ(error.rfind(path, 0), 0u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace weft::profiler
