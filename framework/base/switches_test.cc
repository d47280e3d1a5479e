// Switches: where a value comes from, which values are refused, unknown names, and the table of docs/debugging.md.
#include "framework/base/switches.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <tuple>

#include "framework/base/error.h"
#include "framework/base/nearest.h"
#include "framework/base/testing/error_of.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Switches, OverrideEnvironmentDefault) {
  for (const internal::Switch& s : all_switches()) {
    EXPECT_EQ(std::string(s.name).rfind("WEFT_", 0), 0u);
    EXPECT_GT(std::string(s.help).size(), 5u);
  }
  setenv("WEFT_DEBUG", "2", 1);
  EXPECT_EQ(switch_int("WEFT_DEBUG"), 2);
  set_switch("WEFT_DEBUG", "1");
  EXPECT_EQ(switch_int("WEFT_DEBUG"), 1);
  unsetenv("WEFT_TRACE");
  EXPECT_EQ(switch_value("WEFT_TRACE"), "");
  set_switch("WEFT_SYNC", "on");
  EXPECT_TRUE(switch_on("WEFT_SYNC"));
  EXPECT_EQ(error_of([] { switch_value("WEFT_SOMETHING"); }), "unknown switch WEFT_SOMETHING");
  EXPECT_EQ(error_of([] { set_switch("WEFT_THREAD", "2"); }), "unknown switch WEFT_THREAD; did you mean WEFT_THREADS?");
  set_switch("WEFT_SYNC", "0");
  set_switch("WEFT_DEBUG", "0");
}

TEST(Switches, EveryValueIsChecked) {
  const struct {
    const char *name, *value, *need;
  } cases[] = {
      {"WEFT_SYNC", "maybe", "0 or 1"},
      {"WEFT_DEBUG", "7", "0, 1 or 2"},
      {"WEFT_VERIFY_IR", "9", "0, 1 or 2"},
      {"WEFT_VERIFY", "2", "0, 1 or auto"},
      {"WEFT_EXEC", "quickly", "compiled, interp or eager"},
      {"WEFT_ISA", "sse", "auto, baseline, avx2 or avx512"},
      {"WEFT_CUDA", "nograph,nobatsh", "words separated by commas: nograph, nobatch or sm80"},
      {"WEFT_CUDA", "0", "words separated by commas: nograph, nobatch or sm80"},
      {"WEFT_CUDA", ",sm80", "words separated by commas: nograph, nobatch or sm80"},
      {"WEFT_CXX_SECONDS", "-1", "a whole number from 1 to 1000000"},
      {"WEFT_CXX_SECONDS", "99999999999999999999", "a whole number from 1 to 1000000"},
      {"WEFT_THREADS", "2x", "a whole number from 0 to 4096"},
      {"WEFT_THREADS", "5000", "a whole number from 0 to 4096"},
  };
  for (const auto& c : cases) {
    const std::string before = switch_value(c.name), want = str_cat(c.name, ": got '", c.value, "'; need ", c.need);
    set_switch(c.name, c.value);
    EXPECT_EQ(error_of([&] { switch_value(c.name); }), want);
    EXPECT_EQ(error_of(check_switches), want);
    set_switch(c.name, before);
  }
  EXPECT_EQ(error_of(check_switches), "");
  for (const char* v : {"1", "true", "auto", "no", "0"}) {
    set_switch("WEFT_VERIFY", v);
    EXPECT_EQ(switch_value("WEFT_VERIFY"), v);
  }
}

TEST(Switches, AListHasItsWords) {
  const std::string before = switch_value("WEFT_CUDA");
  for (const auto& [value, graph, sm80] : {std::tuple("", false, false),
                                           {"nograph", true, false},
                                           {"sm80,nograph", true, true},
                                           {"sm80,sm80", false, true}}) {
    set_switch("WEFT_CUDA", value);
    EXPECT_EQ(switch_has("WEFT_CUDA", "nograph"), graph) << value;
    EXPECT_EQ(switch_has("WEFT_CUDA", "sm80"), sm80) << value;
  }
  set_switch("WEFT_CUDA", before);
  EXPECT_NE(error_of([] { switch_has("WEFT_CUDA", "graph"); }).find("WEFT_CUDA has no word graph"), std::string::npos);
}

TEST(Switches, AnUnknownNameIsReportedWithTheNearest) {
  EXPECT_TRUE(internal::unknown_switches().empty());
  setenv("WEFT_DEBGU", "1", 1);
  setenv("WEFT_SOMETHING_ELSE", "1", 1);
  std::vector<std::string> got = internal::unknown_switches();
  const std::set<std::string> lines(got.begin(), got.end());
  EXPECT_EQ(lines, (std::set<std::string>{"the environment variable WEFT_DEBGU is not a switch of Weft and changes "
                                          "nothing; did you mean WEFT_DEBUG?",
                                          "the environment variable WEFT_SOMETHING_ELSE is not a switch of Weft and "
                                          "changes nothing"}));
  unsetenv("WEFT_DEBGU");
  unsetenv("WEFT_SOMETHING_ELSE");
}

TEST(Switches, RelativePathsStartWhereBazelRunWasTyped) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/user", 1);
  const std::pair<const char*, const char*> cases[] = {{"WEFT_DUMP", "dump"}, {"WEFT_TRACE", "a/trace.json"}};
  for (const auto& [name, value] : cases) {
    set_switch(name, value);
    EXPECT_EQ(switch_value(name), str_cat("/home/user/", value));
    set_switch(name, "/tmp/x");
    EXPECT_EQ(switch_value(name), "/tmp/x");
    set_switch(name, "");
    EXPECT_EQ(switch_value(name), "");
  }
  set_switch("WEFT_CACHE", "off");
  EXPECT_EQ(switch_value("WEFT_CACHE"), "off");
  set_switch("WEFT_CXX", "g++");
  EXPECT_EQ(switch_value("WEFT_CXX"), "g++");
  set_switch("WEFT_CXX", "bin/g++");
  EXPECT_EQ(switch_value("WEFT_CXX"), "/home/user/bin/g++");
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(switch_value("WEFT_CXX"), "bin/g++");
}

TEST(Switches, TheDebuggingPageHasTheSameRows) {
  std::ifstream page("docs/debugging.md");
  ASSERT_TRUE(page);
  std::vector<std::string> rows;
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| WEFT_")) rows.push_back(line);
  ASSERT_EQ(rows.size(), all_switches().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const internal::Switch& s = all_switches()[i];
    EXPECT_TRUE(rows[i].starts_with(str_cat("| ", s.name, " | ", s.values, " | ", s.fallback))) << rows[i];
  }
}

TEST(Nearest, NeedsFewEdits) {
  const std::vector<std::string> names{"steps", "sample", "seed"};
  EXPECT_EQ(nearest_name("stesp", names, 4), "steps");
  EXPECT_EQ(nearest_name("sead", names, 4), "seed");
  EXPECT_EQ(nearest_name("frequency", names, 4), "");
  EXPECT_EQ(nearest_name("", names, 5), "seed");
  // Without a limit: fewer in short names.
  EXPECT_EQ(nearest_name("stesp", names), "steps");
  EXPECT_EQ(nearest_name("sapmel", names), "sample");
  EXPECT_EQ(nearest_name("sapmex", names), "");
  EXPECT_EQ(nearest_name("sapmex", names, 4), "sample");
  EXPECT_EQ(nearest_name("wrong", std::vector<std::string>{"json"}), "");
  EXPECT_EQ(nearest_name("a.wait", std::vector<std::string>{"a.bias", "a.weight"}, 4), "a.weight");  // 3 edits each
}

TEST(Nearest, ExchangedNeighboursAreOneEdit) {
  // "stages" needs two replacements; as two edits each, the exchanges would lose to it.
  const std::vector<std::string> names{"stages", "steps", "ab"};
  EXPECT_EQ(nearest_name("stpes", names), "steps");
  EXPECT_EQ(nearest_name("tseps", names, 2), "steps");
  EXPECT_EQ(nearest_name("ba", names, 2), "ab");
  // Exchanged characters stay: no character is inserted between them.
  EXPECT_EQ(nearest_name("ca", std::vector<std::string>{"abc"}, 3), "");
}

// Without a bound, one comparison of a megabyte with a megabyte takes hours.
TEST(Nearest, LongNamesAreNearToNone) {
  const std::string most(200, 'a'), longer(201, 'a'), megabyte(1 << 20, 'a');
  const std::vector<std::string> names{"steps", megabyte, std::string(1 << 20, 'b'), longer, most};
  EXPECT_EQ(nearest_name(std::string(199, 'a'), names, SIZE_MAX), most);
  for (const std::string& name : {longer, megabyte}) EXPECT_EQ(nearest_name(name, names, SIZE_MAX), "");
}

TEST(Switches, AnUnknownNameOfAMegabyteIsReported) {
  const std::string name = "WEFT_" + std::string(1 << 20, 'A');
  setenv(name.c_str(), "1", 1);
  EXPECT_EQ(internal::unknown_switches(),
            std::vector{"the environment variable " + name + " is not a switch of Weft and changes nothing"});
  ::testing::internal::CaptureStderr();
  internal::warn(internal::unknown_switches()[0]);
  unsetenv(name.c_str());
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(line.starts_with("weft: the environment variable WEFT_AAAA") && line.ends_with(" changes nothing\n"));
  EXPECT_LT(line.size(), 5000u);
}

}  // namespace
}  // namespace weft
