// Metrics files that a run resumes: the lines after the checkpoint's step go, and lines that a crash has damaged.
#include "models/train/metrics.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/file.h"

namespace weft::train {
namespace {

using testing::error_of;

std::string line(int64_t step, const std::string& more = R"("loss":4.25)") {
  return str_cat(R"({"step":)", step, ",", more, "}\n");
}

std::string lines(int64_t first, int64_t last) {
  std::string all;
  for (int64_t s = first; s <= last; ++s) all += line(s);
  return all;
}

// A folder of its own, with the file's content; returns the path of the file.
std::string file_with(const std::string& content) {
  static int count = 0;
  const std::string folder = str_cat(::testing::TempDir(), "/metrics", ++count);
  io::make_folders(folder);
  io::write_file_atomic(folder + "/m.jsonl", content);
  return folder + "/m.jsonl";
}

TEST(Metrics, AResumedFileEndsWithTheCheckpointsStep) {
  const std::string eval = R"("eval_loss":4.5)", cut = R"({"step":4,"loss":4.2)",
                    long_line = line(3, R"("loss":)" + std::string(200000, ' ') + "1");
  const struct {
    std::string before;
    int64_t step;
    std::string after;
  } cases[] = {
      {lines(1, 5), 3, lines(1, 3)},
      {lines(1, 5), 5, lines(1, 5)},
      {lines(1, 5), 9, lines(1, 5)},  // the run up to step 9 had no --metrics
      {lines(1, 3) + line(3, eval) + lines(4, 5), 3, lines(1, 3) + line(3, eval)},
      {lines(1, 3) + cut, 3, lines(1, 3)},
      {lines(1, 3) + cut, 4, lines(1, 3)},  // not whole
      {lines(1, 3) + cut + "\n", 4, lines(1, 3)},
      {lines(1, 3) + std::string(5000, '\0'), 3, lines(1, 3)},
      {lines(1, 3) + std::string(5000, '\0') + "\n" + lines(4, 5), 3, lines(1, 3)},
      {lines(1, 3) + line(99999999999999999), 3, lines(1, 3)},
      {lines(1, 3) + "{\"step\":99999999999999999999,\"loss\":1}\n", 3, lines(1, 3)},
      {lines(1, 3) + "{\"step\":2}\n{\"step\":\n{\"step\":,}\n{}\n}\n\n", 3, lines(1, 3)},
      {lines(1, 2) + long_line + lines(4, 5), 3, lines(1, 2) + long_line},
      {lines(1, 2) + long_line + lines(4, 5), 2, lines(1, 2)},
      {lines(1, 20000), 19999, lines(1, 19999)},  // several blocks
      {lines(1, 20000), 1, lines(1, 1)},
  };
  for (const auto& c : cases) {
    const std::string path = file_with(c.before);
    std::string kept;
    {
      MetricsFile file(path, c.step);
      kept = file.kept();
      file.write_eval(c.step, 1.5);
    }
    EXPECT_EQ(kept, "") << c.before.substr(0, 300);
    EXPECT_TRUE(io::read_file(path) == c.after + line(c.step, R"("eval_loss":1.5)"))
        << c.before.substr(0, 300) << " at " << c.step << ": " << io::read_file(path).substr(0, 300);
  }
}

TEST(Metrics, AFileWithoutAnEarlierStepIsKept) {
  for (const int64_t step : {0, 3})
    for (const std::string& before : {lines(4, 6), std::string(R"({"st)"), line(7).substr(0, 9)}) {
      const std::string path = file_with(before);
      MetricsFile file(path, step);
      EXPECT_EQ(file.kept(), path + ".1");
      EXPECT_EQ(io::read_file(path + ".1"), before);
      EXPECT_EQ(io::read_file(path), "");
    }
  const std::string path = file_with(lines(1, 3));  // nothing was resumed
  EXPECT_EQ(MetricsFile(path, 0).kept(), path + ".1");
}

TEST(Metrics, OtherFilesAreRefusedOrKeptAndANewRunStartsAnew) {
  for (const int64_t step : {-1, 0, 3}) {
    const std::string notes = file_with("my notes\n");
    EXPECT_EQ(error_of([&] { MetricsFile(notes, step); }),
              notes + ": exists and is not a metrics file; use another --metrics file");
    EXPECT_EQ(io::read_file(notes), "my notes\n");
    const std::string empty = file_with("");
    EXPECT_EQ(MetricsFile(empty, step).kept(), "");
    const std::string fresh = empty + ".new";
    EXPECT_EQ(MetricsFile(fresh, step).kept(), "");
    EXPECT_EQ(io::read_file(fresh), "");
  }
  const std::string other = "{\"step\":1,\"model\":2}\n{\"step\":900,\"model\":2}\n";
  for (const int64_t step : {-1, 2}) {
    const std::string path = file_with(other);
    EXPECT_EQ(MetricsFile(path, step).kept(), path + ".1");
    EXPECT_EQ(io::read_file(path), "");
    EXPECT_EQ(io::read_file(path + ".1"), other);
  }
  for (const std::string& before : {lines(1, 3), line(1).substr(0, 9), line(1).substr(0, 3)}) {
    const std::string path = file_with(before);
    EXPECT_EQ(MetricsFile(path, -1).kept(), "");
    EXPECT_EQ(io::read_file(path), "");
  }
}

}  // namespace
}  // namespace weft::train
