#include "framework/cli/cli.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "absl/flags/flag.h"
#include "framework/base/end_work.h"
#include "framework/base/str_cat.h"
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

// Runs the program with `args` and catches its output.
Outcome call(std::vector<std::string> args, const std::function<int(int, char**, Outcome&)>& program) {
  args.insert(args.begin(), "/bin/prog");
  std::vector<char*> argv;
  for (auto& a : args) argv.push_back(a.data());
  Outcome o;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  o.code = program(static_cast<int>(argv.size()), argv.data(), o);
  o.out = testing::internal::GetCapturedStdout();
  o.err = testing::internal::GetCapturedStderr();
  return o;
}

Outcome run(
    const std::vector<std::string>& args, const std::function<int()>& body = [] { return 0; }) {
  return call(args, [&](int argc, char** argv, Outcome& o) {
    return run_program(argc, argv, "A test.", [&](const std::vector<std::string>& rest) {
      o.rest = rest;
      return body();
    });
  });
}

// A program with a table of flags.
struct Options {
  bool on = true;
  int rank = -1;
  int64_t count = 3;
  uint64_t seed = 0;
  double rate = 0.25, share = 1, tokens = 1;
  std::string name;
  std::vector<std::string> list{"a", "b"};
};
Outcome run(const std::vector<std::string>& args, Options& o) {
  const Flags flags{{"on", &o.on, "a switch"},
                    {"rank", &o.rank, "a rank", {-1, 7}},
                    {"count", &o.count, "a count", {-4}},
                    {"seed", &o.seed, "a seed"},
                    {"rate", &o.rate, "a rate"},
                    {"name", &o.name, "a name"},
                    {"list", &o.list, "some names"},
                    {"share", &o.share, "a share", {0, 1, true}},
                    {"tokens", &o.tokens, "a count", {.least = 1, .most = 1e30, .whole = true}}};
  return call(args, [&](int argc, char** argv, Outcome&) {
    return run_program(argc, argv, "A test.", flags, [] { return 0; });
  });
}

TEST(Program, ParsesFlagsInEveryForm) {
  EXPECT_EQ(run({"--steps=3", "--data", "x.txt", "--nofast", "left", "--", "--steps=9"}).rest,
            (std::vector<std::string>{"left", "--steps=9"}));
  EXPECT_EQ(absl::GetFlag(FLAGS_steps), 3);
  EXPECT_EQ(absl::GetFlag(FLAGS_data), "x.txt");
  EXPECT_FALSE(absl::GetFlag(FLAGS_fast));
  run({"--fast", "--weft_isa=baseline", "--steps=4", "--steps=5"});
  EXPECT_EQ(absl::GetFlag(FLAGS_steps), 5);  // the last one counts
  EXPECT_TRUE(absl::GetFlag(FLAGS_fast));
  EXPECT_EQ(switch_value("WEFT_ISA"), "baseline");
}

TEST(Program, WrongUsageIsOneLineAndTwo) {
  Outcome o = run({"--stpes=3"});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: unknown flag --stpes; did you mean --steps? --help lists all\n");
  o = run({"--wrong"});
  EXPECT_EQ(o.err, "prog: unknown flag --wrong; --help lists all\n");
  o = run({"--steps=many"});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: --steps: got 'many'; need a whole number (training steps)\n");
  o = run({"--data"});
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: --data needs a value: a file\n");
  o = run({"--" + std::string(1 << 20, 's')});
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(o.err.starts_with("prog: unknown flag --ssss") && o.err.ends_with("s; --help lists all\n"));
  EXPECT_LT(o.err.size(), 5000u);
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

TEST(Program, TableSetsTheVariables) {
  Options o;
  EXPECT_EQ(run({"--noon", "--rank=2", "--count", "-4", "--seed=18446744073709551615", "--rate", "1e-3", "--name=x y",
                 "--list=c,d,e"},
                o)
                .code,
            0);
  EXPECT_FALSE(o.on);
  EXPECT_EQ(o.rank, 2);
  EXPECT_EQ(o.count, -4);
  EXPECT_EQ(o.seed, UINT64_MAX);
  EXPECT_EQ(o.rate, 1e-3);
  EXPECT_EQ(o.name, "x y");
  EXPECT_EQ(o.list, (std::vector<std::string>{"c", "d", "e"}));
  o = {};
  EXPECT_EQ(run({}, o).code, 0);
  EXPECT_EQ(o.count, 3);
  EXPECT_EQ(o.list, (std::vector<std::string>{"a", "b"}));
}

TEST(Program, ACountMayHaveAnExponentButNoFraction) {
  Options o;
  EXPECT_EQ(run({"--tokens=4e6"}, o).code, 0);
  EXPECT_EQ(o.tokens, 4e6);
  for (const char* tokens : {"2.5", "0", "inf", "1e31"})
    EXPECT_EQ(run({"--tokens", tokens}, o).err,
              str_cat("prog: --tokens: got '", tokens, "'; need a whole number from 1 to 1e+30 (a count)\n"));
  EXPECT_EQ(o.tokens, 4e6);
}

// A program with three parts: "the table", --draw and --count.
Outcome run_parts(const std::vector<std::string>& args, unsigned parts, bool* rows_given = nullptr) {
  int width = 1, rows = 2;
  bool fast = false;
  const PartFlags flags({"the table", "--draw", "--count"}, {{{"width", &width, "of a picture"}, 2},
                                                             {{"rows", &rows, "of a table", {}, rows_given}, 5},
                                                             {{"fast", &fast, "faster"}, 7}});
  return call(args, [&](int argc, char** argv, Outcome&) {
    return run_program(argc, argv, "A test.", flags.flags(), [&] {
      flags.check(parts);
      return 0;
    });
  });
}

TEST(Program, AFlagOfAnotherPartIsAnError) {
  EXPECT_EQ(run_parts({"--fast", "--rows", "3"}, 1).code, 0);
  EXPECT_EQ(run_parts({"--width", "3", "--rows", "3"}, 3).code, 0);  // two parts run, each with its flag
  const Outcome o = run_parts({"--fast", "--width", "1"}, 5);        // also with its default as its value
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: --width is a flag of --draw; this is the table and --count\n");
  EXPECT_EQ(run_parts({"--rows", "3"}, 2).err, "prog: --rows is a flag of the table and --count; this is --draw\n");
  bool given = false;  // Flag::given is set too
  EXPECT_EQ(run_parts({"--rows", "3"}, 2, &given).code, 2);
  EXPECT_TRUE(given);
}

TEST(Program, OnePartOfSeveral) {
  const PartFlags flags({"the table", "--draw", "--count"}, {});
  EXPECT_EQ(flags.only(0, 1), 1u);
  EXPECT_EQ(flags.only(4, 1), 4u);
  const Outcome o = call({}, [&](int argc, char** argv, Outcome&) {
    return run_program(argc, argv, "A test.", flags.flags(), [&] { return static_cast<int>(flags.only(6, 1)); });
  });
  EXPECT_EQ(o.code, 2);
  EXPECT_EQ(o.err, "prog: --draw and --count exclude each other; give one\n");
}

TEST(Program, WithoutSwitches) {
  const auto run_without = [](const std::vector<std::string>& args) {
    return call(args, [](int argc, char** argv, Outcome&) {
      return run_program(
          argc, argv, "A test.", Flags(), [] { return 0; }, Switches::kNone);
    });
  };
  EXPECT_EQ(run_without({"--help"}).out.find("weft_"), std::string::npos);
  EXPECT_EQ(run_without({"--weft_isa", "avx2"}).err, "prog: unknown flag --weft_isa; --help lists all\n");
  EXPECT_EQ(run_without({}).code, 0);
}

TEST(Program, TableHasTheSameErrorsAndHelp) {
  Options o;
  const auto refused = [&](const std::vector<std::string>& args) {
    const Outcome got = run(args, o);
    EXPECT_EQ(got.code, 2);
    return got.err;
  };
  EXPECT_EQ(refused({"--seed=-1"}), "prog: --seed: got '-1'; need a whole number, 0 or more (a seed)\n");
  EXPECT_EQ(refused({"--count=many"}), "prog: --count: got 'many'; need a whole number, -4 or more (a count)\n");
  EXPECT_EQ(refused({"--count=-5"}), "prog: --count: got '-5'; need a whole number, -4 or more (a count)\n");
  EXPECT_EQ(refused({"--count=9223372036854775808"}),
            "prog: --count: got '9223372036854775808'; need a whole number, -4 or more, at most 9223372036854775807 (a "
            "count)\n");
  for (const char* rank : {"-2", "8", "99999999999", "9223372036854775807"})
    EXPECT_EQ(refused({"--rank", rank}),
              str_cat("prog: --rank: got '", rank, "'; need a whole number from -1 to 7 (a rank)\n"));
  for (const char* share : {"0", "-1", "1.5", "nan", "inf"})
    EXPECT_EQ(refused({"--share", share}),
              str_cat("prog: --share: got '", share, "'; need a number above 0 and at most 1 (a share)\n"));
  EXPECT_EQ(refused({"--rate=inf"}), "prog: --rate: got 'inf'; need a number (a rate)\n");
  EXPECT_EQ(std::tie(o.rank, o.count, o.share, o.rate), std::tuple(-1, 3, 1.0, 0.25));
  EXPECT_EQ(refused({"--weft_dbug=1"}),
            "prog: unknown flag --weft_dbug; did you mean --weft_debug? --help lists all\n");
  EXPECT_EQ(refused({"--rate=high"}), "prog: --rate: got 'high'; need a number (a rate)\n");
  EXPECT_EQ(refused({"--on=maybe"}), "prog: --on: got 'maybe'; need true or false (a switch)\n");
  EXPECT_EQ(refused({"--conut=1"}), "prog: unknown flag --conut; did you mean --count? --help lists all\n");
  EXPECT_EQ(refused({"left"}), "prog: unexpected argument 'left'; --help lists the flags\n");
  o = {};
  const std::string help = run({"--help"}, o).out;
  for (const char* row : {"--count  (default 3)\n      a count\n", "--list  (default a,b)\n      some names\n",
                          "--name  (default \"\")\n      a name\n", "--rate  (default 0.25)\n"})
    EXPECT_NE(help.find(row), std::string::npos) << help;
}

TEST(Program, ABooleanFlagTakesAValueInEitherForm) {
  Options o;
  for (const auto& [args, on] : std::vector<std::pair<std::vector<std::string>, bool>>{
           {{"--on", "false"}, false}, {{"--on", "true"}, true}, {{"--on=false"}, false}, {{"--on"}, true}}) {
    EXPECT_EQ(run(args, o).err, "");
    EXPECT_EQ(o.on, on) << args.back();
  }
}

TEST(Program, KnowsWhichFlagsAreGiven) {
  int count = 0;
  bool on = true, count_given = false, on_given = false;
  const Flags flags{{"count", &count, "a count", {}, &count_given}, {"on", &on, "a switch", {}, &on_given}};
  call({"--count=0"},
       [&](int argc, char** argv, Outcome&) { return run_program(argc, argv, "A test.", flags, [] { return 0; }); });
  EXPECT_TRUE(count_given);
  EXPECT_FALSE(on_given);
  EXPECT_TRUE(set_flag(flags[0], "17"));
  EXPECT_EQ(count, 17);
  EXPECT_FALSE(set_flag(flags[0], "many"));
}

// Runs a program that reads --in and writes --out and the folder --into.
Outcome run_with_files(const std::vector<std::string>& args) {
  File in, out{File::Use::kWrite}, into{File::Use::kMakeFolder};
  const Flags flags{{"in", &in, "read this"}, {"out", &out, "write this"}, {"into", &into, "make this folder"}};
  return call(args, [&](int argc, char** argv, Outcome& o) {
    return run_program(argc, argv, "A test.", flags, [&] {
      o.rest = {in.path, out.path, into.path};
      return 0;
    });
  });
}

TEST(Program, FilesAreCheckedBeforeItRuns) {
  const std::string dir = testing::TempDir() + "/files", file = dir + "/file";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  std::ofstream(file) << "text";
  EXPECT_EQ(run_with_files({"--in", file, "--out", dir + "/new", "--into=" + dir + "/folder"}).rest,
            (std::vector<std::string>{file, dir + "/new", dir + "/folder"}));
  EXPECT_EQ(run_with_files({"--into", dir, "--out", file}).err, "");
  const auto refused = [&](const std::vector<std::string>& args, int code) {
    const Outcome o = run_with_files(args);
    EXPECT_EQ(o.code, code);
    EXPECT_EQ(o.rest, std::vector<std::string>());
    return o.err;
  };
  EXPECT_EQ(refused({"--in", ""}, 2), "prog: --in: got ''; need a path (read this)\n");
  EXPECT_EQ(refused({"--in", file, "--in", file}, 2), "prog: --in is given twice; give it once\n");
  EXPECT_EQ(refused({"--out="}, 2), "prog: --out: got ''; need a path (write this)\n");
  EXPECT_EQ(refused({"--in", file, "--out", dir + "/./file"}, 2),
            "prog: --in and --out name the same file: '" + dir + "/./file'\n");
  {  // a file that does not exist, by a relative path and by an absolute one
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(dir);
    EXPECT_EQ(refused({"--out", "new", "--into", dir + "/new"}, 2),
              "prog: --out and --into name the same file: '" + dir + "/new'\n");
    std::filesystem::current_path(before);
  }
  EXPECT_EQ(refused({"--out", dir}, 1), "prog: --out: cannot write '" + dir + "': it is a folder; need a file\n");
  EXPECT_EQ(refused({"--out", dir + "/no/x"}, 1), "prog: --out: cannot write '" + dir +
                                                      "/no/x': No such file or directory; need a path in a folder that "
                                                      "exists\n");
  EXPECT_EQ(refused({"--into", dir + "/no/x"}, 1),
            "prog: --into: cannot create folder '" + dir +
                "/no/x': No such file or directory; need a path in a folder that "
                "exists\n");
  EXPECT_EQ(refused({"--into", file}, 1), "prog: --into: cannot write into folder '" + file + "': Not a directory\n");
  EXPECT_NE(run_with_files({"--help"}).out.find("Files and folders are written into folders that exist."),
            std::string::npos);
  std::vector<std::string> left;  // the checks leave nothing
  for (const auto& entry : std::filesystem::directory_iterator(dir)) left.push_back(entry.path().string());
  EXPECT_EQ(left, std::vector<std::string>{file});
}

TEST(Program, SwitchesAreCheckedAtTheStart) {
  bool ran = false;
  const auto body = [&] {
    ran = true;
    return 0;
  };
  const Outcome o = run({"--weft_verify", "2"}, body);
  EXPECT_EQ(o.code, 2);
  EXPECT_TRUE(o.err.starts_with("prog: --weft_verify: got '2'; need 0, 1 or auto (compare")) << o.err;
  EXPECT_FALSE(ran);
  set_switch("WEFT_VERIFY", "auto");
}

TEST(Program, SettingsAddUp) {
  Settings settings{{"a", "0"}};
  const Flags flags{{"set", &settings, "a field"}};
  const auto call_with = [&](const std::vector<std::string>& args) {
    return call(args, [&](int argc, char** argv, Outcome&) {
      return run_program(argc, argv, "A test.", flags, [] { return 0; });
    });
  };
  EXPECT_EQ(call_with({"--set", "b=1", "--set=c=zipf:1.1,a=2", "--set", "b="}).code, 0);
  EXPECT_EQ(settings, (Settings{{"a", "2"}, {"b", ""}, {"c", "zipf:1.1"}}));
  EXPECT_EQ(flag_text(flags[0]), "a=2,b=,c=zipf:1.1");
  for (const char* bad : {"", "a", "=1", "a=1,", "a=1,=2", ",a=1"})
    EXPECT_EQ(call_with({"--set", bad}).err, str_cat("prog: --set: got '", bad, "'; need NAME=VALUE (a field)\n"));
  EXPECT_EQ(flag_text(flags[0]), "a=2,b=,c=zipf:1.1");
}

TEST(Program, AFlagFileStandsForItsFlags) {
  const std::string path = testing::TempDir() + "/cli_test.flags";
  const auto set = [&](const std::string& text) { std::ofstream(path) << text; };
  set("# of a run\n--steps=3\n\n--data=a file.txt\n--nofast");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--flagfile", path, "--steps=4"}, {"--flagfile=" + path, "--steps", "4", "x"}}) {
    const Outcome o = run(args);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(absl::GetFlag(FLAGS_steps), 4);
    EXPECT_EQ(absl::GetFlag(FLAGS_data), "a file.txt");
    EXPECT_FALSE(absl::GetFlag(FLAGS_fast));
  }
  EXPECT_EQ(run({"--steps=4", "--flagfile", path}).code, 0);
  EXPECT_EQ(absl::GetFlag(FLAGS_steps), 3);
  EXPECT_EQ(run({"--", "--flagfile"}).rest, std::vector<std::string>{"--flagfile"});
  const std::pair<const char*, std::string> bad[] = {{"--steps=1\n3", path + ":2 is '3'; need a flag, as --steps=100"},
                                                     {"--flagfile=x", path + ":1 is '--flagfile=x'; need a flag"},
                                                     {"--", path + ":1 is '--'; need a flag"},
                                                     {"--stesp=3", "unknown flag --stesp; did you mean --steps?"},
                                                     {"--steps", "--steps needs a value"}};
  for (const auto& [text, error] : bad) {
    set(text);
    const Outcome o = run({"--flagfile", path});
    EXPECT_EQ(o.code, 2) << text;
    EXPECT_NE(o.err.find(error), std::string::npos) << o.err;
  }
  EXPECT_NE(run({"--flagfile"}).err.find("--flagfile needs a value"), std::string::npos);
  EXPECT_NE(run({"--flagfile", "/no/such"}).err.find("'/no/such': No such file"), std::string::npos);
  EXPECT_NE(run({"--help"}).out.find("--flagfile"), std::string::npos);
  absl::SetFlag(&FLAGS_fast, true);
}

TEST(Flags, ValuesCompare) {
  double a = 1e-3, b = 0.001;
  std::string s = "x";
  const Flag first{"a", &a, "", {0, 1}}, second{"b", &b, "", {0, 1, true}};
  EXPECT_TRUE(same_value(first, second) && in_range(first));
  a = b = 0;
  EXPECT_TRUE(in_range(first));
  EXPECT_FALSE(in_range(second));
  a = NAN;
  EXPECT_FALSE(in_range(first) || same_value(first, second));
  EXPECT_TRUE(in_range({"s", &s, ""}));
}

TEST(Program, ASwitchWithAShortNameIsOneFlag) {
  const std::string before = switch_value("WEFT_THREADS");
  EXPECT_EQ(run({"--threads", "3"}).code, 0);
  EXPECT_EQ(switch_value("WEFT_THREADS"), "3");
  EXPECT_EQ(run({"--weft_threads=2"}).err,
            "prog: unknown flag --weft_threads; did you mean --threads? --help lists all\n");
  EXPECT_TRUE(
      run({"--threads=2x"})
          .err.starts_with("prog: --threads: got '2x'; need a whole number from 0 to 4096 (threads of each process"));
  EXPECT_NE(run({"--help"}).out.find("  --threads  (default 0)  threads of each process"), std::string::npos);
  set_switch("WEFT_THREADS", before);
}

// Runs f in a child process and returns its exit code.
int in_child(const std::function<int()>& f) {
  const pid_t child = fork();
  if (child == 0) _exit(f());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int plain_run(const std::function<int()>& body) {
  char name[] = "prog";
  char* argv[] = {name, nullptr};
  return run_program(1, argv, "A test.", Flags{}, body);
}

const std::string kMuch(1 << 20, 'x');  // more than a stream buffers
// The ways in which programs print.
const std::function<void()> kPrints[] = {[] { std::cout << "some text\n"
                                                        << std::flush; },
                                         [] { std::printf("some text\n"), std::fflush(stdout); },
                                         [] { write_output(kMuch); }};

TEST(Program, AFullStandardOutputIsAFailure) {
  for (const auto& print : kPrints) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    EXPECT_EQ(in_child([&] {
                if (!freopen("/dev/full", "w", stdout)) return 9;
                dup2(ends[1], 2);
                return plain_run([&] {
                  print();
                  return 0;
                });
              }),
              1);
    char text[200] = {};
    EXPECT_GT(read(ends[0], text, sizeof text - 1), 0);
    EXPECT_STREQ(text, "prog: cannot write to standard output: No space left on device\n");
    close(ends[0]), close(ends[1]);
  }
}

TEST(Program, FailsIfTheWorkAtItsEndFails) {
  const auto lose = [] { throw std::runtime_error("cannot write 'x'"); };
  int done = 0;
  const auto program = [&](int code) {
    return [&, code] {
      internal::at_end(lose);
      internal::at_end([&] { ++done; });
      return code;
    };
  };
  Outcome o = run({}, program(0));
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "prog: cannot write 'x'\n");
  EXPECT_EQ(done, 1);
  o = run({}, program(3));
  EXPECT_EQ(o.code, 3);
  EXPECT_EQ(o.err, "prog: cannot write 'x'\n");
  EXPECT_EQ(run({}).code, 0);  // it was done
  EXPECT_EQ(done, 2);
}

// The code of a program that SIGPIPE ends, and no error.
TEST(Program, AClosedStandardOutputInterrupts) {
  for (const auto& print : kPrints) {
    int out[2], err[2];
    ASSERT_EQ(pipe(out), 0);
    ASSERT_EQ(pipe(err), 0);
    close(out[0]);
    EXPECT_EQ(in_child([&] {
                dup2(out[1], 1), dup2(err[1], 2);
                return plain_run([&] {
                  watch_interrupts();
                  for (int i = 0; i < 2; ++i) {
                    if (interrupted() != (i > 0) || output_closed() != (i > 0)) return 9;
                    print();
                  }
                  // Commands get the default.
                  if (WTERMSIG(std::system("kill -PIPE $$")) != SIGPIPE) return 8;
                  return interrupted_code();
                });
              }),
              128 + SIGPIPE);
    close(out[1]), close(err[1]);
    char text[200] = {};
    EXPECT_EQ(read(err[0], text, sizeof text - 1), 0) << text;
    close(err[0]);
  }
}

TEST(Program, SignalsEndItWithTheirCodes) {
  for (const int signal : {SIGHUP, SIGINT, SIGTERM})
    EXPECT_EQ(in_child([&] {
                return plain_run([&] {
                  watch_interrupts();
                  EXPECT_FALSE(interrupted());
                  raise(signal);
                  EXPECT_TRUE(interrupted());
                  return interrupted_code();
                });
              }),
              128 + signal);
  EXPECT_EQ(in_child([&] {  // as under nohup
              signal(SIGHUP, SIG_IGN);
              watch_interrupts();
              raise(SIGHUP);
              return interrupted_code();
            }),
            0);
  EXPECT_EQ(in_child([&] {
              watch_interrupts();
              for (int i = 0; i < 5; ++i) raise(SIGTERM);  // as `timeout` does: one request
              if (interrupted_code() != 128 + SIGTERM) return 1;
              std::this_thread::sleep_for(std::chrono::milliseconds(1100));
              raise(SIGINT);
              return 0;
            }),
            128 + SIGINT);
}

// The launcher of a job passes signals on that it has blocked in its thread.
TEST(Program, ASignalOfTheProcessGoesToItsThreadUnderASmallStackLimit) {
  EXPECT_EQ(in_child([&] {
              const rlimit limit{128 << 10, 128 << 10};
              setrlimit(RLIMIT_STACK, &limit);
              return plain_run([] {
                sigset_t mask;
                sigemptyset(&mask);
                sigaddset(&mask, SIGTERM);
                pthread_sigmask(SIG_BLOCK, &mask, nullptr);
                kill(getpid(), SIGTERM);
                int taken = 0;
                sigwait(&mask, &taken);
                return taken;
              });
            }),
            SIGTERM);
}

TEST(Program, ASmallStackLimitIsNoLimit) {
  EXPECT_EQ(in_child([&] {
              const rlimit limit{128 << 10, 128 << 10};
              setrlimit(RLIMIT_STACK, &limit);
              return plain_run([] {
                volatile char much[1 << 20];
                for (size_t i = 0; i < sizeof much; i += 4096) much[i] = 1;
                return 0;
              });
            }),
            0);
}

}  // namespace
}  // namespace weft
