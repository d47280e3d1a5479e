// Compiling and loading, the in-process table, and compilers that fail in every way.
#include "compiler/jit/jit.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "compiler/jit/host_compiler.h"
#include "compiler/jit/testing/jit_test_support.h"

namespace weft::jit {
namespace {

TEST(Jit, CompilesAndThenFindsInMemory) {
  KernelRequest request = adders(1000, 7);
  Loaded first = load(request);
  EXPECT_EQ(first.unavailable, "");
  EXPECT_EQ(first.compiled, 7);
  EXPECT_TRUE(adds(first, 1000));
  EXPECT_GT(first.seconds, 0);
  Loaded again = load(request);
  EXPECT_EQ(again.compiled, 0);
  EXPECT_EQ(again.from_memory, 7);
  EXPECT_EQ(again.functions, first.functions);
  request.kernels.push_back(adder(1007, "adder7"));
  Loaded more = load(request);
  EXPECT_EQ(more.compiled, 1);
  EXPECT_EQ(more.from_memory, 7);
  EXPECT_TRUE(adds(more, 1000));
}

TEST(Jit, NoKernels) {
  Loaded l = load({"", {}, Isa::baseline});
  EXPECT_TRUE(l.functions.empty());
  EXPECT_EQ(l.compiled + l.from_memory + l.from_disk, 0);
}

TEST(Jit, OneNameWithSeveralTextsAndOneKernelTwice) {
  KernelRequest request = adders(0, 0);
  for (int64_t constant : {1100, 1101, 1100, 1102}) request.kernels.push_back(adder(constant));
  for (int units : {1, 3}) {
    request.prelude += "\n";
    Loaded l = load(request, {.units = units});
    EXPECT_EQ(l.compiled, 3);
    EXPECT_EQ(l.from_memory, 1);
    EXPECT_EQ(l.functions[0], l.functions[2]);
    const int64_t constants[] = {1100, 1101, 1100, 1102};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(reinterpret_cast<AddFunction>(l.functions[i])(5), 5 + constants[i]);
  }
}

TEST(Jit, HelpersOfOneKernelAreUnseenByOthers) {
  KernelRequest request = adders(0, 0);
  for (int64_t i = 0; i < 2; ++i) {
    std::string text = str_cat("static int64 help(int64 x) { return x + ", 1200 + i, "; }\n", "extern \"C\" int64 k", i,
                               "(int64 x) { return help(x); }\n");
    request.kernels.push_back({str_cat("k", i), text});
  }
  EXPECT_TRUE(adds(load(request, {.units = 1}), 1200));
}

TEST(Jit, CompilesForTheInstructionSetAsked) {
  for (int i = 0; i <= static_cast<int>(best_isa()); ++i) {
    KernelRequest request = adders(0, 0);
    request.isa = static_cast<Isa>(i);
    request.kernels.push_back({"isa",
                               "extern \"C\" int64 isa(int64) {\n#if defined(__AVX512F__)\nreturn 2;\n#elif "
                               "defined(__AVX2__)\nreturn 1;\n#else\nreturn 0;\n#endif\n}\n"});
    Loaded l = load(request);
    ASSERT_TRUE(l.functions[0]);
    EXPECT_EQ(reinterpret_cast<AddFunction>(l.functions[0])(0), i);
  }
}

TEST(Jit, NeverContractsAndNeverReorders) {
  KernelRequest request{"", {}, best_isa()};
  request.kernels.push_back({"chain",
                             "extern \"C\" void chain(const float* x, float* y) {\n  y[0] = x[0] * x[1] + x[2];\n"
                             "  y[1] = ((x[3] + x[4]) + x[5]) + x[6];\n}\n"});
  Loaded l = load(request);
  ASSERT_TRUE(l.functions[0]);
  // (1 + 2^-12)^2 - 1 loses 2^-24 when the product is rounded; the sum is 0 only in the order written.
  const float e = 0x1p-12f, x[7] = {1 + e, 1 + e, -1, 1e8f, 1, -1e8f, -1};
  float y[2];
  reinterpret_cast<void (*)(const float*, float*)>(l.functions[0])(x, y);
  volatile float product = x[0] * x[1];
  EXPECT_EQ(y[0], product + x[2]);
  EXPECT_EQ(y[1], -1.0f);
}

TEST(Jit, AnErrorNamesTheKernelAndKeepsItsSource) {
  KernelRequest request = adders(1300, 3);
  request.kernels[1].text = "extern \"C\" int64 adder1(int64 x) {\n  return x + missing_name;\n}\n";
  try {
    load(request, {.units = 1});
    FAIL() << "no error";
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_EQ(error.code(), Code::kInternal);
    EXPECT_TRUE(contains(text, "kernel adder1 does not compile: adder1_")) << text;
    EXPECT_TRUE(contains(text, ":2:14: error: 'missing_name' was not declared")) << text;
    size_t begin = text.find("its source is in ") + 17;
    std::string path = text.substr(begin, text.find(';', begin) - begin);
    std::string source = io::read_file(path);
    EXPECT_TRUE(contains(source, request.prelude)) << path;
    EXPECT_TRUE(contains(source, "missing_name")) << path;
  }
  request.kernels[1] = adder(1301, "adder1");
  EXPECT_TRUE(adds(load(request), 1300));
}

TEST(Jit, AFaultyKernelCostsOnlyItself) {
  KernelRequest request = adders(1320, 5);
  for (int bad : {1, 3})
    request.kernels[bad].text =
        str_cat("extern \"C\" int64 adder", bad, "(int64 x) {\n  return x + missing_name;\n}\n");
  for (bool again : {false, true}) {
    const Loaded l = load(request, {.units = 1, .faults_are_errors = false});
    EXPECT_EQ(l.unavailable, "");
    EXPECT_EQ(l.compiled, again ? 0 : 3);
    for (int i = 0; i < 5; ++i) {
      const auto add = reinterpret_cast<AddFunction>(l.functions[i]);
      ASSERT_EQ(add == nullptr, i == 1 || i == 3) << i;
      if (add) {
        EXPECT_EQ(add(1), 1321 + i);
      }
    }
    ASSERT_EQ(l.notes.size(), 2u);  // one for each, also when it is known already
    for (const std::string& note : l.notes)
      EXPECT_TRUE(contains(note, "does not compile") && contains(note, "it is interpreted")) << note;
  }
}

TEST(Jit, AnErrorInThePreludeIsNamed) {
  KernelRequest request = adders(1400, 1);
  request.prelude += "nonsense;\n";
  try {
    load(request);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "prelude:2:1: error:")) << error.what();
  }
}

TEST(Jit, AnErrorInATemplateIsThatOfTheKernelThatUsesIt) {
  KernelRequest request = adders(1450, 3);
  request.prelude += "template <class T> int64 twice(T x) { return x.missing; }\n";
  request.kernels[1].text = "extern \"C\" int64 adder1(int64 x) {\n  return twice(x);\n}\n";
  try {
    load(request, {.units = 1});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "kernel adder1 does not compile: prelude:2:")) << error.what();
  }
}

TEST(Jit, ThreadsShareOneCompilation) {
  KernelRequest request = adders(1500, 4);
  std::atomic<int64_t> compiled{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Loaded l = load(request);
      compiled += l.compiled;
      wrong += !adds(l, 1500);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(compiled, 4);
  EXPECT_EQ(wrong, 0);
}

TEST(Jit, WithoutCacheLeavesNoFiles) {
  std::string folder = temporary("no_cache_tmp");
  io::make_folders(folder);
  InChild r = load_in_child(adders(1600, 2), {.cache = "off"}, 1600, [&] {
    ::setenv("TEST_TMPDIR", folder.c_str(), 1);
    ::setenv("TMPDIR", folder.c_str(), 1);
  });
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_EQ(r.compiled, 2);
  EXPECT_TRUE(io::list_folder(folder).empty());
}

TEST(Jit, Clang) {
  if (!find_compiler("clang++", "").unavailable.empty()) GTEST_SKIP() << find_compiler("clang++", "").unavailable;
  Loaded l = load(adders(1700, 3), {.compiler = "clang++"});
  EXPECT_EQ(l.unavailable, "");
  EXPECT_EQ(l.compiled, 3);
  EXPECT_TRUE(adds(l, 1700));
}

// ---- compilers that fail ----

// All functions are null, and the reason has all `parts`.
void expect_unavailable(const Loaded& l, std::vector<std::string> parts) {
  for (void* f : l.functions) EXPECT_EQ(f, nullptr);
  EXPECT_EQ(l.compiled, 0);
  for (const std::string& part : parts) EXPECT_TRUE(contains(l.unavailable, part)) << l.unavailable;
}

TEST(JitFailure, NoCompiler) {
  expect_unavailable(load(adders(2000, 2), {.compiler = "/nonexistent"}), {"no program /nonexistent"});
  InChild r = load_in_child(adders(2000, 2), {}, 2000, [] { ::setenv("WEFT_CXX", "/nonexistent", 1); });
  EXPECT_TRUE(contains(r.text, "no program /nonexistent")) << r.text;
  // No other test uses this name: a process asks once per name.
  r = load_in_child(adders(2000, 2), {.compiler = "c++"}, 2000, [] { ::setenv("PATH", "/nonexistent", 1); });
  EXPECT_TRUE(contains(r.text, "no program c++")) << r.text;
  EXPECT_EQ(r.compiled, 0);
}

TEST(JitFailure, CompilerThatDoesNotRun) {
  std::string path = temporary("not_a_program");
  io::write_file_atomic(path, "\177ELF nonsense");
  ::chmod(path.c_str(), 0755);
  expect_unavailable(load(adders(2100, 1), {.compiler = path}), {path, "--version"});
}

TEST(JitFailure, CompilerThatHangsIsStopped) {
  std::string compiler = fake_compiler("hangs", "sleep 1000 & sleep 1000");
  auto begin = std::chrono::steady_clock::now();
  expect_unavailable(load(adders(2200, 2), {.compiler = compiler, .time_limit = 1}), {compiler, "within 1 s"});
  // No further wait, and no wait for its children.
  expect_unavailable(load(adders(2300, 2), {.compiler = compiler, .time_limit = 900}), {"within 1 s"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300));
}

TEST(JitFailure, AKernelThatTakesTooLongCostsOnlyItself) {
  // Hangs on the second kernel: first all are in one unit, then each is alone.
  KernelRequest request = adders(3100, 6);
  request.kernels[1].text += "// hang\n";
  std::string compiler =
      fake_compiler("slow", "for last; do :; done; grep -q '// hang' \"$last\" && exec sleep 1000; exec g++ \"$@\"");
  Loaded l = load(request, {.compiler = compiler, .time_limit = 4, .units = 1});
  EXPECT_EQ(l.unavailable, "");
  EXPECT_EQ(l.compiled, 5);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(l.functions[i] == nullptr, i == 1) << i;
  ASSERT_EQ(l.notes.size(), 1u);
  EXPECT_TRUE(contains(l.notes[0], request.kernels[1].symbol) && contains(l.notes[0], "is interpreted")) << l.notes[0];
  // Known now: no load waits for it again.
  auto begin = std::chrono::steady_clock::now();
  l = load(request, {.compiler = compiler, .time_limit = 900});
  EXPECT_EQ(l.from_memory, 5);
  EXPECT_EQ(l.notes.size(), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300));
  // The fourth wait is the last.
  for (int i = 0; i < 2; ++i) {
    request = adders(3120 + i, 1);
    request.kernels[0].text += "// hang\n";
    l = load(request, {.compiler = compiler, .time_limit = 0.3});
    EXPECT_EQ(l.notes.size(), 1u);
  }
  expect_unavailable(load(adders(3130, 1), {.compiler = compiler, .time_limit = 900}), {"within 0.3 s"});
}

TEST(JitFailure, CompilerThatExits) {
  std::string compiler = fake_compiler("exits", "echo the licence has expired; exit 1");
  expect_unavailable(load(adders(2400, 2), {.compiler = compiler}),
                     {compiler, "exit status 1", "the licence has expired"});
}

TEST(JitFailure, CompilerThatCrashes) {
  std::string compiler = fake_compiler("crashes", "kill -SEGV $$");
  expect_unavailable(load(adders(2500, 1), {.compiler = compiler}), {compiler, "ended by signal 11"});
}

TEST(JitFailure, CompilerWithAnInternalError) {
  std::string compiler = fake_compiler("breaks", "echo 'adder0:1:1: internal compiler error: in foo'; exit 1");
  expect_unavailable(load(adders(2600, 1), {.compiler = compiler}), {"internal compiler error", "the source is in"});
}

TEST(JitFailure, CompilerThatWritesGarbage) {
  std::string find_output = "while [ \"$1\" != -o ]; do shift; done; ";
  std::string compiler = fake_compiler("garbage", find_output + "echo garbage > $2");
  expect_unavailable(load(adders(2700, 2), {.compiler = compiler}), {compiler, "cannot be loaded"});
  compiler = fake_compiler("nothing", "exit 0");
  expect_unavailable(load(adders(2700, 2), {.compiler = compiler}), {compiler, "created no file"});
  // A valid shared object, but with other functions.
  compiler =
      fake_compiler("other", find_output + "echo 'int f() { return 1; }' | g++ -shared -nostdlib -x c++ - -o $2");
  expect_unavailable(load(adders(2700, 2), {.compiler = compiler}), {compiler, "without the kernels"});
}

// Loading such a file would end the process with SIGBUS.
TEST(JitFailure, CompilerWhoseOutputIsCutShort) {
  const std::string compile = "for a; do [ \"$p\" = -o ] && out=$a; p=$a; done; g++ \"$@\"; ";
  for (const char* size : {"0", "100", "4000", "-4096", "-1"}) {
    const std::string compiler = fake_compiler(str_cat("cuts", size), str_cat(compile, "truncate -s ", size, " $out"));
    InChild r = load_in_child(adders(2750, 2), {.cache = "off", .compiler = compiler}, 2750);
    EXPECT_EQ(r.compiled, 0) << size << ": " << r.to_string();
    expect_unavailable(load(adders(2750, 2), {.cache = "off", .compiler = compiler}), {compiler, "cannot be loaded"});
  }
}

TEST(JitFailure, CompilerThatNeverStopsTalking) {
  std::string compiler = fake_compiler("talks", "yes");
  expect_unavailable(load(adders(2800, 2), {.compiler = compiler, .time_limit = 0.3, .units = 2}),
                     {compiler, "within 0.3 s"});
}

TEST(JitFailure, CompilerThatLeavesAProcessBehind) {
  std::string compiler = fake_compiler("leaves", "sleep 1000 & exit 3");
  auto begin = std::chrono::steady_clock::now();
  expect_unavailable(load(adders(2900, 1), {.compiler = compiler, .time_limit = 900}), {"exit status 3"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(300));
}

TEST(JitFailure, OneUnitOfTwoFails) {
  std::string compiler = fake_compiler("half", "case \"$*\" in */0.cc) exit 1;; esac; exec g++ \"$@\"");
  Loaded l = load(adders(3000, 2), {.compiler = compiler, .units = 2});
  EXPECT_EQ(l.compiled, 1);
  EXPECT_EQ((l.functions[0] != nullptr) + (l.functions[1] != nullptr), 1);
  EXPECT_TRUE(contains(l.unavailable, "exit status 1")) << l.unavailable;
}

TEST(JitFailure, ParentThatIgnoresItsChildren) {
  InChild r = load_in_child(adders(3100, 2), {.cache = "off"}, 3100, [] { ::signal(SIGCHLD, SIG_IGN); });
  EXPECT_TRUE(r.right) << r.to_string();
}

}  // namespace
}  // namespace weft::jit
