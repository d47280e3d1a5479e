#include "framework/cli/cli.h"

#include <gtest/gtest.h>

#include "absl/flags/flag.h"
#include "framework/base/switches.h"

ABSL_FLAG(int64_t, steps, 10, "training steps");
ABSL_FLAG(bool, fast, true, "be fast");
ABSL_FLAG(std::string, data, "", "a file");

namespace weft {
namespace {

struct Outcome {
  int code;
  std::string out, err;
  std::vector<std::string> rest;
};

Outcome run(
    std::vector<std::string> args, const std::function<int()>& body = [] { return 0; }) {
  args.insert(args.begin(), "/bin/prog");
  std::vector<char*> argv;
  for (auto& a : args) argv.push_back(a.data());
  Outcome o;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  o.code =
      run_program(static_cast<int>(argv.size()), argv.data(), "A test.", [&](const std::vector<std::string>& rest) {
        o.rest = rest;
        return body();
      });
  o.out = testing::internal::GetCapturedStdout();
  o.err = testing::internal::GetCapturedStderr();
  return o;
}

TEST(Program, ParsesFlagsInEveryForm) {
  EXPECT_EQ(run({"--steps=3", "--data", "x.txt", "--nofast", "left", "--", "--steps=9"}).rest,
            (std::vector<std::string>{"left", "--steps=9"}));
  EXPECT_EQ(absl::GetFlag(FLAGS_steps), 3);
  EXPECT_EQ(absl::GetFlag(FLAGS_data), "x.txt");
  EXPECT_FALSE(absl::GetFlag(FLAGS_fast));
  run({"--fast", "--weft_isa=baseline"});
  EXPECT_TRUE(absl::GetFlag(FLAGS_fast));
  EXPECT_EQ(switch_value("WEFT_ISA"), "baseline");
}

TEST(Program, WrongUsageIsOneLineAndTwo) {
  Outcome o = run({"--stpes=3"});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: unknown flag --stpes; did you mean --steps?; --help lists all\n");
  o = run({"--steps=many"});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: --steps: got 'many'; need a whole number (training steps)\n");
  o = run({"--data"});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: --data needs a value: a file\n");
  o = run({}, []() -> int { usage_error("need a text"); });
  EXPECT_EQ(o.code, 2);
  o = run({}, []() -> int { throw std::runtime_error("no luck"); });
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "prog: no luck\n");
}

TEST(Program, HelpListsFlagsAndSwitches) {
  Outcome o = run({"--help"});
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.out.find("--steps  (default 10)\n      training steps"), std::string::npos) << o.out;
  EXPECT_NE(o.out.find("--weft_isa"), std::string::npos);
}

}  // namespace
}  // namespace weft
